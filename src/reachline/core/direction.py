"""Which way a fault lies between two agents whose clocks never agreed: loss by counting, delay by what moves and what does not.

One interval gives the lowest (received - sent) each way. The clocks' offset is in both with opposite signs, so their sum is free of
it: while the sum is at its base, both ways are, and the difference tells the clocks' drift. A rise of the sum is a real delay, and
what moved says which way it lies. A clock that steps moves both by as much in opposite directions and leaves the sum alone.

Integers only; knows no packet, socket or clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from reachline.core.zone import is_over, wilson_at_least

__all__ = ["INTERVALS", "LENGTH_MS", "LIMIT_US", "Finding", "Interval", "Way", "find"]

LENGTH_MS: Final = 5_000
"""Of an interval at the usual pace; a slower one makes all spans here as much longer."""
INTERVALS: Final = 180
"""Kept for a finding: a quarter of an hour. A rise is named until nine tenths of them have it: then it is the new base."""
_HORIZON_MS: Final = 40 * LENGTH_MS
"""Losses are counted this far back: 1 000 probes at five a second, of which 2 % are 20, and 9 are the least that name a way."""
_NEWEST: Final = 3
"""A rise must be in each of the newest intervals with an answer (15 s): one delayed burst is none."""
_RECENT_MS: Final = 6 * LENGTH_MS
"""Intervals older than that say nothing of now."""
_BASE: Final = 12
"""Intervals at the base that a baseline needs: a minute. With fewer, drift cannot be told from a rise."""
LIMIT_US: Final = 5_000
"""A rise below this is no fault that anybody's business notices…"""
_LIMIT_PART: Final = 10
"""…and neither is one below a tenth of the base round trip: long paths wander by that much."""
_UNREST: Final = 4
"""Nor is one below four times what the round trip moves by from one interval to the next: so a restless path always is."""
_DRIFT_PPB: Final = 1_000_000
"""Twice what NTP may slew a clock by (500 ppm). A difference that moves faster is no drift."""
_MOST_US: Final = 3_600_000_000
"""An hour: no path holds a datagram that long, a peer that lies may say so."""
_ENTER_MILLI, _EXIT_MILLI = 10, 5
"""Loss is named from 1 % on where its Wilson bound clears 0.5 %: the limits of `loss` and the gate that the judge has…"""
_SECURE_MILLI: Final = 2_576
"""…but at one in 200 rather than one in 20 (z of 99.5 %): it is looked at anew every five seconds, not once a heartbeat."""
_EVEN_MILLI, _WAY_MILLI = 500, 3_000
"""One way alone is named where more than half of all losses are its own, at one in 740 (three sigma): 9 to none, 12 to 1. With
less, a path that loses both ways would be named by the way that lost first."""
_LEAST: Final = 100
"""Probes below which no loss is named: two strays of 50 would pass the gate."""


class Way(IntEnum):
    """Where a fault lies, seen from the agent that asks: a set of the two ways, in bits."""

    NEITHER = 0
    FORWARD = 1
    REVERSE = 2
    BOTH = 3


class Interval(NamedTuple):
    """What one agent saw of another in a few seconds. Times are microseconds; the one-way ones hold an unknown offset."""

    at_ms: int
    """When it ended, on the asking agent's monotonic clock."""
    sent: int = 0
    """Probes whose way there is known…"""
    forward_lost: int = 0
    """…and those of them that did not arrive. May be -1 after a late one was taken for lost: sums come right."""
    replied: int = 0
    """Replies that left…"""
    reverse_lost: int = 0
    """…and those of them that did not come back."""
    forward_us: int | None = None
    """Lowest (received there - sent here)."""
    reverse_us: int | None = None
    """Lowest (received here - sent there)."""
    rtt_us: int | None = None
    """Median round trip without the other agent's own time."""
    void: bool = False
    """We were away or overrun ourselves: no evidence of the path."""


