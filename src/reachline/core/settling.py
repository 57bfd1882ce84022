"""Readings as the ledger takes them: calm figures are held still, so that a journal of healthy lines is nearly empty.

Where a round-trip figure is below every limit, its second digit decides nothing: one that stays near what was last taken is taken
to be that. So are the sizes of a window in which nothing failed. What was counted since the last heartbeat, and everything that
failed or was lost, is exact always. The ledger judges what the journal keeps, so a replay sees the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from reachline.core.zone import Calm
from reachline.model import Counts, Kind, LineId, Reading, VantageId

__all__ = ["NEAR", "NEAR_MEAN", "Settling", "by_line", "held"]

NEAR: Final = 4
"""P50, P95 and a window's sizes are held within one part of so many: their noise from heartbeat to heartbeat is a tenth."""
NEAR_MEAN: Final = 2
"""EWMA and jitter, which are twice as restless, within this one."""
_LOST, _ANSWERED, _FRESH, _COVERED, _VOID = map(
    Reading._fields.index, ("lost", "answered", "fresh_ok", "covered_ms", "void")
)

_Figures = tuple[int | None, int | None, int | None, int | None]


def by_line(readings: Iterable[tuple[LineId, Reading]]) -> Iterator[tuple[LineId, tuple[Reading, ...]]]:
    """Each line with its kinds, which stand next to each other."""
    known: LineId | None = None
    kinds: tuple[Reading, ...] = ()
    for line, reading in readings:
        if line is known or line == known:
            kinds += (reading,)
            continue
        if known is not None:
            yield known, kinds
        known, kinds = line, (reading,)
    if known is not None:
        yield known, kinds


class Settling:
    """What was last taken of each vantage, line and kind. Written by whoever feeds the ledger."""

    def __init__(self) -> None:
        self._taken: dict[tuple[VantageId, LineId, Kind], Reading] = {}

    def settled(
        self, vantage: VantageId, readings: Iterable[tuple[LineId, Reading]], calm: Calm
    ) -> tuple[tuple[LineId, Reading], ...]:
        """The same readings with their calm figures held still; `calm` are the limits that they are far from."""
        taken, found = self._taken, []
        for line, reading in readings:
            key = vantage, line, reading.kind
            last = taken.get(key)
            now = reading if last is None else held(reading, last, calm)
            if now is not last:
                taken[key] = now
            found.append((line, now))
        return tuple(found)

    def keep(self, lines: Collection[LineId], vantages: Collection[VantageId]) -> None:
        """Forget all other lines, and what all other vantages said."""
        taken = self._taken.items()
        self._taken = {key: reading for key, reading in taken if key[1] in lines and key[0] in vantages}


def held(now: Reading, last: Reading, calm: Calm) -> Reading:
    """`now` with what `last` says as well; `last` itself where that is all of it."""
    if now.void or last.void:
        return now
    sizes = _sizes(now, last)
    figures = _figures(now, last, calm)
    covered_ms, was_ms = now.covered_ms, last.covered_ms
    if -was_ms <= NEAR * (covered_ms - was_ms) <= was_ms:
        covered_ms = was_ms
    counts, sent, answered = sizes
    rest = (*now[_LOST:_ANSWERED], answered, *figures, *now[_FRESH:_COVERED], covered_ms, *now[_VOID:])
    found = Reading._make((now.kind, counts, sent, *rest))
    return last if found == last else found


def _sizes(now: Reading, last: Reading) -> tuple[Counts, int, int]:
    """Counts, packets sent and attempts answered; those of `last` where nothing failed, and never more than there is."""
    counts, was, sent, was_sent = now.counts, last.counts, now.sent, last.sent
    ok, was_ok, answered, was_answered = counts[0], was[0], now.answered, last.answered
    if (
        was_ok <= ok
        and was_sent <= sent
        and was_answered <= answered
        and NEAR * (ok - was_ok) <= was_ok
        and NEAR * (sent - was_sent) <= was_sent
        and NEAR * (answered - was_answered) <= was_answered
        and not (now.lost or last.lost)
        and sum(counts) == ok
        and sum(was) == was_ok
    ):
        return was, was_sent, was_answered
    return counts, sent, answered


def _figures(now: Reading, last: Reading, calm: Calm) -> _Figures:
    """EWMA, P50, P95 and jitter; those of `last` only where all of both are below the limits."""
    said = ewma, p50, p95, jitter = now.ewma_us, now.p50_us, now.p95_us, now.jitter_us
    was_ewma, was_p50, was_p95, was_jitter = last.ewma_us, last.p50_us, last.p95_us, last.jitter_us
    if ewma is None or p50 is None or p95 is None or jitter is None:
        return said
    if was_ewma is None or was_p50 is None or was_p95 is None or was_jitter is None:
        return said
    most_p95, most_ewma, most_jitter = calm
    if p95 >= most_p95 or was_p95 >= most_p95 or ewma >= most_ewma or was_ewma >= most_ewma:
        return said
    if jitter >= most_jitter or was_jitter >= most_jitter:
        return said
    if -was_ewma <= NEAR_MEAN * (ewma - was_ewma) <= was_ewma:
        ewma = was_ewma
    if -was_p50 <= NEAR * (p50 - was_p50) <= was_p50:
        p50 = was_p50
    if -was_p95 <= NEAR * (p95 - was_p95) <= was_p95:
        p95 = was_p95
    between = p95 - p50  # what jitter is where all answered, and what costs the journal nothing
    if between < most_jitter and -between <= NEAR_MEAN * (jitter - between) <= between:
        jitter = between
    return ewma, p50, p95, jitter
