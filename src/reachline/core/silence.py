"""When a vantage has fallen silent: an accrual detector on the arrival of its heartbeats.

phi is how unlikely it is, in powers of ten, that a heartbeat is still to come after so long, by how regularly this vantage's
heartbeats came so far. Above 8 its vote is missing; that says nothing of any line. Pure integers: normal quantiles by table.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["MISSING", "Beat", "after", "due_ms", "is_silent", "phi"]

MISSING: Final = 8
"""One false alarm in a hundred million heartbeats, as far as they are normal."""
_QUANTILES: Final = (0, 1_282, 2_326, 3_090, 3_719, 4_265, 4_753, 5_199, 5_612, 5_998, 6_361, 6_706, 7_034)
"""Standard deviations beyond which one in 10**k normal values lies, in 1/1000."""
_KNOWN: Final = 4
"""Gaps that make a habit; before that only the freshness of votes counts."""
_NORMAL_MILLI: Final = 1_253
"""A normal value's standard deviation is this many thousandths of its mean deviation."""
_LEAST_PART: Final = 8
"""The deviation is never taken for less than an eighth of a heartbeat: a segment sent again must not cost a vote."""


class Beat(NamedTuple):
    """How one vantage's heartbeats come. `known` is the gaps seen, at most enough to make a habit."""

    at_ms: int
    """When the newest arrived."""
    mean_ms: int = 0
    deviation_ms: int = 0
    known: int = 0


def after(before: Beat | None, now_ms: int, every_ms: int) -> Beat:
    """The beat after an arrival. What follows within half a heartbeat is a part, or urgent, and tells no rhythm.

    A gap beyond 2.5 heartbeats was an absence, not the habit, and counts as that much.
    """
    if before is None:
        return Beat(now_ms, every_ms)
    gap = now_ms - before.at_ms
    if 2 * gap < every_ms:
        return before._replace(at_ms=now_ms) if gap > 0 else before
    gap = min(gap, 5 * every_ms // 2)
    off = abs(gap - before.mean_ms)
    return Beat(
        now_ms,
        before.mean_ms + (gap - before.mean_ms) // 8,
        before.deviation_ms + (off - before.deviation_ms) // 4,
        min(_KNOWN, before.known + 1),
    )


def due_ms(beat: Beat, every_ms: int, level: int = MISSING) -> int:
    """The moment after which phi is above `level`."""
    deviation = max(beat.deviation_ms * _NORMAL_MILLI // 1_000, every_ms // _LEAST_PART)
    return beat.at_ms + max(beat.mean_ms, every_ms) + _QUANTILES[level] * deviation // 1_000


def is_silent(beat: Beat | None, now_ms: int, every_ms: int) -> bool:
    """Whether phi is above 8; never of a vantage whose habit is not known yet."""
    return beat is not None and beat.known >= _KNOWN and now_ms > due_ms(beat, every_ms)


def phi(beat: Beat, now_ms: int, every_ms: int) -> int:
    """Whole powers of ten, 0…12, for people."""
    return max((level for level in range(len(_QUANTILES)) if now_ms > due_ms(beat, every_ms, level)), default=0)
