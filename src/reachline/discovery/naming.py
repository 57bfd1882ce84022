"""What is known of one name over time: pure state, and when it is asked again. Knows no socket; time and chance come in."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from random import Random
from typing import Final, NamedTuple

from reachline.errors import ConfigError, Problem
from reachline.model import Seconds
from reachline.wire.dns_answer import Answered, Found

__all__ = ["DnsSettings", "Family", "Name", "deadline", "heard", "in_use", "trouble"]

_DOUBLINGS_MOST: Final = 30
"""Beyond it every ceiling is reached, and floats stay finite."""
_SPREAD: Final = 0.5
"""Share of a failure's wait that is left to chance: a thousand clients must not ask a name server that returns all at once."""


class Family(StrEnum):
    """Which addresses of a name count."""

    V4 = "v4"
    V6 = "v6"
    BOTH = "both"
    V6_FIRST = "v6_first"
    """IPv4 only where there is no IPv6 (Envoy's AUTO)."""
    V4_FIRST = "v4_first"

    @property
    def kinds(self) -> tuple[str, ...]:
        """Record types to ask for, the preferred one first."""
        match self:
            case Family.V4:
                return ("A",)
            case Family.V6:
                return ("AAAA",)
            case Family.BOTH | Family.V4_FIRST:
                return ("A", "AAAA")
            case Family.V6_FIRST:
                return ("AAAA", "A")


@dataclass(frozen=True, slots=True, kw_only=True)
class DnsSettings:
    """How names are followed. ConfigError where a number cannot be."""

    refresh: Seconds = 5.0
    """Between an answer and the next question, where its TTL does not count."""
    respect_ttl: bool = True
    """Whether an answer holds for its TTL (the smallest of its CNAME chain) in place of `refresh`; either way for half of
    `stale_after` at most, so that a question that fails finds addresses still in use.
    """
    ttl_floor: Seconds = 1.0
    """Least wait by TTL: a TTL of 0 asks once a second, not in a loop."""
    jitter: Seconds = 0.5
    """Up to this much is added to every wait: a tenth of the refresh keeps a fleet's questions apart."""
    failure_base: Seconds | None = 1.0
    """First wait after a question that failed, doubled by each further failure; None: `refresh`, never doubled."""
    failure_max: Seconds | None = None
    """Ceiling of these waits; None: ten times `failure_base`."""
    empty_for: Seconds = 30.0
    """How long addresses outlive answers that name none. 0 drops them at once (Envoy), `math.inf` keeps them."""
    stale_after: Seconds = 3_600.0
    """How long they count after the last answer, while questions fail. An hour: an outage of name servers is not one of endpoints."""
    family: Family = Family.BOTH
    ready_any: bool = False
    """Whether the first update comes with the first name's answer (Envoy) rather than when all names have answered…"""
    initial_wait: Seconds = 5.0
    """…and the longest wait for it, after which it comes with what is there."""

    def __post_init__(self) -> None:
        for name, floor, may_be_endless in _BOUNDS:
            value = getattr(self, name)
            if value is None:
                continue
            # Written so that NaN is refused too.
            if not (value >= floor and (may_be_endless or math.isfinite(value))):
                rule = f"must be {floor:g} s or more" + ("" if may_be_endless else ", and end")
                raise ConfigError(Problem(place="dns", path=name, value=repr(value), rule=rule))
        if self.failure_max is not None and self.failure_base is not None and self.failure_max < self.failure_base:
            rule = f"must be failure_base ({self.failure_base:g} s) or more"
            raise ConfigError(Problem(place="dns", path="failure_max", value=repr(self.failure_max), rule=rule))


_BOUNDS: Final = (
    # Envoy refuses a refresh below 1 ms; nobody wants one, and 0 would be a loop.
    ("refresh", 0.001, False), ("ttl_floor", 0.001, False), ("failure_base", 0.001, False), ("failure_max", 0.001, False),
    ("jitter", 0.0, False), ("initial_wait", 0.0, False), ("empty_for", 0.0, True), ("stale_after", 0.0, True),
)  # fmt: skip