class Finding(NamedTuple):
    """What can be said for certain. A rise is None while there is no baseline; NEITHER means no fault, or not sure yet."""

    loss: Way = Way.NEITHER
    delay: Way = Way.NEITHER
    sent: int = 0
    forward_lost: int = 0
    replied: int = 0
    reverse_lost: int = 0
    forward_rise_us: int | None = None
    reverse_rise_us: int | None = None
    drift_ppb: int | None = None
    """How fast the other clock runs against ours."""
    stepped: bool = False
    """One of the clocks stepped within the intervals kept; what was before is not compared with."""


class _Clock(NamedTuple):
    """Half the difference of the two ways at the base: the clocks' offset and half the path's asymmetry, as a line."""

    origin_ms: int
    offset_us: int
    drift_ppb: int

    def at(self, at_ms: int) -> int:
        return self.offset_us + self.drift_ppb * (at_ms - self.origin_ms) // 1_000_000


class _Point(NamedTuple):
    at_ms: int
    forward: int
    reverse: int
    total: int
    """Free of the clocks."""
    offset: int
    """Half the difference: the clocks, while both ways are at their base."""


def find(intervals: Sequence[Interval], now_ms: int, *, held: Way = Way.NEITHER, length_ms: int = LENGTH_MS) -> Finding:
    """What the intervals (oldest first, each `length_ms`) say at `now_ms`. `held` is the loss found before: it stays until its exit."""
    longer = max(length_ms, LENGTH_MS)
    counted = [one for one in intervals if not one.void and one.at_ms > now_ms - _HORIZON_MS * longer // LENGTH_MS]
    sent, replied = sum(one.sent for one in counted), sum(one.replied for one in counted)
    forward = min(max(sum(one.forward_lost for one in counted), 0), sent)
    reverse = min(max(sum(one.reverse_lost for one in counted), 0), replied)
    loss = _lossy(forward, sent, reverse, replied, held=held)
    found = Finding(loss, Way.NEITHER, sent, forward, replied, reverse)
    points, stepped = _since_step(_points(intervals))
    return _delayed(found._replace(stepped=stepped), points, now_ms - _RECENT_MS * longer // LENGTH_MS)


def _lossy(forward: int, sent: int, reverse: int, replied: int, *, held: Way) -> Way:
    """The way that loses, once it is certain that it does and, of one alone, that it loses more than the other.

    One that is held alone stays while the other loses next to nothing.
    """
    there = _is_lossy(forward, sent, held=bool(held & Way.FORWARD))
    back = _is_lossy(reverse, replied, held=bool(held & Way.REVERSE))
    way = Way(Way.FORWARD * there | Way.REVERSE * back)
    if way in (Way.NEITHER, Way.BOTH):
        return way
    more, less, of = (forward, reverse, replied) if there else (reverse, forward, sent)
    if held & way and 1_000 * less < _EXIT_MILLI * of:
        return way
    return way if wilson_at_least(more, forward + reverse, _EVEN_MILLI, _WAY_MILLI) else Way.NEITHER


def _is_lossy(lost: int, of: int, *, held: bool) -> bool:
    if of < _LEAST:
        return False
    return is_over(lost, of, level=_ENTER_MILLI, leave=_EXIT_MILLI, held=held, z_milli=_SECURE_MILLI)


def _points(intervals: Sequence[Interval]) -> list[_Point]:
    return [
        _Point(one.at_ms, there := one.forward_us, back := one.reverse_us, there + back, (there - back) // 2)
        for one in intervals
        if not one.void and one.forward_us is not None and one.reverse_us is not None
    ]


def _since_step(points: list[_Point]) -> tuple[list[_Point], bool]:
    """The points since a clock last stepped, and whether one did. Its interval has a way of before: hence the last but one too."""
    begin = 0
    for at in range(1, len(points)):
        for before in range(max(at - 2, begin), at):
            # Most differences are far below any limit: the rest of the rule is asked seldom.
            if abs(points[at].offset - points[before].offset) > LIMIT_US and _is_step(points[before], points[at]):
                begin = at
    return points[begin:], begin > 0


def _is_step(before: _Point, after: _Point) -> bool:
    limit = _limit(before.total)
    moved = abs(after.offset - before.offset) - _DRIFT_PPB * (after.at_ms - before.at_ms) // 1_000_000
    return moved > limit and abs(after.total - before.total) <= limit // 2


def _limit(round_trip: int) -> int:
    return max(LIMIT_US, round_trip // _LIMIT_PART)


def _delayed(found: Finding, points: Sequence[_Point], since_ms: int) -> Finding:
    """The finding with what the lowest delays say; what was before `since_ms` is not now."""
    newest = [point for point in points[-_NEWEST:] if point.at_ms >= since_ms]
    base = _at_base(points) if len(points) >= _BASE else []
    if len(base) < _BASE or len(newest) < _NEWEST:
        return found
    unrest = _median([abs(later.total - one.total) for later, one in zip(points[1:], points, strict=False)])
    limit = max(_limit(sum(point.total for point in base) // len(base)), _UNREST * unrest)
    clock = _clock(base)
    if abs(clock.drift_ppb) > _DRIFT_PPB:
        return found
    found = found._replace(drift_ppb=clock.drift_ppb)
    if not _holds(clock, base, newest[-1].at_ms, limit):
        return found
    forward = min(point.forward - clock.at(point.at_ms) for point in newest)
    reverse = min(point.reverse + clock.at(point.at_ms) for point in newest)
    there = forward - _median([point.forward - clock.at(point.at_ms) for point in base])
    back = reverse - _median([point.reverse + clock.at(point.at_ms) for point in base])
    if max(abs(there), abs(back)) > _MOST_US:
        return found
    return found._replace(delay=_risen(there, back, limit), forward_rise_us=there, reverse_rise_us=back)


def _at_base(points: Sequence[_Point]) -> list[_Point]:
    """Those whose round trip is at its base: a low tenth of all, the lowest left out (it may hold a clock's step)."""
    base = sorted(point.total for point in points)[max(1, len(points) // 10)]
    near = _limit(base) // 2
    return [point for point in points if abs(point.total - base) <= near]


def _clock(base: Sequence[_Point]) -> _Clock:
    """Median of slopes between points half of all apart: what a fifth of wrong points cannot bend."""
    half = len(base) // 2
    slopes = [
        (later.offset - earlier.offset) * 1_000_000 // max(later.at_ms - earlier.at_ms, 1)
        for earlier, later in zip(base, base[half:], strict=False)
    ]
    drift, origin = _median(slopes), base[half].at_ms
    offsets = [point.offset - drift * (point.at_ms - origin) // 1_000_000 for point in base]
    return _Clock(origin, _median(offsets), drift)


def _holds(clock: _Clock, base: Sequence[_Point], now_ms: int, limit: int) -> bool:
    """Whether the clocks are known well enough now: their scatter, carried on as far as the base is behind, is well below a rise."""
    scatter = _median([abs(point.offset - clock.at(point.at_ms)) for point in base])
    span = max(base[-1].at_ms - base[0].at_ms, 1)
    return scatter * (span + now_ms - base[-1].at_ms) <= limit // 4 * span


def _risen(there: int, back: int, limit: int) -> Way:
    """By limits, with a gap between risen and not: a way that is in it, or that fell, leaves it open whose rise it is."""
    calm = range(-(limit // 2), limit // 2 + 1)
    if there >= limit and back >= limit:
        return Way.BOTH
    if there >= limit and back in calm:
        return Way.FORWARD
    if back >= limit and there in calm:
        return Way.REVERSE
    return Way.NEITHER


def _median(values: Sequence[int]) -> int:
    return sorted(values)[len(values) // 2]
