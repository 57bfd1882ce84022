"""What a line's round trip usually is, by itself: of a long haul, "slow" is a multiple of that.

Learns one figure a minute from the vantages' medians, keeps one an hour, and looks back on the same hour of seven days. It
learns from what is healthy only, so that a fault never becomes usual. A line that the limits call slow from its first hour on,
or for a whole week, is learnt from what loses and fails nothing. Integers; microseconds, and ms of the ledger's clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from reachline.core.rules import BaselineRules, Limit
from reachline.model import Reading, VantageId

__all__ = ["Heard", "Known", "heard", "is_clean", "learnt", "median", "moved", "pooled", "raised", "usual_us"]

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
_DAY: Final = 24
"""Hours."""
_KEPT: Final = 7 * _DAY
"""Hours looked back on: a week has each kind of day once."""
_MINUTES: Final = 15
"""Figures that an hour needs to count: a quarter of it was healthy."""
_ENOUGH: Final = 3
"""Hours that are to be known: of the same hour of the day, or until then of any."""
_CLEAN: Final = 50
"""Of so many attempts or packets one may fail or be lost: 2 %, what a healthy long haul loses."""
_RAISED: Final = frozenset({"p95", "ewma"})
_SPREAD: Final = "jitter"
_MILLI: Final = 1_000


class Heard(NamedTuple):
    """One vantage's newest median of a line by one kind, whether nothing failed by it, and when that was said."""

    p50_us: int
    is_clean: bool
    at_ms: int


class Known(NamedTuple):
    """What is known of one line by one kind."""

    hours: tuple[tuple[int, int], ...] = ()
    """Hours since the clock began and their medians, oldest first…"""
    minute: int = -1
    """…the newest minute that gave a figure…"""
    figures: tuple[int, ...] = ()
    """…and those of its hour so far."""
    well: int = -1
    """The newest minute of them that was healthy."""


def heard(reading: Reading, now_ms: int) -> Heard | None:
    """What a reading says of the usual; None where it says nothing."""
    if reading.void or reading.p50_us is None:
        return None
    return Heard(reading.p50_us, is_clean(reading), now_ms)


def is_clean(reading: Reading) -> bool:
    """Whether next to nothing of it failed or was lost: however slow it is, that is how it is."""
    counts = reading.counts
    return _CLEAN * (counts.attempts - counts.ok) <= counts.attempts and _CLEAN * reading.lost <= reading.sent


def pooled(said: Mapping[VantageId, Heard], now_ms: int, fresh_ms: int) -> tuple[int, bool] | None:
    """The median of the fresh vantages' medians, and whether all of them are clean; None where nobody is fresh."""
    fresh = [one for one in said.values() if now_ms - one.at_ms <= fresh_ms]
    return (median([one.p50_us for one in fresh]), all(one.is_clean for one in fresh)) if fresh else None


def learnt(known: Known, found: tuple[int, bool], *, is_well: bool, now_ms: int) -> Known:
    """With one more figure, where it is the first of its minute and there is reason to take it for usual.

    `is_well`: the line was judged healthy. `found` is what `pooled` says.
    """
    minute = now_ms // MINUTE_MS
    p50_us, was_clean = found
    if minute == known.minute or not (is_well or (was_clean and _is_slow_by_nature(known, now_ms))):
        return known
    hour = minute * MINUTE_MS // HOUR_MS
    if known.minute * MINUTE_MS // HOUR_MS != hour:
        known = _turned(known, hour)
    return known._replace(minute=minute, figures=(*known.figures, p50_us), well=minute if is_well else known.well)


def _is_slow_by_nature(known: Known, now_ms: int) -> bool:
    """Not once healthy in a week, and nothing usual known: no fault lasts that long, and no other limits would ever come."""
    lasted = known.well < 0 or now_ms // MINUTE_MS - known.well > _KEPT * HOUR_MS // MINUTE_MS
    return lasted and usual_us(known, now_ms) is None


def _turned(known: Known, hour: int) -> Known:
    """An hour is over: it becomes one figure, if it has enough of them, and what is older than a week goes."""
    hours = known.hours
    if len(known.figures) >= _MINUTES:
        hours = (*hours, (known.minute * MINUTE_MS // HOUR_MS, median(known.figures)))
    return known._replace(hours=tuple(one for one in hours if one[0] >= hour - _KEPT), figures=())


def usual_us(known: Known, now_ms: int) -> int | None:
    """The median of this hour of the last seven days; of all their hours while too few are known; None while those are too few."""
    now = now_ms // HOUR_MS
    recent = [(hour, us) for hour, us in known.hours if now - _KEPT <= hour < now]
    same = [us for hour, us in recent if (now - hour) % _DAY == 0]
    found = same if len(same) >= _ENOUGH else [us for _, us in recent]
    return median(found) if len(found) >= _ENOUGH else None


def median(values: Sequence[int]) -> int:
    """The middle one, the lower of two."""
    return sorted(values)[(len(values) - 1) // 2]


def raised(limit_us: int | None, usual: int | None, milli: int) -> int | None:
    """A limit, or that multiple of the usual where it is higher. None: there is no limit, and none comes of it."""
    if limit_us is None or usual is None:
        return limit_us
    return max(limit_us, usual * milli // _MILLI)


def moved(limits: Iterable[Limit], usual: int | None, rules: BaselineRules) -> tuple[Limit, ...]:
    """The limits with P95 and EWMA no lower than the multiples, and jitter (P95 - P50) than what they leave above the median.

    Where one is left again moves in proportion.
    """
    if usual is None or not rules.degraded_milli:
        return tuple(limits)
    return tuple(_moved(limit, usual, rules) for limit in limits)


def _moved(limit: Limit, usual: int, rules: BaselineRules) -> Limit:
    if limit.metric not in _RAISED and limit.metric != _SPREAD:
        return limit
    less = _MILLI if limit.metric == _SPREAD else 0
    degraded = raised(limit.degraded_enter, usual, rules.degraded_milli - less)
    failed = raised(limit.failed_enter, usual, rules.failed_milli - less)
    return limit._replace(
        degraded_enter=degraded,
        degraded_exit=_in_proportion(limit.degraded_exit, limit.degraded_enter, degraded),
        failed_enter=failed,
        failed_exit=_in_proportion(limit.failed_exit, limit.failed_enter, failed),
    )


def _in_proportion(leave: int | None, before: int | None, after: int | None) -> int | None:
    return leave if leave is None or not before or after is None else leave * after // before
