"""How often something may happen that was hardly seen: an upper bound on a rate, from a count and the hours watched."""

from __future__ import annotations

import math
from typing import Final

__all__ = ["CONFIDENCE", "highest"]

CONFIDENCE: Final = 0.95


def highest(count: int, hours: float, *, confidence: float = CONFIDENCE) -> float:
    """The rate per hour above which so few would be seen with less chance than 1 - confidence; exact for a Poisson process.

    For none seen in H hours it is 3.0 / H.
    """
    if hours <= 0:
        return math.inf
    low, high = float(count), 10.0 + 2.0 * count + 10.0 * math.sqrt(count)
    for _ in range(100):
        middle = (low + high) / 2
        if _at_most(count, middle) > 1.0 - confidence:
            low = middle
        else:
            high = middle
    return high / hours


def _at_most(count: int, mean: float) -> float:
    """The chance of `count` or fewer where `mean` are expected."""
    term = total = math.exp(-mean)
    for number in range(1, count + 1):
        term *= mean / number
        total += term
    return total
