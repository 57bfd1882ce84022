"""How much traffic a scope is offered: calls a second seen in outcomes, smoothed, in steps. Pure integers; knows no line."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["NOTHING", "Offered", "counted", "told"]

_SMOOTH_MS: Final = 10_000
"""What was seen in this time weighs as much as all before it: fast enough for a surge, slow enough for a client's pause."""
_SHORTEST_MS: Final = 1_000
"""Clients post once a second: less says nothing."""
_STEP_MILLI: Final = 100
"""The level follows once it is off by a tenth: weights must not move with the noise of a count. A line filled to 0.85 of
its capacity stays below it then."""
_FINE_MILLI: Final = 10
"""By a hundredth it follows once in a while: the first look sees only a second or two, and its error must not stay…"""
_AGE_MS: Final = 60_000
"""…but a minute after it followed last, so that noise moves nothing more often."""


class Offered(NamedTuple):
    """Calls since the last look, and the rate; rates in 1/1000 call a second."""

    since_ms: int = 0
    """When it was looked at last; 0: never."""
    calls: int = 0
    rate: int = 0
    level: int = 0
    """The rate that decisions go by…"""
    level_ms: int = 0
    """…and when it followed last."""
    quiet_ms: int = 0
    """The newest look since `since_ms` that found no call: those that come after it are of all that time, or of what is left."""


NOTHING: Final = Offered()


def counted(row: Offered, calls: int) -> Offered:
    """With the calls of one report more."""
    since_ms, before, rate, level, level_ms, quiet_ms = row
    return Offered(since_ms, before + calls, rate, level, level_ms, quiet_ms)


def told(row: Offered, now_ms: int, tick_ms: int) -> Offered:
    """After a look, one a tick: silence is no evidence and keeps the rate, for clients that are cut off still call.

    Nobody knows whether what is reported after a silence was called in all that time, or in the newest part of it. The rate stays
    where it may be both, and falls by nothing but a look that there was time for: not by the first one of a center that was away.
    """
    if not row.since_ms:
        return Offered(now_ms)
    since_ms, calls, rate, level, level_ms, quiet_ms = row
    if not calls:
        return Offered(since_ms, 0, rate, level, level_ms, now_ms)
    newest = now_ms - max(since_ms, quiet_ms)
    if newest < _SHORTEST_MS:
        return row
    seen = _seen(row, now_ms, newest, is_late=newest > 2 * tick_ms)
    rate = rate + (seen - rate) * newest // (newest + _SMOOTH_MS) if rate else seen
    apart = _FINE_MILLI if now_ms - level_ms >= _AGE_MS else _STEP_MILLI
    if 1_000 * abs(rate - level) > apart * level:
        return Offered(now_ms, 0, rate, rate, now_ms)
    return Offered(now_ms, 0, rate, level, level_ms)


def _seen(row: Offered, now_ms: int, newest_ms: int, *, is_late: bool) -> int:
    """What these calls come to a second: of all rates that they may be, the nearest to the one known so far."""
    low, high = (row.calls * 1_000_000 // elapsed for elapsed in (now_ms - row.since_ms, newest_ms))
    if not row.rate:
        return high
    return max(low, row.rate if is_late else min(row.rate, high))
