"""Two contenders under the same seeds: how much they differ, and whether that is more than chance.

The interval is the wider of two on either side: the percentiles of a paired bootstrap, and Student's t of the paired differences. Of few
pairs a bootstrap is too narrow, since no mean of draws lies beyond the pairs themselves; of lopsided differences Student's t is too narrow on
one side. Not a sign test: with five seeds it cannot call anything certain at 95 % (five wins of five have a chance of 1 in 16 both ways), and
it does not say how much. The draws have a fixed seed: the same runs give the same interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from statistics import fmean, stdev
from typing import Final, NamedTuple

__all__ = ["CONFIDENCE", "Difference", "difference", "quantile_of_t"]

CONFIDENCE: Final = 0.95
_DRAWS: Final = 2_000
_SEED: Final = "decisions"
_STEPS: Final = 500
"""Of the integral of t's density: enough for six digits."""


class Difference(NamedTuple):
    """The mean of ours less theirs over pairs, and between which bounds it is with 95 % certainty. Without pairs all is 0."""

    mean: float
    low: float
    high: float
    pairs: int

    @property
    def is_less(self) -> bool:
        """Ours is less, by more than chance."""
        return self.high < 0.0

    @property
    def is_more(self) -> bool:
        """Ours is more, by more than chance."""
        return self.low > 0.0


def difference(ours: Sequence[float], theirs: Sequence[float]) -> Difference:
    """Of figures under the same seeds, in the same order. One pair alone says nothing of chance: its bounds are infinite."""
    apart = [one - two for one, two in zip(ours, theirs, strict=True)]
    if not apart:
        return Difference(0.0, 0.0, 0.0, 0)
    mean = fmean(apart)
    if len(set(apart)) == 1:
        bound = math.inf if len(apart) == 1 and mean else 0.0
        return Difference(mean, mean - bound, mean + bound, len(apart))
    rng = Random(_SEED)
    means = sorted(fmean(rng.choices(apart, k=len(apart))) for _ in range(_DRAWS))
    at = round((1.0 - CONFIDENCE) / 2.0 * _DRAWS)
    reach = quantile_of_t((1.0 + CONFIDENCE) / 2.0, len(apart) - 1) * stdev(apart) / math.sqrt(len(apart))
    return Difference(mean, min(means[at], mean - reach), max(means[-1 - at], mean + reach), len(apart))


def quantile_of_t(share: float, freedom: int) -> float:
    """Student's t below which `share` (0.5 … 1) of its distribution lies."""
    low, high = 0.0, 1_000.0
    for _ in range(60):
        middle = (low + high) / 2
        if 0.5 + _from_zero(middle, freedom) < share:
            low = middle
        else:
            high = middle
    return high


def _from_zero(end: float, freedom: int) -> float:
    """The integral of t's density from 0 to `end`: by t = √n·tan(u) it is that of cosⁿ⁻¹, which is smooth and of finite width."""
    scale = math.gamma((freedom + 1) / 2) / (math.sqrt(math.pi) * math.gamma(freedom / 2))
    step = math.atan(end / math.sqrt(freedom)) / _STEPS
    inner = sum((4 if at % 2 else 2) * math.cos(at * step) ** (freedom - 1) for at in range(1, _STEPS))
    return scale * step / 3 * (1.0 + inner + math.cos(_STEPS * step) ** (freedom - 1))
