"""How an agent's attempts on a line leave: from which own addresses, closed how, out of which buckets. Sends nothing."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from reachline.agent.pace import Close, Limits
from reachline.core.bucket import Claim
from reachline.doors import outbounds
from reachline.doors.addresses import AUTO, ROUTE, parse_target
from reachline.doors.outbounds import DIRECT
from reachline.errors import ConfigError
from reachline.model import Kind
from reachline.net import budget, sources
from reachline.net.engine import Job
from reachline.talk.secure import is_address
from reachline.wire.frame import LinePlan, ProbePlan

__all__ = ["Leaving", "Outflow", "Sources", "claims_of", "network_of"]

_ANY: Final = ("",)
_CONNECTIONLESS: Final = frozenset({Kind.DNS, Kind.ICMP, Kind.UDP, Kind.PASSIVE})
_PORTS: Final = {"http": ":80", "https": ":443"}
_AFTER: Final = re.compile(r"[/?#]").split
"""What follows a host and its port begins with one of these."""
_IPV4: Final = re.compile(r"\d+\.\d+\.\d+\.\d+").fullmatch
_PREFIX_OF_IPV6: Final = 48
"""As /24 of IPv4, the smallest network that the routing of the Internet knows: as a rule, one operator's."""
_LOOPBACK: Final = ("127.", "[::1]", "localhost")


class Leaving(NamedTuple):
    """How attempts on one line leave."""

    sources: tuple[str, ...] = _ANY
    """Own addresses in turn; empty text: the route decides."""
    reset: bool = False
    """Connections are closed by RST: by FIN they would use up the ports toward this target."""
    full: bool = False
    """They do use them up, and are closed by FIN all the same: the ports have a bucket."""


@lru_cache(maxsize=1_024)
def _leaving(own: tuple[str, ...], *, reset: bool = False, full: bool = False) -> Leaving:
    """Lines that leave alike share what says so."""
    return Leaving(own, reset, full)


class Sources:
    """The addresses that attempts alternate over: given ones, or those that are found. Written by its prober."""

    def __init__(self, wanted: Sequence[str]) -> None:
        self.is_auto = AUTO in wanted
        self._given = tuple(each for each in wanted if each not in (AUTO, ROUTE))
        self._groups: Mapping[str, tuple[str, ...]] = {}
        self.look()

    def look(self) -> bool:
        """Whether the addresses of this machine are others than at the last look."""
        before = self._groups
        self._groups = sources.groups(sources.addresses()) if self.is_auto else {}
        return self._groups != before

    def of(self, line: LinePlan) -> tuple[str, ...]:
        """For one line, by the address that its packets go to; for a name that may be of either family the route decides."""
        if line.source:
            return (line.source,)
        if not self._given and not self._groups:
            return _ANY
        host = _host(line)
        if not (_IPV4(host) or is_address(host)):
            return self._given or _ANY
        if not self._given:
            if line.interface:
                return _ANY  # which may be another one than the route takes
            return sources.beside(host, self._groups) or _ANY
        return tuple(own for own in self._given if (":" in own) == (":" in host)) or _ANY


class Outflow:
    """Connections that all lines together make to each address, a minute's worth of which hold our ports. A value once added up."""

    def __init__(self, close: Close) -> None:
        self._close = close
        self._rates: Counter[str] = Counter()
        self._ports = {is_loopback: budget.ports(is_loopback=is_loopback) for is_loopback in (False, True)}

    def add(self, line: LinePlan) -> None:
        """What it will ask for at most: at its suspect interval."""
        target = _netloc(line)
        for plan in line.probes:
            if plan.kind not in _CONNECTIONLESS:
                self._rates[target] += round(1e6 * plan.burst / plan.suspect_interval_ms)

    def leaving(self, line: LinePlan, own: tuple[str, ...]) -> Leaving:
        """How its attempts leave, from these addresses."""
        if self._close is Close.RST:
            return _leaving(own, reset=True)
        target = _netloc(line)
        share = self._room(target).share(self._rates[target] / 1e3 / len(own))
        if self._close is Close.AUTO:
            return _leaving(own, reset=share > budget.FULL)
        return _leaving(own, full=share > 1)

    def claim(self, line: LinePlan, plan: ProbePlan, leaving: Leaving) -> Claim:
        """What one round takes of the ports toward its address."""
        target = _netloc(line)
        return Claim(f"ports {target}", self._room(target).rate * len(leaving.sources), plan.burst)

    def _room(self, target: str) -> budget.Ports:
        return self._ports[target.startswith(_LOOPBACK)]


def claims_of(job: Job, plan: ProbePlan, leaving: Leaving, limits: Limits, *, address: str = "") -> tuple[Claim, ...]:
    """What one round asks of the buckets of its target's network and of our addresses. Loopback is nobody's network.

    `address` is what a name resolved to, where that is known.
    """
    host = job.hops[0].endpoint.host if job.hops else address or job.endpoint.host
    if not (network := network_of(host)):
        return ()
    return _claims(network, leaving.sources, plan.burst, limits)


@lru_cache(maxsize=1_024)
def _claims(network: str, own: tuple[str, ...], burst: int, limits: Limits) -> tuple[Claim, ...]:
    """Lines of one network share theirs."""
    there = (Claim(f"network {network}", limits.network, burst),) if limits.network else ()
    return there + (_own_claims(own, burst, limits.source) if limits.source else ())


@lru_cache(maxsize=1_024)
def _own_claims(own: tuple[str, ...], burst: int, rate: float) -> tuple[Claim, ...]:
    return tuple(Claim(f"source {each or 'of the route'}", rate, burst / len(own)) for each in own)


def network_of(host: str) -> str:
    """The network of an address, as text; a name stands for itself, and loopback, which no network carries, for nothing."""
    if _IPV4(host):
        return "" if host.startswith("127.") else f"{host.rpartition('.')[0]}.0/24"
    if not is_address(host):
        return "" if host == "localhost" else host
    address = ipaddress.ip_address(host.partition("%")[0])
    if address.is_loopback:
        return ""
    return str(ipaddress.ip_network((address, _PREFIX_OF_IPV6), strict=False))


def _netloc(line: LinePlan) -> str:
    """Host and port that connections go to first, as the plan writes them; of a way out as `_proxy` reads it."""
    if line.via != DIRECT:
        return _proxy(line.via)[1]
    scheme, _, rest = line.target.partition("://")
    place = _AFTER(rest, maxsplit=1)[0].rpartition("@")[2]
    return place + _PORTS.get(scheme, "") if place.rpartition(":")[2] == place or place.endswith("]") else place


def _host(line: LinePlan) -> str:
    if line.via != DIRECT:
        return _proxy(line.via)[0]
    try:
        return parse_target(line.target).host
    except (ConfigError, ValueError):
        return ""


@lru_cache(maxsize=1_024)
def _proxy(via: str) -> tuple[str, str]:
    """Host, and host with port, of the first proxy; empty where the way out cannot be read, and nothing is sent."""
    try:
        endpoint = outbounds.hops(via)[0].endpoint
    except (ConfigError, ValueError):
        return "", ""
    host = endpoint.host
    return host, f"[{host}]:{endpoint.port}" if ":" in host else f"{host}:{endpoint.port}"
