"""Calls of claims flowing into regions at the least cost, each unit by the cheapest way that there is. Pure integers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from reachline.core.placing import Claim

__all__ = ["WHOLE", "Net"]

WHOLE: Final = 1_000_000
"""A degree of service, in millionths: a cluster of a million calls a second is still shed to one call."""
_FAR: Final = 1
"""What a call costs away from home. Distances between regions are not known, so all that is away is equally far."""
_FEW: Final = 8
"""Regions of which all cuts are looked at: 256."""
_NEVER: Final = 2 * _FAR
"""More than any move costs."""


class Net:
    """The flow so far: how many calls of each claim are placed in each region. Written by `placing.place` only."""

    def __init__(self, claims: Sequence[Claim], rooms: Mapping[str, int]) -> None:
        self.regions = tuple(sorted(rooms))
        self.calls = [claim.calls for claim in claims]
        self.own = [[claim.rooms.get(region, 0) for region in self.regions] for claim in claims]
        self.near = [[_near(claim, region) for region in self.regions] for claim in claims]
        self.placed = [[0] * len(self.regions) for _ in claims]
        self.left = [rooms[region] for region in self.regions]
        self._cuts = tuple(self._cut(number) for number in range(1 << len(self.regions) if self._is_small else 0))

    def copy(self) -> Net:
        """Another one to try something on."""
        other = object.__new__(Net)
        other.regions, other.calls, other.own, other.near = self.regions, self.calls, self.own, self.near
        other.placed, other.left, other._cuts = [list(row) for row in self.placed], list(self.left), self._cuts
        return other

    @property
    def _is_small(self) -> bool:
        return len(self.regions) <= _FEW

    def _cut(self, number: int) -> tuple[int, list[int]]:
        """The room of the regions that the bits of `number` name, and what each claim's lines carry in the others."""
        inside = [number >> where & 1 for where in range(len(self.regions))]
        room = sum(left for left, is_in in zip(self.left, inside, strict=True) if is_in)
        return room, [sum(own for own, is_in in zip(row, inside, strict=True) if not is_in) for row in self.own]

    def fits(self, wanted: Mapping[int, int]) -> bool:
        """Whether these can have so much at once while nobody else gets less. The largest flow is the smallest cut: with few
        regions all cuts are looked at, which is a hundred times cheaper than trying.
        """
        if not self._is_small:
            return self.copy().grow(wanted)
        asked = [wanted.get(place, self.served(place)) for place in range(len(self.calls))]
        total = sum(asked)
        return all(room + sum(map(min, asked, beyond)) >= total for room, beyond in self._cuts)

    def add(self, place: int, target: int) -> bool:
        """`grow` for one, that asks first."""
        return self.fits({place: target}) and self.grow({place: target})

    def served(self, place: int) -> int:
        """Calls placed of this claim, anywhere."""
        return sum(self.placed[place])

    def wanted(self, place: int, degree: int) -> int:
        """That degree of the claim, never less than it has."""
        return max(self.served(place), self.calls[place] * degree // WHOLE)

    def grow(self, wanted: Mapping[int, int]) -> bool:
        """Place more of these claims until they have what is wanted; whether all got it. Nobody else gets less, but may move."""
        for place, target in wanted.items():
            while (missing := target - self.served(place)) > 0:
                if not self._push(place, missing):
                    return False
        return True

    def _push(self, place: int, most: int) -> int:
        """One more of this claim along the cheapest way, moving others aside; how many calls went, 0 where none can."""
        path = self._cheapest(place)
        if path is None:
            return 0
        takers, displaced = path, list(zip(path[1:], path, strict=False))
        room = min(most, self.left[path[-1][1]])
        room = min(room, *(self._more(who, where) for who, where in takers))
        room = min([room, *(self._less(who, before) for (who, _), (_, before) in displaced)])
        for who, where in takers:
            self.placed[who][where] += room
        for (who, _), (_, before) in displaced:
            self.placed[who][before] -= room
        self.left[path[-1][1]] -= room
        return room

    def _more(self, who: int, where: int) -> int:
        """Calls that the claim can take there at what the next one costs."""
        placed, near, own = self.placed[who][where], self.near[who][where], self.own[who][where]
        return min(near, own) - placed if placed < near else own - placed

    def _less(self, who: int, where: int) -> int:
        """Calls that the claim can leave there for what the last one costs."""
        placed, near = self.placed[who][where], self.near[who][where]
        return placed - near if placed > near else placed

    def _cost(self, who: int, where: int) -> int:
        """Of one call more there."""
        return _FAR if self.placed[who][where] >= self.near[who][where] else 0

    def _saved(self, who: int, where: int) -> int:
        """By one call less there."""
        return _FAR if self.placed[who][where] > self.near[who][where] else 0

    def _cheapest(self, place: int) -> list[tuple[int, int]] | None:
        """The cheapest way to room for one more call, as (claim, the region it takes): the first one is the claim itself, each
        further one makes room for the one before it by moving on. None where there is no room to be had.
        """
        ways = {where: (self._cost(place, where), None, place) for where in self._open_to(place)}
        # Moving others aside saves nothing in a plan that is best so far: what is free of cost is the cheapest.
        if free := [where for where, (cost, _, _) in ways.items() if not cost and self.left[where]]:
            return [(place, free[0])]
        best: dict[int, tuple[int, int | None, int]] = dict(ways)
        moves = self._moves()
        for _ in self.regions:
            better: dict[int, tuple[int, int | None, int]] = {}
            for (here, there), (cost, who) in moves.items():
                if here not in best:
                    continue
                known = better.get(there) or best.get(there)
                if known is None or best[here][0] + cost < known[0]:
                    better[there] = (best[here][0] + cost, here, who)
            if not better:
                break
            best.update(better)
        ends = [(cost, where) for where, (cost, _, _) in best.items() if self.left[where]]
        return _back(best, min(ends)[1]) if ends else None

    def _open_to(self, place: int) -> list[int]:
        """Regions whose lines of this claim can take more."""
        return [where for where, own in enumerate(self.own[place]) if own > self.placed[place][where]]

    def _moves(self) -> dict[tuple[int, int], tuple[int, int]]:
        """From region to region: the claim that moves at the least cost, and that cost."""
        found: dict[tuple[int, int], tuple[int, int]] = {}
        for who, placed in enumerate(self.placed):
            for here in (where for where, calls in enumerate(placed) if calls):
                for there in self._open_to(who):
                    cost = self._cost(who, there) - self._saved(who, here)
                    if there != here and (cost, who) < found.get((here, there), (_NEVER, 0)):
                        found[here, there] = (cost, who)
        return found


def _near(claim: Claim, region: str) -> int:
    """How many of its calls are at home there."""
    if claim.usual:
        return claim.usual.get(region, 0)
    return claim.calls if claim.home in ("", region) else 0


def _back(best: Mapping[int, tuple[int, int | None, int]], end: int) -> list[tuple[int, int]]:
    path: list[tuple[int, int]] = []
    where: int | None = end
    while where is not None:
        _, before, who = best[where]
        path.append((who, where))
        where = before
    return path[::-1]
