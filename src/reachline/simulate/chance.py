"""Chance in a run: one printed seed, split by name, so that what one part draws moves nothing in another."""

from __future__ import annotations

import math
from bisect import bisect_left
from functools import lru_cache
from random import Random
from typing import Final

__all__ = ["LARGE", "binomial", "poisson", "split", "sums"]

LARGE: Final = 40.0
"""Above, a rounded normal variate stands for a Poisson one: its skew of 1/sqrt(40) moves no figure we show."""
_MOST: Final = 200
_TINY: Final = 1e-18
"""Below what a drawn number can tell apart."""


def split(seed: int, name: str) -> Random:
    """The chance of one part of a run."""
    return Random(f"{seed}/{name}")


def poisson(rng: Random, mean: float) -> int:
    """How many of independent events happen where `mean` are expected."""
    if mean <= 0.0:
        return 0
    if mean > LARGE:
        return max(0, round(mean + math.sqrt(mean) * rng.gauss(0.0, 1.0)))
    return bisect_left(sums(mean), rng.random())


@lru_cache(maxsize=16_384)
def sums(mean: float) -> tuple[float, ...]:
    """The chances of at most 0, 1, 2… of events of which so many are expected, 0 ≤ mean ≤ `LARGE`: most draws of a run are of a few means, again and again."""
    chance = below = math.exp(-mean)
    found = [below]
    while len(found) < _MOST and below < 1.0 and (chance > _TINY or len(found) < mean):
        chance *= mean / len(found)
        below += chance
        found.append(below)
    return tuple(found)


def binomial(rng: Random, trials: int, share: float) -> int:
    """How many of `trials` happen, each with this chance."""
    if trials <= 0 or share <= 0.0:
        return 0
    if share >= 1.0:
        return trials
    if trials * min(share, 1.0 - share) > LARGE:
        drawn = trials * share + math.sqrt(trials * share * (1.0 - share)) * rng.gauss(0.0, 1.0)
        return min(trials, max(0, round(drawn)))
    chance = below = (1.0 - share) ** trials
    if below <= 0.0:
        return trials - binomial(rng, trials, 1.0 - share)
    drawn, count, ratio = rng.random(), 0, share / (1.0 - share)
    while drawn > below and count < trials:
        chance *= ratio * (trials - count) / (count + 1)
        count += 1
        below += chance
    return count
