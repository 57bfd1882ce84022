"""Two courses of decisions over the same evidence, held against each other and against what hindsight says was at fault.

A course is what was published of each line, change by change. Nothing here judges; times are ms, shares millionths.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from heapq import merge
from itertools import chain, pairwise
from typing import Final, NamedTuple

from reachline.core.hindsight import Fault
from reachline.model import Change, Gate, Health, LineId, Standing

__all__ = ["BEFORE_MS", "Course", "Sum", "acted_ms", "is_false", "moved_ms", "summed", "trips"]

BEFORE_MS: Final = 60_000
AFTER_MS: Final = 30_000
"""A trip this soon after a fault, or this shortly before one, was no false one."""
_ONE: Final = 1_000_000
_FINE: Final = 10**18
"""What a point of weight is worth, in so small parts: a division at each change, and nothing lost that shows."""


class _Point(NamedTuple):
    at_ms: int
    weight: int
    gate: Gate
    health: Health
    rule: str


class Sum(NamedTuple):
    """What a course came to for one line."""

    opens: int = 0
    false_opens: int = 0
    degrades: int = 0
    open_ms: int = 0
    degraded_ms: int = 0
    traffic_ms: int = 0
    """Its share of its cluster's traffic, summed: 60 000 are a minute of all of it."""
    first_ms: int | None = None
    """Of its first cut."""


class Course:
    """What was published of each line of a scope, from a beginning on."""

    def __init__(self, standings: Iterable[Standing], from_ms: int) -> None:
        self.from_ms = from_ms
        self.points: dict[LineId, list[_Point]] = {}
        self.begin(standings, from_ms)

    def begin(self, standings: Iterable[Standing], at_ms: int) -> None:
        """All lines as they stand at `at_ms`; lines that are not among them carry nothing from then on."""
        standing = {one.line: one for one in standings}
        for line in self.points.keys() - standing.keys():
            self._put(line, _Point(at_ms, 0, Gate.CLOSED, Health.UNKNOWN, ""))
        for line, one in standing.items():
            self._put(line, _Point(at_ms, one.weight, one.gate, one.health, one.reason))

    def changed(self, changes: Iterable[Change]) -> None:
        """What one tick decided."""
        for change in changes:
            after = change.after
            self._put(change.line, _Point(change.at_ms, after.weight, after.gate, after.health, change.rule))

    def _put(self, line: LineId, point: _Point) -> None:
        points = self.points.setdefault(line, [])
        if not points or points[-1][1:4] != point[1:4]:
            points.append(point)


def trips(course: Course) -> tuple[tuple[int, LineId, str], ...]:
    """Every opening of a closed line: when, which, by which rule. A trial that fails is no new one."""
    found = []
    for line, points in course.points.items():
        for before, after in pairwise(points):
            if after.gate is Gate.OPEN and before.gate is Gate.CLOSED:
                found.append((after.at_ms, line, after.rule))
    return tuple(sorted(found))


def is_false(line: LineId, at_ms: int, faults: Sequence[Fault]) -> bool:
    """Whether hindsight knows no fault of this line around that moment."""
    return not any(
        fault.line == line and fault.from_ms - AFTER_MS <= at_ms <= fault.until_ms + BEFORE_MS for fault in faults
    )


def acted_ms(course: Course, fault: Fault) -> int | None:
    """How long after a fault's beginning the line had at most half of the weight it had then; None: not before its end.

    0 where it carried nothing at the beginning.
    """
    points = course.points.get(fault.line, [])
    index = bisect_right([point.at_ms for point in points], fault.from_ms) - 1
    begun = points[index].weight if index >= 0 else 0
    if not begun:
        return 0
    for point in points[index + 1 :]:
        if point.at_ms > fault.until_ms:
            return None
        if 2 * point.weight <= begun:
            return point.at_ms - fault.from_ms
    return None


def summed(course: Course, until_ms: int, faults: Sequence[Fault]) -> dict[LineId, Sum]:
    """Each line's course in numbers."""
    carried = _carried(course, until_ms)
    opened = trips(course)
    found = {}
    for line, points in course.points.items():
        ends = [*(point.at_ms for point in points[1:]), until_ms]
        lasting = [(point, end - point.at_ms) for point, end in zip(points, ends, strict=True)]
        own = [at_ms for at_ms, which, _ in opened if which == line]
        pairs = list(pairwise(points))
        found[line] = Sum(
            opens=len(own),
            false_opens=sum(is_false(line, at_ms, faults) for at_ms in own),
            degrades=sum(
                after.health is Health.DEGRADED and before.health is Health.HEALTHY for before, after in pairs
            ),
            open_ms=sum(span for point, span in lasting if point.gate is Gate.OPEN),
            degraded_ms=sum(span for point, span in lasting if point.health is Health.DEGRADED),
            traffic_ms=carried.get(line, 0) // _ONE,
            first_ms=next((after.at_ms for before, after in pairs if after.weight < before.weight), None),
        )
    return found


def _carried(course: Course, until_ms: int) -> dict[LineId, int]:
    """Each line's share, millionths, times ms. A weight counts by what one point was worth meanwhile, which all lines share."""
    worth, moments, sums = 0, [course.from_ms], [0]
    total, last_ms = 0, course.from_ms
    for at_ms, _, before, after in _moves(course):
        if at_ms > last_ms:
            worth += _FINE * (at_ms - last_ms) // total if total else 0
            last_ms = at_ms
            moments.append(at_ms)
            sums.append(worth)
        total += after - before
    moments.append(until_ms)
    sums.append(worth + (_FINE * (until_ms - last_ms) // total if total else 0))
    at = dict(zip(moments, sums, strict=True))
    found = {}
    for line, points in course.points.items():
        ends = [*(point.at_ms for point in points[1:]), until_ms]
        parts = (point.weight * (at[end] - at[point.at_ms]) for point, end in zip(points, ends, strict=True))
        found[line] = sum(parts) // (_FINE // _ONE)
    return found


def moved_ms(one: Course, other: Course, until_ms: int) -> int:
    """Traffic that goes over other lines in `other` than in `one`: a cluster's whole traffic for so long."""
    moves = merge(((*move, 0) for move in _moves(one)), ((*move, 1) for move in _moves(other)))
    weights: tuple[dict[LineId, int], dict[LineId, int]] = ({}, {})
    found, last_ms = 0, one.from_ms
    for at_ms, line, _, after, side in chain(moves, ((until_ms, LineId(""), 0, 0, 0),)):
        if at_ms > last_ms:
            found += _apart(*weights) * (at_ms - last_ms)
            last_ms = at_ms
        weights[side][line] = after
    return found // _ONE


def _apart(left: Mapping[LineId, int], right: Mapping[LineId, int]) -> int:
    """Millionths of traffic on other lines."""
    if left == right:
        return 0
    whole, other = sum(left.values()), sum(right.values())
    if not whole or not other:
        return _ONE if whole != other else 0
    lines = left.keys() | right.keys()
    return sum(abs(_ONE * left.get(line, 0) // whole - _ONE * right.get(line, 0) // other) for line in lines) // 2


def _moves(course: Course) -> list[tuple[int, LineId, int, int]]:
    """Every change of a weight: when, which line, before and after; from nothing at the beginning."""
    found = []
    for line, points in course.points.items():
        before = 0
        for point in points:
            found.append((point.at_ms, line, before, point.weight))
            before = point.weight
    return sorted(found)
