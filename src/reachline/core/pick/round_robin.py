"""Round robin: one after the other, and by earliest deadline first where weights differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from math import gcd
from random import Random
from typing import Final, Generic, TypeVar

from reachline.core.pick.edf import Deadlines, turns
from reachline.core.pick.member import Memory, Picker, Source
from reachline.core.pick.policy import Policy

__all__ = ["Cycle", "cycle_of", "round_robin"]

T = TypeVar("T")

CYCLE_MOST: Final = 4_096
"""Turns of a schedule that is written down whole: building it takes about a millisecond, a pick of it half of one of the heap."""


class Cycle(Generic[T]):
    """Items in a fixed order, again and again. The cursor is the caller's: it may outlive this picker, and threads share it."""

    __slots__ = ("_cursor", "_turns", "items")

    def __init__(
        self, items: Sequence[T], order: Sequence[int] | None = None, *, cursor: Iterator[int] | None = None
    ) -> None:
        self.items: Final = tuple(items)
        self._turns: Final = self.items if order is None else tuple(self.items[place] for place in order)
        self._cursor: Final = count() if cursor is None else cursor

    def pick(self, rng: Random, key: int | None = None, attempt: int = 0) -> T | None:  # noqa: ARG002 - a turn needs neither
        """The next item, or None without items."""
        turns = self._turns
        return turns[next(self._cursor) % len(turns)] if turns else None


def cycle_of(weights: Sequence[float], picks: int) -> list[int] | None:
    """The order in which one cycle of the schedule picks places, from its pick `picks` on.

    None where there is no short one: weights that are no whole numbers, or more than `CYCLE_MOST` turns.
    """
    if not all(isinstance(weight, int) for weight in weights):
        return None
    whole = [int(weight) for weight in weights]
    part = gcd(*whole)
    period = sum(whole) // part
    if period > CYCLE_MOST:
        return None
    found = turns(weights, picks % period, period)
    seen = Counter(found)
    # Doubles may round a turn over the cycle's end; such a schedule is run, not written down.
    return found if all(seen[place] == weight // part for place, weight in enumerate(whole)) else None


def round_robin(source: Source[T], policy: Policy, memory: Memory, rng: Random) -> Picker[T]:  # noqa: ARG001 - one signature
    """The picker of `TABLE`. A weighted schedule begins at a turn of chance, so that one built often favours nobody."""
    items, weights = [member.item for member in source.members], source.weights
    if not items or min(weights) == max(weights):
        return Cycle(items, cursor=memory.cursor(source.name))
    picks = rng.getrandbits(32)
    order = cycle_of(weights, picks)
    return Deadlines(items, weights, picks=picks) if order is None else Cycle(items, order)
