"""A bound on what one endpoint of a hash policy carries: consistent hashing with bounded loads, its next choices by chance.

The chance is drawn from the key, by the generator Envoy uses, so that one key tries the others in the same order everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from random import Random
from typing import Final, Generic, TypeVar

from reachline.core.pick.member import Load, Memory, Picker, Source
from reachline.core.pick.policy import Policy

__all__ = ["Bounded", "bounded", "shuffled"]

T = TypeVar("T")

_WORDS: Final = 624
"""Of the state of a Mersenne twister."""


def shuffled(key: int, count: int) -> Iterator[int]:
    """Places 0…`count`-1 in the order that `std::mt19937`, seeded by the key, shuffles them into."""
    word = key & 0xFFFF_FFFF
    state = [word]
    for number in range(1, _WORDS):
        word = (1_812_433_253 * (word ^ word >> 30) + number) & 0xFFFF_FFFF
        state.append(word)
    # A generator made whole from the key: the same key draws the same.
    chance = Random(0)
    chance.setstate((3, (*state, _WORDS), None))
    places = list(range(count))
    for at in range(count):
        left = count - at
        while (drawn := chance.getrandbits(32) // (2**32 // left)) >= left:
            pass
        places[at], places[at + drawn] = places[at + drawn], places[at]
        yield places[at]


class Bounded(Generic[T]):
    """The hashing picker's answer, unless that endpoint has more calls under way than its part of `factor` percent of the mean."""

    __slots__ = ("_factor", "_loads", "_places", "_shares", "items")

    def __init__(
        self, places: Picker[int], items: Sequence[T], loads: Sequence[Load], shares: Sequence[float], *, factor: int
    ) -> None:
        self.items: Final = tuple(items)
        self._places: Final = places
        self._loads: Final = tuple(loads)
        self._shares: Final = tuple(shares)
        self._factor: Final = factor

    def pick(self, rng: Random, key: int | None = None, attempt: int = 0) -> T | None:
        """The first in the key's order with room; None without items."""
        if key is None:
            key = rng.getrandbits(64)
        home = self._places.pick(rng, key, attempt)
        if home is None:
            return None
        active = sum(load.active for load in self._loads)
        slots = ((active + 1) * self._factor + 99) // 100
        if self._has_room(home, slots):
            return self.items[home]
        # Somebody has room: slots are more than calls under way, all of them counted. Unless a call began meanwhile.
        others = shuffled(key, len(self.items))
        return self.items[next((place for place in others if self._has_room(place, slots)), home)]

    def _has_room(self, place: int, slots: int) -> bool:
        return self._loads[place].active <= max(ceil(slots * self._shares[place]), 1)


def bounded(places: Picker[int], source: Source[T], policy: Policy, memory: Memory) -> Picker[T]:
    """A hashing picker of places in the source, with the policy's bound; the source's weights are shares of 1."""
    members = source.members
    loads = [memory.load(member.key) for member in members]
    return Bounded(places, [member.item for member in members], loads, source.weights, factor=policy.balance_factor)
