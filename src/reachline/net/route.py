"""Where a job's packets go: addresses at once, names by what the resolver said of them. Waits for nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from reachline.model import Endpoint
from reachline.net.attempt import Job, Place, Route, SockAddr
from reachline.net.bare import BARE
from reachline.net.plain import PLAIN
from reachline.net.query import QUERY
from reachline.net.resolve import Answer, nameserver
from reachline.net.wheel import NEVER
from reachline.talk import glance
from reachline.talk.passing import exchanges
from reachline.talk.secure import is_address
from reachline.talk.way import Way

__all__ = ["Name", "names", "route"]

_NS: Final = 1_000_000_000
_SOON_NS: Final = 100_000_000
"""A stale answer serves this long while it is asked again."""
_NAMESERVER_NS: Final = 60 * _NS
"""How long the machine's own name server is taken for granted."""

Name = tuple[str, int]
"""A host to look up, and the family wanted (0: either)."""


def names(job: Job) -> tuple[Name, ...]:
    """What must be known before the first packet leaves: where to connect to, and each name that a proxy gets as an address."""
    wanted = [_name(job, 0), *(_name(job, at) for at, hop in enumerate(job.hops, 1) if hop.resolves_here)]
    return tuple(dict.fromkeys(name for name in wanted if name[0] and not is_address(name[0])))


def route(job: Job, answers: Mapping[Name, Answer], now: int) -> Route | str:
    """The route by what the resolver says of `names`; a text: why there is none."""
    until = NEVER
    for name, answer in answers.items():
        if not answer.addresses:
            return f"{name[0]}: {answer.error}" if job.hops else answer.error
        until = min(until, max(int(answer.until * _NS), now + _SOON_NS))
    ends = _ends(job)
    if not ends[-1].host:
        if not (own := nameserver()):
            return "this machine has no name server in /etc/resolv.conf"
        ends[-1] = replace(ends[-1], host=own)
        until = min(until, now + _NAMESERVER_NS)
    address = _address(job, 0, ends[0], answers)
    return _to(job, address, ends[0].port, until, tuple(_places(job, ends, answers)))


def _ends(job: Job) -> list[Endpoint]:
    """What is connected to, one by way of the other: the hops, then who is asked."""
    return [*(hop.endpoint for hop in job.hops), job.probe.where(job.endpoint)]


def _name(job: Job, at: int) -> Name:
    """A connection that we make ourselves, the first one, is of the source address's family where it has none of its own."""
    end = _ends(job)[at]
    family = end.family
    if not family and at == 0 and job.source:
        family = 6 if ":" in job.source else 4
    return end.host, family


def _address(job: Job, at: int, end: Endpoint, answers: Mapping[Name, Answer]) -> str:
    answer = answers.get(_name(job, at))
    return answer.addresses[0] if answer is not None else end.host


def _places(job: Job, ends: list[Endpoint], answers: Mapping[Name, Answer]) -> Iterator[Place]:
    """What each hop is asked for: a name as it is, unless it is to get addresses."""
    for at, hop in enumerate(job.hops, 1):
        host = _address(job, at, ends[at], answers) if hop.resolves_here else ends[at].host
        yield host, ends[at].port


def _to(job: Job, address: str, port: int, until: int, places: tuple[Place, ...]) -> Route | str:
    try:
        # AI_NUMERICHOST: never asks anybody; it turns a zone index into its number.
        found = socket.getaddrinfo(address, port, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST)
    except OSError as error:
        return f"not an address here: {error.strerror or error}"
    family, _, _, _, sockaddr = found[0]
    probe = job.probe
    return _leaned(
        Route(
            job=job,
            # A question by datagram goes through proxies as it goes by TCP: `Job` lets no other datagram near them.
            way=Way.STREAM if places and probe.way is Way.DATAGRAM else probe.way,
            family=int(family),
            address=_plain(sockaddr),
            bare=not places
            and probe.way is Way.CONNECT
            and probe.secure is None
            and probe.talk(job.endpoint, 0) is None,
            bound=bool(job.source or job.interface or job.port),
            timeout_us=round(job.timeout * 1_000_000),
            timeout_ns=round(job.timeout * _NS),
            patience_ns=round(job.patience * _NS),
            until=until,
            places=places,
        )
    )


def _leaned(route: Route) -> Route:
    """The route with the lean machine that can go it, if any."""
    if route.bare:
        return route._replace(course=BARE)
    job = route.job
    if route.places and job.probe.way is not Way.STREAM:
        return route
    passing = exchanges(job.hops, route.places)
    seen = None if passing is None else glance.of(job.probe, job.endpoint)
    if passing is None or seen is None:
        return route
    return route._replace(course=PLAIN if route.way is Way.STREAM else QUERY, glance=seen, passing=passing)


def _plain(sockaddr: tuple[object, ...]) -> SockAddr:
    match sockaddr:
        case (str(host), int(port)):
            return host, port
        case (str(host), int(port), int(flow), int(scope)):
            return host, port, flow, scope
        case _:
            raise OSError(f"unknown address form {sockaddr!r}")
