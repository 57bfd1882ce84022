"""What a window is told in: percentiles by rank for the judge, and figures for people. Knows no window."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from reachline.model import CENSORED_US, Clock

__all__ = ["Figures", "nearest_rank", "whole"]


def nearest_rank(ordered: Sequence[float], share: float) -> float | None:
    """The percentile of ascending values: the ceil(share * n)-th of n. None where that is merely the largest one.

    So P95 needs 20 values and the median 2.
    """
    rank = _rank(share, len(ordered))
    return ordered[rank - 1] if 0 < rank < len(ordered) else None


@lru_cache(maxsize=1 << 10)  # three shares of a window's few hundred sizes, asked for at each heartbeat of each line
def _rank(share: float, count: int) -> int:
    # The product is rounded at the 9th digit first: 0.95 * 20 is 19.000000000000004 on some paths, and its ceiling 20.
    return math.ceil(round(share * count, 9))


class Figures(NamedTuple):
    """For people, never for the judge. RTT in microseconds over answered attempts; counts over the window."""

    p95_us: int | None = None
    last_us: int | None = None
    clock: Clock = Clock.APP
    codes: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0)
    """Answers by class, 1xx…5xx."""
    handshake_lost: int = 0
    """Packets lost by attempts that were answered all the same: loss that no other counter shows."""
    histogram: bytes = b""
    """RTTs that ended since the last `settle`, so that adding up histograms over time and agents is exact."""


def whole(rtt: float | None) -> int | None:
    """Microseconds as they stand in a reading: unanswered ones are `CENSORED_US`."""
    if rtt is None:
        return None
    return CENSORED_US if rtt == math.inf else round(rtt)
