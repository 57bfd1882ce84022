"""What became of a drill: where calls went and how they ended, before, during and after, and when it must not go on. Integers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from reachline.core import words
from reachline.core.orders import Order
from reachline.core.zone import wilson_at_least
from reachline.model import Change, Gate, Health, LineId, Scope

__all__ = [
    "NEWEST_MS",
    "SPAN_MS",
    "WATCH",
    "Counted",
    "Drilled",
    "Peak",
    "Span",
    "against",
    "during",
    "has_tripped",
    "is_risen",
    "summed",
]

WATCH: Final = "drill"
"""Who ends a drill that must not go on."""
SPAN_MS: Final = 60_000
"""Of the time before a drill, and after it: a minute of calls tells their usual rate of failures, and what a drill left behind."""
NEWEST_MS: Final = 10_000
"""A fault in the midst of a long drill must not be lost in all that went well before; as long as calls are evidence elsewhere."""
_SHORTEST_MS: Final = 4_000
"""Clients post once a second: what a line carries is told over several of their posts."""
_LEAST: Final = 50
"""Calls below which no rate is believed, as for the business's word."""
_SURE_MILLI: Final = 2_576
"""z of the one-sided Wilson bound, 99.5 %: a drill looks every tick, and a false alarm at each look would add up."""
_MOVED_MILLI: Final = 10
"""The traffic has moved once at most this share of the calls is left on the lines, in 1/1000…"""
_MOVED_OF: Final = 20
"""…of at least so many calls."""


class Counted(NamedTuple):
    """Calls of a cluster over a time: how many, how many failed (or were late, or answered by an error), how many on drilled lines."""

    ms: int = 0
    calls: int = 0
    bad: int = 0
    on: int = 0

    def plus(self, other: Counted) -> Counted:
        """Both."""
        return Counted(*map(sum, zip(self, other, strict=True)))


class Peak(NamedTuple):
    """The fullest that any other line was: calls a second in 1/1000, and what it can carry."""

    line: LineId
    rate_milli: int
    capacity: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Drilled:
    """One drill in one cluster, as far as it has come. Times are ms since the journal's epoch, `moved_ms` since the order."""

    scope: Scope
    order: Order
    lines: frozenset[LineId]
    before: Counted = Counted()
    during: Counted = Counted()
    newest: Counted = Counted()
    moved_ms: int | None = None
    """When the traffic had moved, None: it has not…"""
    moved: Counted = Counted()
    """…and the calls of the drill from then on."""
    after: Counted = Counted()
    peak: Peak | None = None
    """None while no other line has a known capacity."""
    tripped: tuple[tuple[LineId, str], ...] = ()
    """Other lines that were found failed during it, and by which rule."""
    ended_ms: int | None = None
    ended_by: str = ""
    """Empty: its time was over."""
    why: str = ""

    @property
    def is_aborted(self) -> bool:
        """Whether it was ended by its own rule."""
        return self.ended_by == WATCH


def is_risen(before: Counted, seen: Counted, margin_milli: int) -> bool:
    """Whether calls surely fail by more than the margin more often than before; few calls are sure of nothing."""
    usual = -(-1_000 * before.bad // before.calls) if before.calls else 0
    limit = usual + margin_milli
    return seen.calls >= _LEAST and limit < 1_000 and wilson_at_least(seen.bad, seen.calls, limit, _SURE_MILLI)


def has_tripped(change: Change) -> bool:
    """Whether the decision found a line failed, by no operator's and no drill's doing; one that the guard holds is found too."""
    before, after = change.before, change.after
    is_new = after.health is Health.UNHEALTHY and before.health is not Health.UNHEALTHY
    is_out = after.gate is Gate.OPEN and before.gate is not Gate.OPEN
    return (is_new or is_out) and not change.rule.startswith(("operator.", "drill."))


class Span(NamedTuple):
    """Calls of a cluster between two ticks: all by line, and how many of them failed."""

    at_ms: int
    ms: int
    by_line: Mapping[LineId, int]
    calls: int
    bad: int

    def counted(self, lines: frozenset[LineId]) -> Counted:
        """Summed; `lines` are the drilled ones."""
        return Counted(self.ms, self.calls, self.bad, sum(self.by_line.get(line, 0) for line in lines))


def summed(counted: Iterable[Counted]) -> Counted:
    """All of them together."""
    found = Counted()
    for one in counted:
        found = found.plus(one)
    return found


def during(one: Drilled, span: Span, newest_of: Sequence[Span], capacities: Mapping[LineId, int]) -> Drilled:
    """The drill with one span more; `newest_of` are the newest of it, this one too."""
    counted = span.counted(one.lines)
    newest = summed(each.counted(one.lines) for each in newest_of)
    moved_ms = one.moved_ms
    if moved_ms is None and counted.calls >= _MOVED_OF and 1_000 * counted.on <= _MOVED_MILLI * counted.calls:
        moved_ms = span.at_ms - one.order.since_ms
    return replace(
        one,
        during=one.during.plus(counted),
        newest=newest,
        moved_ms=moved_ms,
        moved=one.moved if moved_ms is None else one.moved.plus(counted),
        peak=_fullest(one, newest_of, newest.ms, capacities),
    )


def _fullest(one: Drilled, spans: Sequence[Span], ms: int, capacities: Mapping[LineId, int]) -> Peak | None:
    """The fullest line so far; calls are summed over the newest spans, for posts of clients come in lumps."""
    best = one.peak
    for line, capacity in capacities.items() if ms >= _SHORTEST_MS else ():
        rate = 1_000_000 * sum(span.by_line.get(line, 0) for span in spans) // ms
        if line not in one.lines and rate and (best is None or rate * best.capacity > best.rate_milli * capacity):
            best = Peak(line, rate, capacity, spans[-1].at_ms)
    return best


def against(one: Drilled) -> str:
    """Why the drill must not go on, or empty."""
    if one.tripped:
        line, rule = one.tripped[0]
        return f"{line} failed during it ({rule})"
    margin = one.order.margin_milli
    for seen, when in ((one.newest, "of late"), (one.during, "since it began")):
        if is_risen(one.before, seen, margin):
            now, was = words.percent(seen.bad, seen.calls), words.percent(one.before.bad, one.before.calls)
            more = words.percent(margin, 1_000)
            return f"{seen.bad} of {seen.calls} calls failed {when} ({now}), {was} before it; at most {more} more is allowed"
    return ""
