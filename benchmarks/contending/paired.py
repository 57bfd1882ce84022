"""Two contenders under the same seeds: how much they differ, and whether that is more than chance.

A paired bootstrap, not a sign test: with five seeds a sign test cannot call anything certain at 95 % (five wins of five have a chance of
1 in 16 both ways), and it does not say how much. Its quantiles are those of the expanded percentile interval (Hesterberg, What Teachers
Should Know about the Bootstrap, 2015, section 5): of few pairs a plain one is too narrow, so each tail is taken as far out as Student's t
has it for so many pairs, times √(n / (n - 1)). The draws have a fixed seed: the same runs give the same interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from statistics import NormalDist, fmean
from typing import Final, NamedTuple

__all__ = ["CONFIDENCE", "Difference", "difference", "quantile_of_t"]

CONFIDENCE: Final = 0.95
_DRAWS: Final = 5_000
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
    tail = _tail(len(apart))
    at = min(_DRAWS // 2, math.floor(tail * _DRAWS))
    return Difference(mean, means[at], means[-1 - at], len(apart))


def _tail(pairs: int) -> float:
    """What is left out on each side."""
    reach = quantile_of_t((1.0 + CONFIDENCE) / 2.0, pairs - 1) * math.sqrt(pairs / (pairs - 1))
    return NormalDist().cdf(-reach)


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