class _Held(NamedTuple):
    """Addresses of one family."""

    addresses: tuple[str, ...] = ()
    heard: Seconds | None = None
    """When a name server last answered, be it that there are none."""
    emptied: Seconds | None = None
    """Since when its answers have named none."""


_NONE_HELD: Final = _Held()


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """One name at a moment."""

    host: str
    due: Seconds
    """When it is asked next."""
    is_ready: bool = False
    """Whether its first question is over, well or not."""
    failures: int = 0
    """In a row."""
    error: str = ""
    """Of the last question; empty where it went well."""
    held: Mapping[str, _Held] = field(default_factory=dict)


def heard(name: Name, found: Mapping[str, Found], now: Seconds, settings: DnsSettings, rng: Random) -> Name:
    """The name after a question by all its record types that ended at `now`."""
    any_found = any(each.answered is Answered.FOUND for each in found.values())
    held = {kind: _after(name.held.get(kind, _NONE_HELD), each, now, any_found) for kind, each in found.items()}
    failed = [each.error for each in found.values() if each.answered is Answered.FAILED]
    missing = [each.error for each in found.values() if each.answered is not Answered.FOUND]
    after = replace(
        name,
        held=held,
        is_ready=True,
        failures=name.failures + 1 if failed else 0,
        error=next(iter(failed), "") or ("" if any_found else next(iter(missing), "")),
    )
    ttls = [each.ttl for each in found.values() if each.ttl is not None]
    wait = _wait(after.failures, min(ttls) if ttls else None, settings, rng)
    return replace(after, due=now + wait + rng.random() * settings.jitter)


def _after(held: _Held, found: Found, now: Seconds, any_found: bool) -> _Held:
    match found.answered:
        case Answered.FOUND:
            return _Held(found.addresses, now)
        case Answered.FAILED:
            return held
        case Answered.EMPTY | Answered.MISSING if any_found:
            return _Held((), now)  # the name is there; it has given up this family
        case Answered.EMPTY | Answered.MISSING:
            return _Held(held.addresses, now, now if held.emptied is None else held.emptied)


def _wait(failures: int, ttl: int | None, settings: DnsSettings, rng: Random) -> Seconds:
    if failures and settings.failure_base is not None:
        most = settings.failure_max if settings.failure_max is not None else 10 * settings.failure_base
        wait = min(settings.failure_base * 2.0 ** min(failures - 1, _DOUBLINGS_MOST), most)
        return wait * (1 - _SPREAD + _SPREAD * rng.random())
    by_ttl = ttl is not None and settings.respect_ttl and not failures
    wait = max(float(ttl or 0), settings.ttl_floor) if by_ttl else settings.refresh
    return min(wait, max(settings.stale_after / 2, settings.ttl_floor))


def in_use(name: Name, now: Seconds, settings: DnsSettings) -> tuple[str, ...]:
    """The addresses that count at `now`, the preferred family first."""
    usable: list[str] = []
    for kind in settings.family.kinds:
        held = name.held.get(kind, _NONE_HELD)
        if held.addresses and now < _end(held, settings):
            usable += held.addresses
            if settings.family in (Family.V6_FIRST, Family.V4_FIRST):
                break
    return tuple(usable)


def _end(held: _Held, settings: DnsSettings) -> Seconds:
    """When addresses that nobody confirms stop counting."""
    stale = math.inf if held.heard is None else held.heard + settings.stale_after
    return stale if held.emptied is None else min(stale, held.emptied + settings.empty_for)


def deadline(name: Name, now: Seconds, settings: DnsSettings) -> Seconds:
    """When something happens by itself: the next question, or the end of addresses in use."""
    ends = [_end(held, settings) for held in name.held.values() if held.addresses]
    return min([name.due, *(end for end in ends if end > now)])


def trouble(name: Name, now: Seconds, settings: DnsSettings) -> str:
    """What is wrong with the name, in words; empty where nothing is."""
    if not name.is_ready:
        return f"{name.host}: not answered yet"
    if not name.error:
        return ""
    kept = ": its last addresses serve on" if in_use(name, now, settings) else ""
    return f"{name.host}: {name.error}{kept}"
