"""When a line was really at fault, as evidence tells afterwards: by one fixed measure, whatever rules judged at the time.

A bucket of ten seconds is bad where at least 5 % of all attempts failed (and surely 3 %), the worst vantage of three or more left
aside; or where most vantages saw a P95 of half a second; or where as many of at least fifty calls failed, unless they failed on
every line. Bad buckets make a fault; a single one is none, and two good ones in between do not end it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from reachline.core.poll import deciding
from reachline.core.zone import wilson_at_least
from reachline.model import Line, LineId, Outcome, Reading, VantageId

__all__ = ["BUCKET_MS", "Fault", "Hindsight"]

BUCKET_MS: Final = 10_000
_FAILED_MILLI: Final = 50
_SURE_MILLI: Final = 30
_Z_MILLI: Final = 1_645
"""These three are the table's failed limit for losses and timeouts, its exit and its gate."""
_SLOW_US: Final = 500_000
"""The table's failed limit for P95."""
_TRIMMED: Final = 3
"""Vantages from which on the worst one is left aside."""
_CALLS: Final = 50
_LEAST: Final = 2
"""Bad buckets that a fault has."""
_APART: Final = 3
"""Buckets from one bad one to the next within a fault."""


class Fault(NamedTuple):
    """A line was bad from the beginning of its first bad bucket to the end of its last, ms since the journal's epoch."""

    line: LineId
    from_ms: int
    until_ms: int


class _Seen(NamedTuple):
    ok: int = 0
    failed: int = 0
    slow: bool = False


class Hindsight:
    """Collects evidence in the order of time, and tells faults. `lines` are those known now."""

    def __init__(self, lines: Mapping[LineId, Line]) -> None:
        self.lines = lines
        self._bucket = 0
        self._probed: dict[LineId, dict[VantageId, _Seen]] = {}
        self._called: dict[LineId, tuple[int, int]] = {}
        self._bad: dict[LineId, list[int]] = {}
        self._suspects: set[LineId] = set()
        """Lines with anything bad in this bucket: nothing else is looked at when it ends."""

    def reported(self, vantage: VantageId, readings: Iterable[tuple[LineId, Reading]], at_ms: int) -> None:
        """One part of a heartbeat: what it counts since the last one."""
        self._to(at_ms)
        for line, reading in readings:
            known = self.lines.get(line)
            if known is None or reading.void or reading.kind not in deciding(known):
                continue
            by_vantage = self._probed.setdefault(line, {})
            was = by_vantage.get(vantage, _Seen())
            is_slow = reading.p95_us is not None and reading.p95_us >= _SLOW_US
            by_vantage[vantage] = _Seen(
                was.ok + reading.fresh_ok, was.failed + reading.fresh_failed, was.slow or is_slow
            )
            if reading.fresh_failed or is_slow:
                self._suspects.add(line)

    def called(self, rows: Iterable[Outcome], at_ms: int) -> None:
        """What calls came to."""
        self._to(at_ms)
        for row in rows:
            ok, failed = self._called.get(row.line, (0, 0))
            bad = row.failed + row.late + row.errors
            self._called[row.line] = (ok + row.ok, failed + bad)
            if bad:
                self._suspects.add(row.line)

    def faults(self) -> tuple[Fault, ...]:
        """All faults so far, by time and line."""
        self._close()
        found = (
            Fault(line, run[0] * BUCKET_MS, (run[-1] + 1) * BUCKET_MS)
            for line, buckets in self._bad.items()
            for run in _runs(buckets)
            if len(run) >= _LEAST
        )
        return tuple(sorted(found, key=lambda fault: (fault.from_ms, fault.line)))

    def _to(self, at_ms: int) -> None:
        # A heartbeat tells of the time before it: what arrives on the edge belongs to the bucket that ends there.
        bucket = max(0, at_ms - 1) // BUCKET_MS
        if bucket > self._bucket:
            self._close()
            self._bucket = bucket

    def _close(self) -> None:
        everywhere = len(self._called) > 1 and all(map(_is_failing, self._called.values()))
        for line in self._suspects:
            calls = self._called.get(line, (0, 0))
            of_calls = sum(calls) >= _CALLS and _is_failing(calls) and not everywhere
            if of_calls or _is_bad(tuple(self._probed.get(line, {}).values())):
                buckets = self._bad.setdefault(line, [])
                if not buckets or buckets[-1] != self._bucket:
                    buckets.append(self._bucket)
        self._probed, self._called, self._suspects = {}, {}, set()


def _is_bad(seen: tuple[_Seen, ...]) -> bool:
    if 2 * sum(one.slow for one in seen) > len(seen):
        return True
    if len(seen) >= _TRIMMED:
        seen = tuple(sorted(seen, key=_share)[:-1])
    return _is_failing((sum(one.ok for one in seen), sum(one.failed for one in seen)))


def _share(one: _Seen) -> int:
    return 1_000_000 * one.failed // max(one.ok + one.failed, 1)


def _is_failing(counts: tuple[int, int]) -> bool:
    ok, failed = counts
    if 1_000 * failed < _FAILED_MILLI * max(ok + failed, 1):
        return False
    return wilson_at_least(failed, ok + failed, _SURE_MILLI, _Z_MILLI)


def _runs(buckets: Iterable[int]) -> list[list[int]]:
    """Buckets that belong together."""
    runs: list[list[int]] = []
    for bucket in buckets:
        if runs and bucket - runs[-1][-1] <= _APART:
            runs[-1].append(bucket)
        else:
            runs.append([bucket])
    return runs
