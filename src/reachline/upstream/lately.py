"""How the newest calls on each line ended in this process: whether failures in a row are many among them, or chance on a busy line.

Two calls of a busy line fail one after the other every minute though nothing is wrong with it; an outage fails most of twenty.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from reachline.core.local import is_often
from reachline.core.rules import LocalRules
from reachline.model import LineId, Outcome
from reachline.upstream.listing import Pick
from reachline.upstream.outcome import Column
from reachline.upstream.tally import Tally

__all__ = ["NEWEST", "SPAN_MS", "Lately"]

NEWEST: Final = 20
"""Calls that are looked back on…"""
SPAN_MS: Final = 10_000
"""…none of them older than this: as far back as the center looks."""
_FAILURES: Final = (Column.FAILED, Column.LATE)
"""Of the transport. An answer with an error is an answer."""


class _Failing:
    """One line's newest failures, each by how many calls had ended by then and when; and the calls of former takes."""

    __slots__ = ("marks", "taken")

    def __init__(self) -> None:
        self.marks: deque[tuple[int, int]] = deque(maxlen=NEWEST)
        self.taken = 0


class Lately:
    """Written under its cluster's lock. A line on which nothing failed for a while costs nothing but its calls' sum."""

    __slots__ = ("_failing", "_spans")

    def __init__(self) -> None:
        self._failing: dict[LineId, _Failing] = {}
        self._spans: deque[tuple[int, dict[LineId, int]]] = deque()
        """Calls on each line by take, and when that was, as far back as any counts."""

    def took(self, rows: Iterable[Outcome], now_ms: int) -> None:
        """These calls were taken from the tally."""
        span: dict[LineId, int] = {}
        for row in rows:
            span[row.line] = span.get(row.line, 0) + row.ok + row.failed + row.late + row.errors
        self._spans.append((now_ms, span))
        while self._spans[0][0] <= now_ms - SPAN_MS:
            self._spans.popleft()
        for line, failing in list(self._failing.items()):
            failing.taken += span.get(line, 0)
            if failing.marks[-1][1] <= now_ms - SPAN_MS:
                del self._failing[line]

    def is_often(self, pick: Pick, column: Column, tally: Tally, now_ms: int, rules: LocalRules) -> bool:
        """Whether failures are many among the newest calls on this line, after one more that `tally` holds already."""
        if column not in _FAILURES or not rules.share_milli:
            return True
        pending, since = tally.pending(pick.line, pick.window), now_ms - SPAN_MS
        failing = self._failing.setdefault(pick.line, _Failing())
        number = failing.taken + pending
        failing.marks.append((number, now_ms))
        known = pending + sum(span.get(pick.line, 0) for at_ms, span in self._spans if at_ms > since)
        calls = max(1, min(NEWEST, known))
        failed = sum(at_ms > since and number - at < calls for at, at_ms in failing.marks)
        return is_often(failed, calls, rules)
