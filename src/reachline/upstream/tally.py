"""Calls summed per line and trial window until they are taken away, so that a million calls a second are one row."""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

from reachline.model import LineId, Outcome, Seconds
from reachline.upstream.outcome import PACES, Column

__all__ = ["ROWS_MOST", "Tally", "Totals"]

ROWS_MOST: Final = 10_000
"""Rows kept between two takes: ten times the lines a batch carries. Calls beyond are counted as dropped."""
_COLUMNS: Final = len(Column)
_WIDTH: Final = _COLUMNS + PACES
_OK, _NONE = int(Column.OK), int(Column.NONE)
_TIMED, _SLOW, _CRAWL = range(_COLUMNS, _WIDTH)


class Totals(NamedTuple):
    """Calls since the start, by how they ended; `unproven` says nothing of its line, `dropped` found no room, `shed` no line."""

    ok: int = 0
    failed: int = 0
    late: int = 0
    errors: int = 0
    unproven: int = 0
    dropped: int = 0
    shed: int = 0
    """Refused before a line was chosen, by the plan across regions."""
    retries: int = 0
    """Tries beyond the first of their call…"""
    unpaid: int = 0
    """…and those that the process's budget did not allow."""


class Tally:
    """Written by every caller's thread under `_lock`, which guards all of it; taken by the driver."""

    __slots__ = ("_busy", "_lock", "_over", "_retries", "_rows", "_shed", "_shed_taken", "_taken")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[tuple[LineId, int], list[int]] = {}
        self._taken = [0] * _WIDTH
        """Calls of rows that are gone, by column…"""
        self._over = [0] * _WIDTH
        """…and of those that found no room."""
        self._shed = self._shed_taken = 0
        self._retries = [0, 0]
        """Not paid, paid."""
        self._busy: Seconds = 0.0

    def add(
        self, line: LineId, window: int, column: Column, calls: int = 1, pace: int = 0, *, elapsed: Seconds = 0.0
    ) -> None:
        """One call more, or several that ended alike. `pace` of those that went well: `upstream.outcome.pace_of`."""
        key = (line, window)
        with self._lock:
            self._busy += elapsed
            row = self._rows.get(key)
            if row is None:
                row = self._new(key)
            row[column] += calls
            if pace:
                # Timed, slow, crawl: each is one of those before it.
                for place in range(_COLUMNS, _COLUMNS + pace):
                    row[place] += calls

    def well(self, line: LineId, window: int, elapsed: Seconds, pace: int) -> None:
        """One call more that went well: `add`, on the way of every call."""
        # By `with`, dear as it is: between an `acquire` by hand and its `try` a signal's exception would leave it locked for good.
        with self._lock:
            self._busy += elapsed
            row = self._rows.get((line, window))
            if row is None:
                row = self._new((line, window))
            row[_OK] += 1
            if pace:
                row[_TIMED] += 1
                row[_SLOW] += pace > 1
                row[_CRAWL] += pace == PACES

    def add_timed(self, line: LineId, window: int, calls: int, slow: int, crawl: int) -> None:
        """Several calls that went well, of which so many were slow; of those, so many crawled."""
        key = (line, window)
        with self._lock:
            row = self._rows.get(key)
            if row is None:
                row = self._new(key)
            row[_OK] += calls
            row[_TIMED] += calls
            row[_SLOW] += slow
            row[_CRAWL] += crawl

    def take(self, service: str) -> tuple[Outcome, ...]:
        """What was added since the last take, and nothing of it twice. Calls that prove nothing are left out."""
        with self._lock:
            rows, self._rows = self._rows, {}
            self._taken = _sums([self._taken, *rows.values()])
        return tuple(
            [
                Outcome._make((line, service, window, *row[:_NONE], *row[_COLUMNS:]))
                for (line, window), row in rows.items()
                if any(row[:_NONE])
            ]
        )

    def pending(self, line: LineId, window: int) -> int:
        """Calls on the line in this window that were not taken yet."""
        with self._lock:
            return sum(self._rows.get((line, window), ())[:_NONE])

    def shed(self) -> None:
        """One call that was refused."""
        with self._lock:
            self._shed += 1

    def take_shed(self) -> int:
        """Calls refused since the last take."""
        with self._lock:
            taken, self._shed_taken = self._shed - self._shed_taken, self._shed
        return taken

    def take_busy(self) -> Seconds:
        """How long the calls took together that ended since the last time."""
        with self._lock:
            taken, self._busy = self._busy, 0.0
        return taken

    def retried(self, *, is_paid: bool) -> None:
        """One more try of a call, made or forbidden."""
        with self._lock:
            self._retries[is_paid] += 1

    def totals(self) -> Totals:
        """All calls so far, taken or not."""
        with self._lock:
            ok, failed, late, errors, unproven, *_ = _sums([self._taken, self._over, *self._rows.values()])
            dropped, (unpaid, retries) = sum(self._over[: Column.NONE]), self._retries
            return Totals(ok, failed, late, errors, unproven, dropped, self._shed, retries, unpaid)

    def _new(self, key: tuple[LineId, int]) -> list[int]:
        if len(self._rows) >= ROWS_MOST:
            return self._over
        row = self._rows[key] = [0] * _WIDTH
        return row


def _sums(rows: list[list[int]]) -> list[int]:
    return list(map(sum, zip(*rows, strict=True)))
