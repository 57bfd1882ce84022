"""Where a count of independent events may lie."""

from __future__ import annotations

import math


def binomial(n: int, p: float, *, share: float = 0.99) -> tuple[int, int]:
    """The smallest and largest count of `n` tries with chance `p` that are not among the (1 - share)/2 rarest at their end."""
    tail, below, low = (1 - share) / 2, 0.0, -1
    for k in range(n + 1):
        mass = math.exp(
            math.lgamma(n + 1)
            - math.lgamma(k + 1)
            - math.lgamma(n - k + 1)
            + k * math.log(p)
            + (n - k) * math.log1p(-p)
        )
        if low < 0 and below + mass > tail:
            low = k
        below += mass
        if below >= 1 - tail:
            return low, k
    return low, n
