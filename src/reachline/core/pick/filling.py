"""A maglev table filled: in each turn one endpoint takes the first slot of its own order that is free."""

from __future__ import annotations

from collections.abc import Iterator, MutableSequence, Sequence
from itertools import chain, islice, repeat
from math import isqrt
from typing import Final, NamedTuple, cast

from reachline.core.pick.turns import rounds_of, takers

__all__ = ["FREE", "NOBODY", "Filled", "few_of", "filled", "recordable", "recorded"]

NOBODY: Final = -1
FREE: Final = 255
"""The round of a slot that nobody has, or asked for: later than any other."""
_ROUNDS_MOST: Final = 254
"""That a byte holds beside it: a table that is written to all over is to be small."""


class Filled(NamedTuple):
    """A table, and what it takes to tell what would be another's were somebody not here. By slot, or by place."""

    owners: list[int]
    """By slot, who has it…"""
    turns: bytearray
    """…since which round."""
    askers: list[int]
    """By slot, who asked for it first after it was taken…"""
    asked: bytearray
    """…and in which round."""
    taken: list[list[int]]
    """By place, its slots in the order in which it took them."""
    far: list[int]
    """Places whose last slots were found without asking for all before them."""


def few_of(size: int) -> int:
    """The last slots, of which it is less work to ask where each stands in an order than to try the order's slots one by one."""
    return isqrt(size) // 2


def filled(starts: Sequence[tuple[int, int]], shares: Sequence[float], size: int) -> list[int]:
    """The place of each slot's owner; `starts` are offset (0…size-1) and skip (1…size-1) by place, in the order of their keys.

    In each round every endpoint takes the next free slot of its order, the heaviest in every round, others in fewer.
    """
    # One list says both who has a slot and that it is taken: a look at it is what this does half a million times.
    owners: list[int | None] = [None] * size
    choosers = chain.from_iterable(takers(shares))
    at, skips = [offset for offset, _ in starts], [skip for _, skip in starts]
    for place in islice(choosers, size - few_of(size)):
        slot = at[place]
        if owners[slot] is not None:
            skip = skips[place]
            rest = size - skip
            while owners[slot] is not None:
                slot = slot + skip if slot < rest else slot - rest
            at[place] = slot
        owners[slot] = place
    for place, slot in _last(owners, choosers, at, skips):
        owners[slot] = place
    return cast("list[int]", owners)


def recordable(shares: Sequence[float], size: int) -> tuple[tuple[int, ...], ...] | None:
    """By place, the rounds in which it takes a slot; None where many shares differ, or some by much."""
    rounds = rounds_of(shares, size)
    # The heaviest has one in every round, but perhaps the last.
    return rounds if rounds is not None and max(map(len, rounds)) < _ROUNDS_MOST else None


def recorded(starts: Sequence[tuple[int, int]], shares: Sequence[float], size: int) -> Filled:
    """The same with what `Mending` needs: two thirds more work. For shares that are `recordable`."""
    owners: list[int | None] = [None] * size
    askers, asked, turns, taken = (
        [NOBODY] * size,
        bytearray([FREE]) * size,
        bytearray(size),
        [list[int]() for _ in starts],
    )
    takes = chain.from_iterable(zip(repeat(turn), order) for turn, order in enumerate(takers(shares), 1))
    at, skips = [offset for offset, _ in starts], [skip for _, skip in starts]
    free = FREE
    for turn, place in islice(takes, size - few_of(size)):
        slot, skip = at[place], skips[place]
        rest = size - skip
        while owners[slot] is not None:
            if asked[slot] == free:
                askers[slot], asked[slot] = place, turn
            slot = slot + skip if slot < rest else slot - rest
        owners[slot], turns[slot] = place, turn
        taken[place].append(slot)
        # From the next one on: one that has a slot does not ask for it.
        at[place] = slot + skip if slot < rest else slot - rest
    last = list(islice(takes, few_of(size)))
    for (turn, _), (place, slot) in zip(last, _last(owners, (place for _, place in last), at, skips), strict=True):
        owners[slot], turns[slot] = place, turn
        taken[place].append(slot)
    return Filled(cast("list[int]", owners), turns, askers, asked, taken, [place for _, place in last])


def _last(
    owners: Sequence[int | None], choosers: Iterator[int], at: MutableSequence[int], skips: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Who of these gets which of the last slots: asking where each of them stands in an order is less work than trying them one by one."""
    size = len(owners)
    free = [slot for slot, owner in enumerate(owners) if owner is None]
    for place in islice(choosers, len(free)):
        skip, here = skips[place], at[place]
        back = pow(skip, -1, size)
        slot = at[place] = (here + min([(each - here) * back % size for each in free]) * skip) % size
        free.remove(slot)
        yield place, slot
