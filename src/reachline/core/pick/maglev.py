"""Maglev: a table of a prime number of slots, filled by the endpoints in turn, each by an order of its own.

A look-up is one division. When an endpoint goes, its slots are filled by the others and few besides change. Table and weights
are Envoy's, so that a key reaches the same endpoint from both.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import chain, islice
from math import isqrt
from random import Random
from typing import Final, Generic, NamedTuple, TypeVar, cast

from reachline.core.hashing import xxh64
from reachline.core.pick.bounded import bounded
from reachline.core.pick.filling import filled, recordable, recorded
from reachline.core.pick.member import Memory, Picker, Source
from reachline.core.pick.mending import Mending
from reachline.core.pick.policy import Policy
from reachline.core.pick.turns import takers

__all__ = ["TABLE_MOST", "Maglev", "is_prime", "maglev"]

T = TypeVar("T")

TABLE_MOST: Final = 5_000_011
"""The largest table Envoy allows."""
_KEPT_MOST: Final = 131_071
"""Slots up to which a table is kept for the next picker: two megabytes, and twice Envoy's usual size."""
_MENDED_LEAST: Final = 5_000
"""Endpoints from which a table of Envoy's usual size is mended: below, each takes so many slots that filling it again is less work."""
_ALL: Final = 0xFFFF_FFFF_FFFF_FFFF


class _Slots(NamedTuple):
    """By slot, the number of its owner; by place, in the order of keys, whose number is which."""

    owners: array[int]
    numbers: Sequence[int]

    def named(self, items: Sequence[T]) -> Sequence[T]:
        """Items by number, of items by place. Numbers of nobody have any."""
        found = [items[0]] * (1 + max(self.numbers))
        for number, item in zip(self.numbers, items, strict=True):
            found[number] = item
        return found


def _slots(keys: Sequence[str], shares: Sequence[float], size: int, *, memory: Memory, part: object) -> _Slots:
    """The table of these, by place in the order of keys.

    Of many endpoints the last table is mended where few others are there. `part` tells parts of the cluster apart in memory.
    """
    starts, places = _starts(keys, size, memory), range(len(keys))
    rounds = recordable(shares, size) if len(keys) >= _MENDED_LEAST and size <= _KEPT_MOST else None
    if rounds is None:
        return _Slots(_known(starts, shares, size, memory.hashed(f"maglev table {part}")), places)
    # Out of the memory meanwhile: a fork in the middle leaves the child none, not half of one.
    table = memory.tables.pop((part, size), None)
    if table is None:
        table = Mending(keys, starts, rounds, recorded(starts, shares, size))
    elif not table.moved(keys, starts, rounds):
        return _Slots(array("i", filled(starts, shares, size)), places)
    memory.tables[part, size] = table
    return _Slots(table.owners[:], table.order)


def _known(
    starts: Sequence[tuple[int, int]], shares: Sequence[float], size: int, last: dict[str, tuple[int, ...]]
) -> array[int]:
    """What `filled` gives; the last table where the same orders take slots in the same turns.

    It often is: a change in one priority touches no other's table. `last` is what this kept of one part of the cluster.
    """
    if size > _KEPT_MOST:
        return array("i", filled(starts, shares, size))
    turns = tuple(islice(chain.from_iterable(takers(shares)), size))
    asked, owners = (size, *chain.from_iterable(starts), *turns), last.get("owners")
    if owners is None or last.get("asked") != asked:
        owners = tuple(filled(starts, shares, size))
        last.update(asked=asked, owners=owners)
    return array("i", owners)


class Maglev(Generic[T]):
    """Items by slot. Without a key any slot is as good as another."""

    __slots__ = ("_named", "_owners", "_size", "items")

    def __init__(self, items: Sequence[T], owners: array[int], named: Sequence[T]) -> None:
        """All items; by slot, the number of its owner, and items by such numbers."""
        self.items: Final = tuple(items)
        # Numbers, not items: a table is made by copying a block of memory, and touches nothing of what it names.
        self._owners: Final = owners
        self._named: Final = named
        self._size: Final = len(owners)

    def pick(self, rng: Random, key: int | None = None, attempt: int = 0) -> T | None:
        """The key's item; for a further `attempt` that of a key with most of its bits turned. None without items."""
        if not self._size:
            return None
        if key is None:
            key = rng.getrandbits(64)
        if attempt:
            key ^= -attempt & _ALL
        return self._named[self._owners[key % self._size]]


def maglev(source: Source[T], policy: Policy, memory: Memory, rng: Random) -> Picker[T]:  # noqa: ARG001 - one signature
    """The picker of `TABLE`; the source's weights are shares of 1. ValueError for a table size that is no prime."""
    size = policy.table_size
    if not is_prime(size) or size > TABLE_MOST:
        raise ValueError(f"a maglev table has a prime number of slots, at most {TABLE_MOST}, not {size}")
    members = source.members
    if not members:
        return Maglev((), array("i"), ())
    order = sorted(range(len(members)), key=lambda place: members[place].key)
    keys, shares = [members[place].key for place in order], [source.weights[place] for place in order]
    slots = _slots(keys, shares, size, memory=memory, part=source.name)
    if policy.balance_factor:
        return bounded(Maglev(order, slots.owners, slots.named(order)), source, policy, memory)
    items = [members[place].item for place in order]
    return Maglev(items, slots.owners, slots.named(items))


def is_prime(number: int) -> bool:
    """By trial division: a table's size is small."""
    return number > 1 and all(number % each for each in range(2, isqrt(number) + 1))


def _starts(keys: Sequence[str], size: int, memory: Memory) -> list[tuple[int, int]]:
    """Where each key's order begins and by how much it goes on; its hashes are computed once a process."""
    known = memory.hashed(f"maglev {size}")
    for key in keys:
        if key not in known:
            text = key.encode()
            known[key] = (xxh64(text) % size, xxh64(text, 1) % (size - 1) + 1)
    return [cast("tuple[int, int]", known[key]) for key in keys]
