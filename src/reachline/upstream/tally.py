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
    """Written by every caller's thread under `_lock`, which guards all of it; taken by the driver."""

    __slots__ = ("_lock", "_over", "_rows", "_taken")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[tuple[LineId, int], list[int]] = {}
        self._taken = [0] * len(Column)
        """Calls of rows that are gone, by column…"""
        self._over = [0] * len(Column)
        """…and of those that found no room."""

    def add(self, line: LineId, window: int, column: Column, calls: int = 1) -> None:
        """One call more, or several that ended alike."""
        key = (line, window)
        with self._lock:
            row = self._rows.get(key)
            if row is None:
                row = self._new(key)
            row[column] += calls

    def take(self, service: str) -> tuple[Outcome, ...]:
        """What was added since the last take, and nothing of it twice. Calls that prove nothing are left out."""
        with self._lock:
            rows, self._rows = self._rows, {}
            self._taken = _sums([self._taken, *rows.values()])
        return tuple(
            Outcome(line=line, service=service, window=window, ok=row[0], failed=row[1], late=row[2], errors=row[3])
            for (line, window), row in rows.items()
            if any(row[: Column.NONE])
        )

    def totals(self) -> Totals:
        """All calls so far, taken or not."""
        with self._lock:
            ok, failed, late, errors, unproven = _sums([self._taken, self._over, *self._rows.values()])
            return Totals(ok, failed, late, errors, unproven, dropped=sum(self._over[: Column.NONE]))

    def _new(self, key: tuple[LineId, int]) -> list[int]:
        if len(self._rows) >= ROWS_MOST:
            return self._over
        row = self._rows[key] = [0] * len(Column)
        return row


def _sums(rows: list[list[int]]) -> list[int]:
    return [sum(column) for column in zip(*rows, strict=True)]
