"""Least request: of a few endpoints drawn by chance, the one with the fewest calls of this process under way."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final, Generic, TypeVar

from reachline.core.pick.edf import Deadlines
from reachline.core.pick.member import Load, Memory, Picker, Source
from reachline.core.pick.policy import Policy

__all__ = ["FewestOfAll", "FewestOfSome", "least_request"]

T = TypeVar("T")


class FewestOfSome(Generic[T]):
    """`choices` draws with replacement; the fewest calls win, and of equals the first drawn."""

    __slots__ = ("_loads", "_more", "_pairs", "_size", "items")

    def __init__(self, items: Sequence[T], loads: Sequence[Load], *, choices: int = 2) -> None:
        self.items: Final = tuple(items)
        self._loads: Final = tuple(loads)
        self._size: Final = len(self.items)
        # Two draws out of one number: a double has room for those of ninety million endpoints.
        self._pairs: Final = float(self._size * self._size)
        self._more: Final = choices - 2

    def pick(self, rng: Random, key: int | None = None, attempt: int = 0) -> T | None:  # noqa: ARG002 - chance needs neither
        """An item, or None without items."""
        size, loads = self._size, self._loads
        if not size:
            return None
        both = int(rng.random() * self._pairs)
        best, other = both // size, both % size
        if loads[other].active < loads[best].active:
            best = other
        for _ in range(self._more) if self._more else ():
            other = int(rng.random() * size)
            if loads[other].active < loads[best].active:
                best = other
        return self.items[best]


class FewestOfAll(Generic[T]):
    """The fewest calls of all; among equals by chance, each the same."""

    __slots__ = ("_loads", "items")

    def __init__(self, items: Sequence[T], loads: Sequence[Load]) -> None:
        self.items: Final = tuple(items)
        self._loads: Final = tuple(loads)

    def pick(self, rng: Random, key: int | None = None, attempt: int = 0) -> T | None:  # noqa: ARG002 - as above
        """An item, or None without items."""
        if not self.items:
            return None
        active = [load.active for load in self._loads]
        least = min(active)
        tied = [place for place, each in enumerate(active) if each == least]
        return self.items[tied[int(rng.random() * len(tied))]]


def least_request(source: Source[T], policy: Policy, memory: Memory, rng: Random) -> Picker[T]:
    """The picker of `TABLE`: by comparison where weights are equal, else by deadlines 1/(weight/(active + 1)^bias) apart."""
    items, weights = [member.item for member in source.members], source.weights
    loads = [memory.load(member.key) for member in source.members]
    if not items or min(weights) == max(weights):
        return FewestOfAll(items, loads) if policy.full_scan else FewestOfSome(items, loads, choices=policy.choices)
    bias = policy.bias

    def weigh(place: int) -> float:
        if bias == 1.0:
            return weights[place] / (max(loads[place].active, 0) + 1)
        return weights[place] / float((max(loads[place].active, 0) + 1) ** bias)

    places = range(len(items))
    return Deadlines(items, [weigh(place) for place in places], picks=rng.getrandbits(32), weigh=weigh)
