"""The client's own breaker: two transport failures in a row take a line out here, before any center knows.

Pure, integer milliseconds of whatever monotonic clock the caller keeps. Refuses to know how weights follow from it
(`core.regroup` does that) and what a call is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from reachline.core.rules import LocalRules
from reachline.model import Gate, LineId

__all__ = [
    "UNTRIED",
    "LocalBreaker",
    "abandoned",
    "claim",
    "deadline",
    "failed",
    "is_blocked",
    "is_forgotten",
    "is_often",
    "is_ready",
    "may_trip",
    "succeeded",
    "wait_ms",
]

_DOUBLINGS_MOST: Final = 20
"""2**20 times any wait above a millisecond is past every cap; keeps the shift small after weeks of failing trials."""


class LocalBreaker(NamedTuple):
    """One line's breaker in one client. OPEN refuses, HALF_OPEN has its one trial in flight; RAMP is not used here."""

    gate: Gate = Gate.CLOSED
    failures: int = 0
    """In a row, while closed."""
    trips: int = 0
    """Openings without a lasting return: the wait is doubled once less than this."""
    until_ms: int = 0
    """OPEN: a trial may start. HALF_OPEN: the trial counts as lost. CLOSED: a new trip still doubles until here."""
    generation: int = 0
    """Counts trips: a call that began before the last one says nothing about now."""
    proven: bool = False
    """Its trial passed while the center, silent, still holds the line open."""


UNTRIED: Final = LocalBreaker()
"""Nothing to remember of a line: what a missing row means."""


def wait_ms(trips: int, rules: LocalRules) -> int:
    """How long a line stays out after its `trips`-th opening in a row: doubled each time, up to the cap."""
    return min(rules.open_ms << min(max(trips - 1, 0), _DOUBLINGS_MOST), rules.open_cap_ms)


def failed(row: LocalBreaker, now_ms: int, rules: LocalRules, *, may_trip: bool) -> LocalBreaker:
    """After a transport failure or a timeout. `may_trip` False: it is counted, and the next failure asks again."""
    match row.gate:
        case Gate.CLOSED:
            failures = row.failures + 1
            if failures < rules.failures or not may_trip:
                return row._replace(failures=failures)
            # A relapse within the last wait is the same illness: the wait goes on doubling.
            return _opened(row, now_ms, row.trips + 1 if now_ms < row.until_ms else 1, rules)
        case Gate.HALF_OPEN:
            return _opened(row, now_ms, row.trips + 1, rules)
        case Gate.OPEN | Gate.RAMP:
            return row


def succeeded(row: LocalBreaker, now_ms: int, rules: LocalRules, *, proven: bool = False) -> LocalBreaker:
    """After an answer of any kind, a server error included: the transport works."""
    match row.gate:
        case Gate.CLOSED:
            return row._replace(failures=0)
        case Gate.HALF_OPEN:
            until_ms = now_ms + wait_ms(row.trips, rules)
            return LocalBreaker(trips=row.trips, until_ms=until_ms, generation=row.generation, proven=proven)
        case Gate.OPEN | Gate.RAMP:
            return row


def abandoned(row: LocalBreaker, now_ms: int) -> LocalBreaker:
    """After a call that proves nothing (cancelled, a fault of the caller's own): a trial is free again at once."""
    return row._replace(gate=Gate.OPEN, until_ms=now_ms) if row.gate is Gate.HALF_OPEN else row


def claim(row: LocalBreaker, now_ms: int, rules: LocalRules) -> LocalBreaker:
    """The one trial is in flight. A trial that never reports is lost after the longest wait, then another may start."""
    return row._replace(gate=Gate.HALF_OPEN, until_ms=now_ms + rules.open_cap_ms)


def is_ready(row: LocalBreaker, now_ms: int) -> bool:
    """Whether one trial may start now."""
    return row.gate is not Gate.CLOSED and now_ms >= row.until_ms


def is_blocked(row: LocalBreaker, now_ms: int) -> bool:
    """Whether the line gets nothing now."""
    return row.gate is not Gate.CLOSED and now_ms < row.until_ms


def is_forgotten(row: LocalBreaker, now_ms: int) -> bool:
    """Whether there is nothing left to remember."""
    return row.gate is Gate.CLOSED and not row.failures and not row.proven and now_ms >= row.until_ms


def deadline(rows: Iterable[LocalBreaker], since_ms: int) -> int | None:
    """When a row first changes what a line gets without any call, later than `since_ms`; or None."""
    return min((row.until_ms for row in rows if row.until_ms > since_ms), default=None)


def may_trip(
    line: LineId, weights: Mapping[LineId, int], rows: Mapping[LineId, LocalBreaker], rules: LocalRules
) -> bool:
    """Whether one more line may be taken out here: at most a share of the cluster's lines, and never the last one.

    `weights` are the published ones of all lines. A line that the center already holds open carries nothing: it is no
    refuge, and taking it out costs nothing.
    """
    if not weights.get(line):
        return True
    out = {each for each, row in rows.items() if row.gate is not Gate.CLOSED and weights.get(each)}
    if (len(out) + 1) * 1_000 > len(weights) * rules.max_open_milli:
        return False
    return any(weight and each != line and each not in out for each, weight in weights.items())


def is_often(failed: int, calls: int, rules: LocalRules) -> bool:
    """Whether so many of a line's newest calls failed that those in a row among them are no chance."""
    return 1_000 * failed >= rules.share_milli * calls


def _opened(row: LocalBreaker, now_ms: int, trips: int, rules: LocalRules) -> LocalBreaker:
    return LocalBreaker(
        gate=Gate.OPEN,
        trips=trips,
        until_ms=now_ms + wait_ms(trips, rules),
        generation=row.generation + 1,
    )
