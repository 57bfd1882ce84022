"""The exponentially weighted mean of a line's RTT: smooth enough to judge by, quick enough to follow a change."""

from __future__ import annotations

__all__ = ["after"]


def after(mean: float | None, sample: float, alpha: float) -> float:
    """The mean after one more *ok* sample, in the sample's unit; the first one starts it.

    `alpha` is the newest sample's share, 0 < alpha <= 1. Failed attempts never come here: they have no RTT to believe.
    """
    return sample if mean is None else mean + alpha * (sample - mean)
