"""Balancing among localities: by their weights and health, or so that calls stay at home as far as the endpoints there go."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping, Sequence
from itertools import accumulate
from random import Random
from typing import Final, Generic, NamedTuple, TypeVar

from reachline.core.pick.member import Member, Picker
from reachline.core.pick.policy import Zoning
from reachline.model import Locality

__all__ = ["Nested", "Zoned", "Zones", "by_locality", "effective", "zones"]

T = TypeVar("T")

WHOLE: Final = 10_000
"""Parts that shares of localities are counted in, as in Envoy."""


def by_locality(members: Sequence[Member[T]]) -> dict[Locality, list[Member[T]]]:
    """Members by their locality, in the order met."""
    found: dict[Locality, list[Member[T]]] = {}
    for member in members:
        found.setdefault(member.locality, []).append(member)
    return found


def effective(weight: int, *, eligible: int, usable: int, overprovision: int) -> float:
    """A locality's weight by its health: all of it while overprovisioned health is 1 or more, then in proportion."""
    if not usable:
        return 0.0
    return weight * min(1.0, (overprovision / 100.0) * (1.0 * eligible / usable))


class Nested(Generic[T]):
    """A picker of pickers: a locality first, then an endpoint in it."""

    __slots__ = ("_outer", "items")

    def __init__(self, outer: Picker[Picker[T]]) -> None:
        self._outer: Final = outer
        self.items: Final = tuple(item for inner in outer.items for item in inner.items)

    def pick(self, rng: Random, key: int | None = None, attempt: int = 0) -> T | None:
        """One item of the locality whose turn it is."""
        inner = self._outer.pick(rng, key, attempt)
        return None if inner is None else inner.pick(rng, key, attempt)


class Zones(NamedTuple):
    """Where calls from home go: `home` of `WHOLE` parts stay; the rest by what other localities have to spare."""

    home: int
    spare: Mapping[Locality, int]


def zones(members: Sequence[Member[T]], zoning: Zoning) -> Zones | None:
    """How zone aware routing divides the healthy `members`, or None where it does not apply.

    It does not with fewer than two localities on either side, with no caller known at home, or in a small cluster.
    """
    here = {where: _size(each, zoning) for where, each in by_locality(members).items()}
    callers = {where: count for where, count in zoning.callers.items() if count > 0}
    is_forced = zoning.force_home_least is not None
    if len(here) < 2 or zoning.home not in callers or len(members) < zoning.cluster_least:
        return None
    if len(callers) < 2 and not is_forced:
        return None
    part = {where: WHOLE * size // sum(here.values()) for where, size in here.items()}
    wanted = {where: WHOLE * count // sum(callers.values()) for where, count in callers.items()}
    at_home, asked = part.get(zoning.home, 0), wanted[zoning.home]
    number = sum(member.locality == zoning.home for member in members)
    if (at_home and at_home >= asked) or (number and is_forced and number >= (zoning.force_home_least or 0)):
        return Zones(WHOLE, {})
    spare = {where: max(each - wanted.get(where, 0), 0) for where, each in part.items() if where != zoning.home}
    return Zones(at_home * WHOLE // asked if asked else 0, spare)


def _size(members: Sequence[Member[T]], zoning: Zoning) -> int:
    return sum(member.weight for member in members) if zoning.by_weight else len(members)


class Zoned(Generic[T]):
    """Home first, then the others by what they have to spare; alike where rounding left none of them any."""

    __slots__ = ("_home", "_others", "_stay", "_sums", "items")

    def __init__(self, pickers: Mapping[Locality, Picker[T]], plan: Zones, home: Locality) -> None:
        self.items: Final = tuple(item for picker in pickers.values() for item in picker.items)
        self._home: Final = pickers.get(home)
        spare = plan.spare if any(plan.spare.values()) else dict.fromkeys(pickers, 1)
        some = [(pickers[where], size) for where, size in spare.items() if size]
        self._others: Final = tuple(picker for picker, _ in some)
        self._sums: Final = list(accumulate(size for _, size in some))
        self._stay: Final = plan.home

    def pick(self, rng: Random, key: int | None = None, attempt: int = 0) -> T | None:
        """One item of the locality that chance gives this call."""
        if self._home is not None and rng.random() * WHOLE < self._stay:
            return self._home.pick(rng, key, attempt)
        return self._others[bisect(self._sums, rng.randrange(self._sums[-1]))].pick(rng, key, attempt)
