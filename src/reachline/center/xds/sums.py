"""What data planes' calls came to, by line and trial window, between two posts; and whose word counts where two tell of one call.

Pure: times are arguments, in ms of the center's clock. No foreign clock is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from reachline.core.rules import Rules
from reachline.model import LineId, Outcome, Snapshot
from reachline.wire.als import Call, End
from reachline.wire.lrs import Load

__all__ = ["MOST_CALLS", "Pace", "Rank", "Sums", "Telling", "Windows", "pace_of"]

MOST_CALLS: Final = 10**9
"""Calls of one line in one report, as in one row of a posted batch: more is a broken data plane, not a fast one."""
_UNDERWAY_MS: Final = 2_000
"""A log entry or load report is this long under way at most: both are sent once a second."""
_FLOWS_MS: Final = 30_000
"""Who told of a cluster's calls this lately is waited for; longer, and it does so no more (a changed configuration)."""
_MOST_TOLD: Final = 10_000
"""Clusters of data planes of which is remembered who tells of them: those silent longest are forgotten first."""
_OK, _FAILED, _LATE, _ERRORS, _TIMED, _SLOW, _CRAWL = range(7)


class Pace(NamedTuple):
    """From which time on a call was slow, and crawled, in microseconds; None: none is."""

    slow_us: int | None = None
    crawl_us: int | None = None


def pace_of(rules: Rules) -> Pace:
    """As the clients of a cluster are told it (`local_rules`)."""
    limit = next((one for one in rules.limits if one.metric == "p95"), None)
    return Pace() if limit is None else Pace(limit.degraded_enter, limit.failed_enter)


class Rank(IntEnum):
    """Who tells best how one data plane's calls ended: the best that does counts, the others are left out."""

    LOAD = 0
    """Load reports: counts alone."""
    REQUEST = 1
    """Access log: each request, with its time."""
    ATTEMPT = 2
    """The router's log: each attempt, also those that were made again."""


class Telling:
    """By whom calls of each cluster of each data plane are told now. A better one wins while it tells, and for 30 s after."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], dict[Rank, int]] = {}

    def told(self, teller: str, cluster: str, rank: Rank, now_ms: int) -> None:
        """Somebody of this rank told of calls."""
        at = self._last.pop((teller, cluster), {})
        at[rank] = now_ms
        self._last[teller, cluster] = at
        if len(self._last) > _MOST_TOLD:
            del self._last[next(iter(self._last))]

    def counts(self, teller: str, cluster: str, rank: Rank, now_ms: int) -> bool:
        """Whether nobody better tells of these calls."""
        told = self._last.get((teller, cluster), {})
        return not any(better > rank and now_ms - at_ms < _FLOWS_MS for better, at_ms in told.items())


class Windows:
    """The trial windows that are open now, and since when as far as we know. Data planes do not know them: time tells."""

    def __init__(self) -> None:
        self._seen: dict[str, Snapshot] = {}
        self._open: dict[LineId, tuple[int, int]] = {}
        """Window and when it was first seen, by line."""

    def look(self, cluster: str, snapshot: Snapshot, now_ms: int) -> None:
        """What is published now."""
        if self._seen.get(cluster) is snapshot:
            return
        self._seen[cluster] = snapshot
        for one in snapshot.standings:
            if not one.window:
                self._open.pop(one.line, None)
            elif (known := self._open.get(one.line)) is None or known[0] != one.window:
                self._open[one.line] = (one.window, now_ms)

    def keep(self, clusters: Iterable[str], lines: Mapping[LineId, object]) -> None:
        """Only these are still in the document."""
        names = set(clusters)
        self._seen = {name: snapshot for name, snapshot in self._seen.items() if name in names}
        self._open = {line: one for line, one in self._open.items() if line in lines}

    @property
    def are_any(self) -> bool:
        """Whether any line is on trial."""
        return bool(self._open)

    def of(self, line: LineId, lasted_us: int, now_ms: int) -> int:
        """The window in which a call began that is told of now and took this long (no foreign clock makes that negative); 0: none, or
        it cannot be said.
        """
        known = self._open.get(line)
        if known is None or now_ms - known[1] < _UNDERWAY_MS + max(0, lasted_us) // 1_000:
            return 0
        return known[0]


class Sums:
    """One data plane's calls by line and window. Written by whoever hears it; `take` empties it."""

    def __init__(self) -> None:
        self._rows: dict[tuple[LineId, int], list[int]] = {}

    def __bool__(self) -> bool:
        return bool(self._rows)

    def add(self, line: LineId, window: int, call: Call, pace: Pace) -> None:
        """One call."""
        row = self._rows.get((line, window))
        if row is None:
            row = self._rows[line, window] = [0] * 7
        end, took_us = call[3], call[4]
        if end is not _END_OK:
            row[_COLUMNS[end]] += 1
            return
        row[_OK] += 1
        slow_us, crawl_us = pace
        if not took_us or (slow_us is None and crawl_us is None):
            return
        row[_TIMED] += 1
        # As the SDK counts: what crawls is slow as well, also where nothing else would be.
        if crawl_us is not None and took_us > crawl_us:
            row[_SLOW] += 1
            row[_CRAWL] += 1
        elif slow_us is not None and took_us > slow_us:
            row[_SLOW] += 1

    def add_load(self, line: LineId, window: int, load: Load) -> None:
        """The calls of a load report."""
        row = self._rows.setdefault((line, window), [0] * 7)
        row[_OK] += load.ok
        row[_ERRORS] += load.errors

    def take(self) -> dict[str, list[Outcome]]:
        """What was added since the last take, by cluster."""
        rows, self._rows = self._rows, {}
        found: dict[str, list[Outcome]] = {}
        for (line, window), row in rows.items():
            if any(row):
                cluster = line.partition("/")[0]
                found.setdefault(cluster, []).append(Outcome(line, "", window, *row))
        return found


_END_OK: Final = End.OK
_COLUMNS: Final = {End.FAILED: _FAILED, End.LATE: _LATE, End.ERROR: _ERRORS}
