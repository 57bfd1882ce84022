"""Maglev: a table of a prime number of slots, filled by the endpoints in turn, each by an order of its own.

A look-up is one division. When an endpoint goes, its slots are filled by the others and few besides change. Table and weights
are Envoy's, so that a key reaches the same endpoint from both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from math import isqrt
from random import Random
from typing import Final, Generic, TypeVar

from reachline.core.hashing import xxh64
from reachline.core.pick.bounded import bounded
from reachline.core.pick.member import Memory, Picker, Source
from reachline.core.pick.policy import Policy

__all__ = ["TABLE_MOST", "Maglev", "filled", "maglev"]

T = TypeVar("T")

TABLE_MOST: Final = 5_000_011
"""The largest table Envoy allows."""
_ALL: Final = 0xFFFF_FFFF_FFFF_FFFF


def filled(starts: Sequence[tuple[int, int]], shares: Sequence[float], size: int) -> list[int]:
    """The place of each slot's owner; `starts` are offset (0…size-1) and skip (1…size-1) by place, in the order of their keys.

    In each round every endpoint takes the next free slot of its order, the heaviest in every round, others in fewer.
    """
    owners, taken = [-1] * size, bytearray(size)
    at, skips = [offset for offset, _ in starts], [skip for _, skip in starts]
    choosers, few = _choosers(shares), isqrt(size) // 2
    for place in islice(choosers, size - few):
        slot, skip = at[place], skips[place]
        while taken[slot]:
            slot += skip
            if slot >= size:
                slot -= size
        taken[slot], owners[slot], at[place] = 1, place, slot
    # The last slots: asking where each of them stands in an order is less work than trying the order's slots one by one.
    free = [slot for slot, owner in enumerate(owners) if owner < 0]
    for place in islice(choosers, few):
        back, here = pow(skips[place], -1, size), at[place]
        slot = min(((each - here) * back % size, each) for each in free)[1]
        free.remove(slot)
        owners[slot], at[place] = place, slot
    return owners


def _choosers(shares: Sequence[float]) -> Iterator[int]:
    """Places in the order in which they take slots, without end.

    In round n a place takes one if n x share has reached its target, which then grows by the heaviest share: so the heaviest
    takes one in every round. Rounds in which a place takes none are not visited.
    """
    if min(shares) == max(shares):
        return cycle(range(len(shares)))
    return _by_share(shares)


def _by_share(shares: Sequence[float]) -> Iterator[int]:
    heaviest, targets = max(shares), [0.0] * len(shares)
    rounds, turn = {1: list(range(len(shares)))}, 0
    while True:
        turn += 1
        # The heaviest has one in every round, so that there is one.
        for place in sorted(rounds.pop(turn)):
            yield place
            share, target = shares[place], targets[place] + heaviest
            targets[place], later = target, turn + 1
            if later * share < target:
                later = _reached(target, share, later)
            rounds.setdefault(later, []).append(place)


def _reached(target: float, share: float, after: int) -> int:
    """The first round above `after` in which round x share, rounded as a double is, reaches the target."""
    found = max(int(target / share), after + 1)
    while found > after + 1 and (found - 1) * share >= target:
        found -= 1
    while found * share < target:
        found += 1
    return found


class Maglev(Generic[T]):
    """Items by slot. Without a key any slot is as good as another."""

    __slots__ = ("_owners", "_size", "items")

    def __init__(self, items: Sequence[T], owners: Sequence[int]) -> None:
        self.items: Final = tuple(items)
        self._owners: Final = [self.items[place] for place in owners]
        self._size: Final = len(owners)

    def pick(self, rng: Random, key: int | None = None, attempt: int = 0) -> T | None:
        """The key's item; for a further `attempt` that of a key with most of its bits turned. None without items."""
        if not self._size:
            return None
        if key is None:
            key = rng.getrandbits(64)
        if attempt:
            key ^= -attempt & _ALL
        return self._owners[key % self._size]


def maglev(source: Source[T], policy: Policy, memory: Memory, rng: Random) -> Picker[T]:  # noqa: ARG001 - one signature
    """The picker of `TABLE`; the source's weights are shares of 1. ValueError for a table size that is no prime."""
    size = policy.table_size
    if not is_prime(size) or size > TABLE_MOST:
        raise ValueError(f"a maglev table has a prime number of slots, at most {TABLE_MOST}, not {size}")
    members = source.members
    if not members:
        return Maglev((), ())
    order = sorted(range(len(members)), key=lambda place: members[place].key)
    starts = [_start(members[place].key, size, memory) for place in order]
    owners = filled(starts, [source.weights[place] for place in order], size)
    if policy.balance_factor:
        return bounded(Maglev(order, owners), source, policy, memory)
    return Maglev([members[place].item for place in order], owners)


def is_prime(number: int) -> bool:
    """By trial division: a table's size is small."""
    return number > 1 and all(number % each for each in range(2, isqrt(number) + 1))


def _start(key: str, size: int, memory: Memory) -> tuple[int, int]:
    """Where the key's order begins and by how much it goes on; its hashes are computed once a process."""
    name = ("maglev", key)
    known = memory.hashes.get(name)
    if known is None:
        text = key.encode()
        known = memory.hashes[name] = (xxh64(text), xxh64(text, 1))
    return known[0] % size, known[1] % (size - 1) + 1
