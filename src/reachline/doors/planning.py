"""Which probes a line gets and with which numbers: settings become `ProbePlan`s, whose options the talks read."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec
from pydantic import SecretStr

from reachline.doors.addresses import SCHEMES
from reachline.doors.effective import Effective
from reachline.doors.fast import raised, slow
from reachline.doors.outbounds import DIRECT
from reachline.doors.probing import Probes
from reachline.model import Endpoint, Kind
from reachline.talk import hop
from reachline.wire.frame import ProbePlan

__all__ = ["kinds_known", "kinds_of", "options_of", "probe_plans", "why_not"]

_NOTHING: Final[Mapping[Kind, int]] = MappingProxyType({})
_PACING: Final = ("enabled", "every", "burst", "timeout", "tail")


def kinds_known() -> tuple[Kind, ...]:
    """The kinds that a document can name."""
    return tuple(kind for kind in Kind if kind.value in Probes.model_fields)


def kinds_of(endpoint: Endpoint, found: Effective, via: str = DIRECT) -> tuple[Kind, ...]:
    """The kinds of a line: those of its scheme and those the document names, without those it switches off and those
    that cannot be asked here or by this way.
    """
    wanted = (kind for kind in kinds_known() if _is_wanted(endpoint, kind, found))
    return tuple(kind for kind in wanted if via == DIRECT or not hop.why_not(kind))


def _is_wanted(endpoint: Endpoint, kind: Kind, found: Effective) -> bool:
    probes = found.settings.probes
    if kind not in SCHEMES[endpoint.scheme].kinds and not found.is_written(("probes", kind.value)):
        return False
    return probes.of(kind).enabled and not why_not(endpoint, kind, probes)


def why_not(endpoint: Endpoint, kind: Kind, probes: Probes) -> str:
    """Why a kind cannot be used on this line, in words; empty where it can."""
    return probes.of(kind).misfit(endpoint)


def probe_plans(
    endpoint: Endpoint,
    found: Effective,
    via: str = DIRECT,
    *,
    login: tuple[str, str] = ("", ""),
    usual_us: Mapping[Kind, int] = _NOTHING,
) -> tuple[ProbePlan, ...]:
    """What an agent must send to this line, how often, and how it sums it up. `login` is the line's own user and password,
    `usual_us` its usual round trips by kind, as far as they are known.
    """
    kinds = kinds_of(endpoint, found, via)
    plans = (_plan(endpoint, kind, found, alone=len(kinds) == 1, usual_us=usual_us.get(kind)) for kind in kinds)
    return tuple(_signed_in(plan, login) for plan in plans)


def _signed_in(plan: ProbePlan, login: tuple[str, str]) -> ProbePlan:
    """A login of the line's URL stands before the cluster's."""
    if not login[1] or plan.kind is not Kind.REDIS:
        return plan
    said = {name: value for name, value in zip(("user", "password"), login, strict=True) if value}
    others = {name: value for name, value in plan.options.items() if name not in {"user", "password"}}
    return msgspec.structs.replace(plan, options=others | said)


def _plan(endpoint: Endpoint, kind: Kind, found: Effective, *, alone: bool, usual_us: int | None) -> ProbePlan:
    probes = found.settings.probes
    probe = probes.of(kind)
    every, burst = _pace(endpoint, kind, found)
    calm, limits = probe.calm and not alone, raised(slow(found), usual_us, found)
    return ProbePlan(
        kind=kind,
        interval_ms=every,
        suspect_interval_ms=every if calm else min(every, _ms(probes.suspect)),
        timeout_ms=_ms(probe.timeout),
        patience_ms=_ms(probe.tail),
        burst=burst,
        window=found.settings.window.samples,
        max_age_ms=_ms(found.settings.window.max_age),
        options=options_of(endpoint, kind, probes),
        slow_us=limits.degraded_us,
        crawl_us=limits.failed_us,
    )


def _pace(endpoint: Endpoint, kind: Kind, found: Effective) -> tuple[int, int]:
    """Interval in ms and burst of a kind. On a dns:// line the query takes the place of the connect, and its pace."""
    probes = found.settings.probes
    own = probes.of(kind)
    if kind is not Kind.DNS or endpoint.scheme != "dns":
        return _ms(own.every), own.burst
    every = own.every if found.is_written(("probes", "dns", "every")) else probes.tcp.every
    burst = own.burst if found.is_written(("probes", "dns", "burst")) else probes.tcp.burst
    return _ms(every), burst


def options_of(endpoint: Endpoint, kind: Kind, probes: Probes) -> dict[str, str | int | bool]:
    """The kind's own settings by their name, where they are not the default."""
    probe = probes.of(kind)
    fields = type(probe).model_fields
    said = {name: getattr(probe, name) for name in fields if name not in _PACING}
    options = {name: _option(value) for name, value in said.items() if value != fields[name].get_default()}
    idle = probe.idle(endpoint)
    return {name: value for name, value in options.items() if value != "" and name not in idle}


def _option(value: object) -> str | int | bool:
    match value:
        case bool() | int() | str():
            return value
        case SecretStr():
            return value.get_secret_value()
        case dict():
            return "\n".join(f"{name}: {_revealed(text)}" for name, text in value.items())
        case _:
            return ""


def _revealed(text: object) -> str:
    return text.get_secret_value() if isinstance(text, SecretStr) else str(text)


def _ms(seconds: float) -> int:
    return round(seconds * 1_000)
