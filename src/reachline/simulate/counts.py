"""How often: decisions, false ones among them, turns, overloads and bad calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from reachline.simulate.contender import Event, What
from reachline.simulate.ran import Ran
from reachline.simulate.still import base_shares

__all__ = ["COUNTS", "turns"]


def _weight(ran: Ran, event: Event) -> float:
    return 1.0 / len(ran.run.clients) if event.client else 1.0


def _counted(ran: Ran, what: What, *, truth: str = "") -> float:
    found = (one for one in ran.seen.events if one.what is what)
    is_truth = ran.seen.timeline.is_truth
    return sum(_weight(ran, one) for one in found if not truth or is_truth(one.line, one.at_ms, truth))


def _false_degrades(ran: Ran) -> float:
    if ran.told is None:
        return _counted(ran, What.CUT, truth="healthy") / ran.hours
    entries = ran.told.degraded()
    return sum(ran.seen.timeline.is_truth(line, at_ms, "healthy") for at_ms, line in entries) / ran.hours


def _decisions(ran: Ran) -> float:
    made = len(ran.told.changes) if ran.told is not None else sum(_weight(ran, one) for one in ran.seen.events)
    return made / ran.hours


def _reopened(ran: Ran) -> float:
    trying: set[tuple[str, str]] = set()
    count = 0.0
    for event in ran.seen.events:
        key = event.line, event.client
        if event.what is What.TRIAL:
            trying.add(key)
        elif event.what is What.OPEN and key in trying:
            trying.discard(key)
            count += _weight(ran, event)
        elif event.what is What.CLOSE:
            trying.discard(key)
    return count


def _flaps(ran: Ran) -> float:
    """Swings of more than 20 points against the one before, within 60 s of it."""
    full = base_shares(ran.run)
    count = 0
    for line in full:
        points = [(one.at_ms, 100 * one.shares[line] / full[line] if full[line] else 0.0) for one in ran.seen.seconds]
        count += turns(points)
    return count


def turns(points: Sequence[tuple[int, float]], *, points_least: float = 20.0, within_ms: int = 60_000) -> int:
    """Times that a series turns by more than `points_least` against a swing as large that ended no longer ago."""
    if not points:
        return 0
    count, heading, swung_ms = 0, 0, -(10**12)
    peak = trough = points[0]
    for at_ms, value in points:
        peak = max(peak, (at_ms, value), key=lambda point: point[1]) if heading >= 0 else peak
        trough = min(trough, (at_ms, value), key=lambda point: point[1]) if heading <= 0 else trough
        if heading >= 0 and peak[1] - value > points_least:
            count += heading > 0 and at_ms - swung_ms <= within_ms
            heading, swung_ms, trough = -1, at_ms, (at_ms, value)
        elif heading <= 0 and value - trough[1] > points_least:
            count += heading < 0 and at_ms - swung_ms <= within_ms
            heading, swung_ms, peak = 1, at_ms, (at_ms, value)
    return count


COUNTS: Final[Mapping[str, Callable[[Ran], float]]] = {
    "false_trips_per_h": lambda ran: _counted(ran, What.OPEN, truth="healthy") / ran.hours,
    "false_degrades_per_h": _false_degrades,
    "decisions_per_h": _decisions,
    "opens": lambda ran: _counted(ran, What.OPEN),
    "line_trips": lambda ran: _counted(ran, What.OPEN),
    "false_close": lambda ran: _counted(ran, What.CLOSE, truth="down"),
    "reopen": _reopened,
    "flaps": _flaps,
    "overload_peak": lambda ran: max((max(one.used.values()) for one in ran.seen.seconds), default=0.0),
    "overload_s": lambda ran: float(
        sum(
            used > ran.seen.scenario.capacity_model.knee + 1e-6
            for one in ran.seen.seconds
            for used in one.used.values()
        )
    ),
    "bad_requests": lambda ran: max(0, ran.seen.sums.bad - ran.oracle.bad) / max(1.0, ran.seen.sums.wanted),
}
