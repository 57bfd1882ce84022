"""Maglev: a table of a prime number of slots, filled by the endpoints in turn, each by an order of its own.

A look-up is one division. When an endpoint goes, its slots are filled by the others and few besides change. Table and weights
are Envoy's, so that a key reaches the same endpoint from both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, cycle, islice
from math import isqrt
from random import Random
from typing import Final, Generic, TypeVar, cast

from reachline.core.hashing import xxh64
from reachline.core.pick.bounded import bounded
from reachline.core.pick.member import Memory, Picker, Source
from reachline.core.pick.policy import Policy

__all__ = ["TABLE_MOST", "Maglev", "filled", "maglev"]

T = TypeVar("T")

TABLE_MOST: Final = 5_000_011
"""The largest table Envoy allows."""
_ALIKE_MOST: Final = 64
"""Different shares up to which a round's takers are put together from all who have the same one: as long as that is less than sorting them."""
_KEPT_MOST: Final = 131_071
"""Slots up to which a table is kept for the next picker: two megabytes, and twice Envoy's usual size."""
_ALL: Final = 0xFFFF_FFFF_FFFF_FFFF


def filled(starts: Sequence[tuple[int, int]], shares: Sequence[float], size: int) -> list[int]:
    """The place of each slot's owner; `starts` are offset (0…size-1) and skip (1…size-1) by place, in the order of their keys.

    In each round every endpoint takes the next free slot of its order, the heaviest in every round, others in fewer.
    """
    return _filled(starts, _choosers(shares), size)


def _known(
    starts: Sequence[tuple[int, int]], shares: Sequence[float], size: int, last: dict[str, tuple[int, ...]]
) -> Sequence[int]:
    """What `filled` gives; the last table where the same orders take slots in the same turns.

    It often is: of many endpoints each takes a few slots, so that a weight that moves a little moves no turn, and a change in one
    priority touches no other's table. `last` is what this kept of one part of the cluster.
    """
    if size > _KEPT_MOST:
        return filled(starts, shares, size)
    turns = tuple(islice(_choosers(shares), size))
    asked, owners = (size, *chain.from_iterable(starts), *turns), last.get("owners")
    if owners is None or last.get("asked") != asked:
        owners = tuple(_filled(starts, iter(turns), size))
        last.update(asked=asked, owners=owners)
    return owners


def _filled(starts: Sequence[tuple[int, int]], choosers: Iterator[int], size: int) -> list[int]:
    """The place of each slot's owner, by who takes a slot in which turn."""
    # One list says both who has a slot and that it is taken: a look at it is what this does half a million times.
    owners: list[int | None] = [None] * size
    at, skips = [offset for offset, _ in starts], [skip for _, skip in starts]
    few = isqrt(size) // 2
    for place in islice(choosers, size - few):
        slot = at[place]
        if owners[slot] is not None:
            skip = skips[place]
            rest = size - skip
            while owners[slot] is not None:
                slot = slot + skip if slot < rest else slot - rest
            at[place] = slot
        owners[slot] = place
    # The last slots: asking where each of them stands in an order is less work than trying the order's slots one by one.
    free = [slot for slot, owner in enumerate(owners) if owner is None]
    for place in islice(choosers, few):
        skip, here = skips[place], at[place]
        back = pow(skip, -1, size)
        slot = (here + min([(each - here) * back % size for each in free]) * skip) % size
        free.remove(slot)
        owners[slot], at[place] = place, slot
    return cast("list[int]", owners)


def _choosers(shares: Sequence[float]) -> Iterator[int]:
    """Places in the order in which they take slots, without end.

    In round n a place takes one if n x share has reached its target, which then grows by the heaviest share: so the heaviest
    takes one in every round. Rounds in which a place takes none are not visited.
    """
    alike: dict[float, list[int]] = {}
    for place, share in enumerate(shares):
        alike.setdefault(share, []).append(place)
    if len(alike) == 1:
        return cycle(range(len(shares)))
    return chain.from_iterable(_rounds(alike) if len(alike) <= _ALIKE_MOST else _by_share(shares))


def _rounds(alike: Mapping[float, Sequence[int]]) -> Iterator[Sequence[int]]:
    """Who takes a slot, round by round, where few shares differ: those of one share take theirs in the same rounds."""
    heaviest, orders = max(alike), dict[tuple[float, ...], Sequence[int]]()
    targets, dues, turn = dict.fromkeys(alike, 0.0), dict.fromkeys(alike, 1), 0
    while True:
        turn += 1
        due = tuple([share for share, at in dues.items() if at == turn])
        order = orders.get(due)
        if order is None:
            order = orders[due] = sorted(place for share in due for place in alike[share])
        yield order
        for share in due:
            targets[share] += heaviest
            dues[share] = _reached(targets[share], share, turn)


def _by_share(shares: Sequence[float]) -> Iterator[Sequence[int]]:
    """The same where many differ."""
    heaviest, targets = max(shares), [0.0] * len(shares)
    rounds, turn = {1: list(range(len(shares)))}, 0
    while True:
        turn += 1
        # The heaviest has one in every round, so that there is one.
        order = sorted(rounds.pop(turn))
        yield order
        for place in order:
            targets[place] += heaviest
            rounds.setdefault(_reached(targets[place], shares[place], turn), []).append(place)


def _reached(target: float, share: float, after: int) -> int:
    """The first round above `after` in which round x share, rounded as a double is, reaches the target."""
    if (after + 1) * share >= target:
        return after + 1
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
    starts = _starts([members[place].key for place in order], size, memory)
    owners = _known(
        starts, [source.weights[place] for place in order], size, memory.hashed(f"maglev table {source.name}")
    )
    if policy.balance_factor:
        return bounded(Maglev(order, owners), source, policy, memory)
    return Maglev([members[place].item for place in order], owners)


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
