"""Ring hash: each endpoint at many points of a ring of 64-bit hashes; a key belongs to the first point at or after it.

Points are where Envoy puts them (`key_0`, `key_1`, …, as many as weights and sizes give), so that a key reaches the same endpoint
from both. When an endpoint goes, the points of the others stay where they are; few keys besides its own move, to points that the
others get more of.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from math import ceil
from random import Random
from typing import Final, Generic, TypeVar

from reachline.core.hashing import murmur2_64, xxh64
from reachline.core.pick.bounded import bounded
from reachline.core.pick.member import Memory, Picker, Source
from reachline.core.pick.policy import HashFunction, Policy

__all__ = ["Ring", "points", "ring_hash"]

T = TypeVar("T")

_HASHES: Final[dict[HashFunction, Callable[[bytes], int]]] = {
    HashFunction.XX_HASH: xxh64,
    HashFunction.MURMUR_HASH_2: murmur2_64,
}


def points(shares: Sequence[float], *, least: int, most: int) -> list[int]:
    """How many points of the ring each endpoint has; `shares` sum to 1 and are above 0.

    So many that the lightest has a whole number and all together `least` or more, or as `most` allows. Doubles, as in Envoy.
    """
    if not shares:
        return []
    lightest = min(shares)
    scale = min(ceil(lightest * least) / lightest, float(most))
    current, target, found = 0, 0.0, []
    for share in shares:
        target += scale * share
        before, current = current, max(current, ceil(target))
        found.append(current - before)
    return found


class Ring(Generic[T]):
    """Items on a ring of hashes. Without a key any point is as good as another."""

    __slots__ = ("_hashes", "_owners", "items")

    def __init__(self, items: Sequence[T], hashes: Sequence[Sequence[int]]) -> None:
        """`hashes` are each item's points."""
        ring = sorted((each, place) for place, own in enumerate(hashes) for each in own)
        self.items: Final = tuple(items)
        self._hashes: Final = [each for each, _ in ring]
        self._owners: Final = [self.items[place] for _, place in ring]

    def pick(self, rng: Random, key: int | None = None, attempt: int = 0) -> T | None:
        """The key's item, or the one `attempt` points after it; None without items."""
        owners = self._owners
        if not owners:
            return None
        place = bisect_left(self._hashes, rng.getrandbits(64) if key is None else key) + attempt
        return owners[place if place < len(owners) else place % len(owners)]


def ring_hash(source: Source[T], policy: Policy, memory: Memory, rng: Random) -> Picker[T]:  # noqa: ARG001 - one signature
    """The picker of `TABLE`; the source's weights are shares of 1."""
    members = source.members
    counts = points(source.weights, least=policy.ring_least, most=policy.ring_most)
    known = memory.hashed(policy.hash_function.value)
    hashes = [
        found if (found := known.get(each.key, ())) and len(found) == count else _hashed(each.key, count, policy, known)
        for each, count in zip(members, counts, strict=True)
    ]
    if policy.balance_factor:
        return bounded(Ring(range(len(members)), hashes), source, policy, memory)
    return Ring([member.item for member in members], hashes)


def _hashed(key: str, count: int, policy: Policy, known: dict[str, tuple[int, ...]]) -> Sequence[int]:
    """Hashes of `key_0`…, computed once a process."""
    own = known.get(key, ())
    if len(own) < count:
        hashed, text = _HASHES[policy.hash_function], key.encode()
        own = known[key] = (*own, *(hashed(b"%b_%d" % (text, number)) for number in range(len(own), count)))
    return own[:count]
