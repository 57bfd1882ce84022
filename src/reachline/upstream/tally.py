"""Calls summed per line and trial window until they are taken away, so that a million calls a second are one row."""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

from reachline.model import LineId, Outcome
from reachline.upstream.outcome import Column

__all__ = ["ROWS_MOST", "Tally", "Totals"]

ROWS_MOST: Final = 10_000
"""Rows kept between two takes: ten times the lines a batch carries. Calls beyond are counted as dropped."""


class Totals(NamedTuple):
    """Calls since the start, by how they ended; `unproven` says nothing of its line, `dropped` found no room."""

    ok: int = 0
    failed: int = 0
    late: int = 0
    errors: int = 0
    unproven: int = 0
    dropped: int = 0


class Tally:
    """Written by every caller's thread under `_lock`, which guards `_rows` and `_totals`; taken by the driver."""

    __slots__ = ("_lock", "_rows", "_totals")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[tuple[LineId, int], list[int]] = {}
        self._totals = [0] * len(Totals._fields)

    def add(self, line: LineId, window: int, column: Column) -> None:
        """One call more."""
        key = (line, window)
        with self._lock:
            self._totals[column] += 1
            row = self._rows.get(key)
            if row is None:
                row = self._new(key, column)
            row[column] += 1

    def take(self, service: str) -> tuple[Outcome, ...]:
        """What was added since the last take, and nothing of it twice. Calls that prove nothing are left out."""
        with self._lock:
            rows, self._rows = self._rows, {}
        return tuple(
            Outcome(line=line, service=service, window=window, ok=row[0], failed=row[1], late=row[2], errors=row[3])
            for (line, window), row in rows.items()
            if any(row[: Column.NONE])
        )

    def totals(self) -> Totals:
        """All calls so far, taken or not."""
        with self._lock:
            return Totals(*self._totals)

    def _new(self, key: tuple[LineId, int], column: Column) -> list[int]:
        row = [0] * len(Column)
        if len(self._rows) < ROWS_MOST:
            self._rows[key] = row
        elif column is not Column.NONE:
            self._totals[5] += 1
        return row
