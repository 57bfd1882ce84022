"""Which probes a line gets and with which numbers: settings become `ProbePlan`s, whose options the talks read."""

from __future__ import annotations

from typing import Final

from pydantic import SecretStr

from reachline.doors.effective import Effective
from reachline.doors.probing import DnsProbe, HttpProbe, IcmpProbe, Probes, TcpProbe, TlsProbe
from reachline.model import Endpoint, Kind
from reachline.talk.secure import is_address
from reachline.wire.frame import ProbePlan

__all__ = ["kinds_known", "kinds_of", "options_of", "probe_plans", "why_not"]

Probe = TcpProbe | HttpProbe | TlsProbe | DnsProbe | IcmpProbe

_BY_SCHEME: Final[dict[str, tuple[Kind, ...]]] = {
    "tcp": (Kind.TCP,),
    "http": (Kind.TCP, Kind.HTTP),
    "https": (Kind.TCP, Kind.HTTP, Kind.TLS),
    "tls": (Kind.TCP, Kind.TLS),
    "dns": (Kind.DNS,),
    "icmp": (Kind.ICMP,),
}
_CALM: Final = frozenset({Kind.TLS, Kind.DNS})
"""Advisory kinds keep their pace while a line is suspect: they cost the other side most and decide nothing."""
_PACING: Final = ("enabled", "every", "burst", "timeout", "tail")


def kinds_known() -> tuple[Kind, ...]:
    """The kinds that a document can name."""
    return tuple(kind for kind in Kind if kind.value in Probes.model_fields)


def kinds_of(endpoint: Endpoint, found: Effective) -> tuple[Kind, ...]:
    """The kinds of a line: those of its scheme and those the document names, without those it switches off and those
    that cannot be asked here.
    """
    return tuple(kind for kind in kinds_known() if _is_wanted(endpoint, kind, found))


def _is_wanted(endpoint: Endpoint, kind: Kind, found: Effective) -> bool:
    probes = found.settings.probes
    if kind not in _BY_SCHEME[endpoint.scheme] and not found.is_written(("probes", kind.value)):
        return False
    return _settings(probes, kind).enabled and not why_not(endpoint, kind, probes)


def why_not(endpoint: Endpoint, kind: Kind, probes: Probes) -> str:
    """Why a kind cannot be used on this line, in words; empty where it can."""
    if kind in {Kind.TCP, Kind.HTTP, Kind.TLS} and not endpoint.port:
        return f"{endpoint} has no port to connect to"
    if kind in {Kind.HTTP, Kind.TLS} and endpoint.scheme == "dns":
        return f"{endpoint} is a name server"
    if kind is Kind.TLS and endpoint.scheme == "http":
        return f"{endpoint} speaks no TLS"
    if kind is Kind.DNS and endpoint.scheme != "dns" and is_address(endpoint.host) and not probes.dns.name:
        return f"{endpoint} has no name to resolve; say probes.dns.name"
    return ""


def probe_plans(endpoint: Endpoint, found: Effective) -> tuple[ProbePlan, ...]:
    """What an agent must send to this line, how often, and how it sums it up."""
    settings, kinds = found.settings, kinds_of(endpoint, found)
    return tuple(_plan(endpoint, kind, found, alone=len(kinds) == 1, window=settings.window.samples) for kind in kinds)


def _plan(endpoint: Endpoint, kind: Kind, found: Effective, *, alone: bool, window: int) -> ProbePlan:
    probes = found.settings.probes
    probe = _settings(probes, kind)
    every, burst = _pace(endpoint, kind, found)
    calm = kind in _CALM and not alone
    return ProbePlan(
        kind=kind,
        interval_ms=every,
        suspect_interval_ms=every if calm else min(every, _ms(probes.suspect)),
        timeout_ms=_ms(probe.timeout),
        patience_ms=_ms(probe.tail),
        burst=burst,
        window=window,
        max_age_ms=_ms(found.settings.window.max_age),
        options=options_of(endpoint, kind, probes),
    )


def _pace(endpoint: Endpoint, kind: Kind, found: Effective) -> tuple[int, int]:
    """Interval in ms and burst of a kind. On a dns:// line the query takes the place of the connect, and its pace."""
    probes = found.settings.probes
    own = _settings(probes, kind)
    if kind is not Kind.DNS or endpoint.scheme != "dns":
        return _ms(own.every), own.burst
    every = own.every if found.is_written(("probes", "dns", "every")) else probes.tcp.every
    burst = own.burst if found.is_written(("probes", "dns", "burst")) else probes.tcp.burst
    return _ms(every), burst


def _settings(probes: Probes, kind: Kind) -> Probe:
    found: Probe = getattr(probes, kind.value)
    return found


def options_of(endpoint: Endpoint, kind: Kind, probes: Probes) -> dict[str, str | int | bool]:
    """The kind's own settings by their name, where they are not the default."""
    probe = _settings(probes, kind)
    fields = type(probe).model_fields
    said = {name: getattr(probe, name) for name in fields if name not in _PACING}
    options = {name: _option(value) for name, value in said.items() if value != fields[name].get_default()}
    if kind is Kind.HTTP and not _speaks_tls(endpoint, probes.http):
        for name in ("sni", "ca", "verify"):
            options.pop(name, None)
    return {name: value for name, value in options.items() if value != ""}


def _speaks_tls(endpoint: Endpoint, probe: HttpProbe) -> bool:
    by_default = endpoint.scheme in {"https", "tls"} or (endpoint.scheme == "tcp" and endpoint.port == 443)
    return by_default if probe.tls is None else probe.tls


def _option(value: object) -> str | int | bool:
    match value:
        case bool() | int() | str():
            return value
        case dict():
            return "\n".join(f"{name}: {_revealed(text)}" for name, text in value.items())
        case _:
            return ""


def _revealed(text: object) -> str:
    return text.get_secret_value() if isinstance(text, SecretStr) else str(text)


def _ms(seconds: float) -> int:
    return round(seconds * 1_000)
