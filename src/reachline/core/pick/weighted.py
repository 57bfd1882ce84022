"""Weighted random choice: every line by its share of the weight, no memory between picks, so no lock."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate
from random import Random
from typing import Final, Generic, TypeVar

from reachline.core.pick.member import Memory, Picker, Source
from reachline.core.pick.policy import Policy

__all__ = ["WEIGHTS_MOST", "WeightedRandom", "weighted_random"]

T = TypeVar("T")

WEIGHTS_MOST: Final = 2**53 - 1
"""Largest sum of weights: up to here a double is exact, and `random() * total` stays below `total`."""


class WeightedRandom(Generic[T]):
    """Chooses among items by integer weights; an item of weight 0 is never chosen.

    ValueError at construction for a negative weight or a sum above `WEIGHTS_MOST`: a door refuses those earlier.
    """

    __slots__ = ("_items", "_sums", "_total")

    def __init__(self, items: Sequence[T], weights: Sequence[int]) -> None:
        chosen = [(item, weight) for item, weight in zip(items, weights, strict=True) if weight]
        if any(weight < 0 for _, weight in chosen):
            raise ValueError("a weight is negative")
        sums = list(accumulate(weight for _, weight in chosen))
        if sums and sums[-1] > WEIGHTS_MOST:
            raise ValueError(f"weights sum to {sums[-1]}, at most {WEIGHTS_MOST}")
        self._items: Final = tuple(item for item, _ in chosen)
        # Doubles: comparing two of them is a third of the price of comparing a double and an integer.
        self._sums: Final = [float(each) for each in sums]
        self._total: Final = self._sums[-1] if sums else 0.0

    @property
    def items(self) -> tuple[T, ...]:
        """All that can be chosen."""
        return self._items

    def __len__(self) -> int:
        """How many items can be chosen."""
        return len(self._items)

    def shares(self) -> tuple[tuple[T, float], ...]:
        """Each item with the chance that the next pick is it; they sum to 1."""
        below = (0.0, *self._sums)
        return tuple(
            (item, (above - least) / self._total)
            for item, least, above in zip(self._items, below, self._sums, strict=False)
        )

    def pick(self, rng: Random, key: int | None = None, attempt: int = 0) -> T | None:  # noqa: ARG002 - chance needs no key
        """One item, or None where no item has weight. `key` is for pickers that keep callers together."""
        if not self._items:
            return None
        return self._items[bisect(self._sums, rng.random() * self._total)]


_MILLI: Final = 1_000
"""Parts of a weight point that slow start tells apart."""


def weighted_random(source: Source[T], policy: Policy, memory: Memory, rng: Random) -> Picker[T]:  # noqa: ARG001 - one signature
    """The picker of `TABLE`; weights that are no whole numbers (slow start) are rounded to 1/1000, at least one."""
    items, weights = [member.item for member in source.members], source.weights
    if all(type(weight) is int for weight in weights):
        return WeightedRandom(items, [int(weight) for weight in weights])
    return WeightedRandom(items, [max(round(weight * _MILLI), 1) for weight in weights])
