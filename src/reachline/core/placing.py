"""Who is carried where, once what is left does not carry everything: the order of business across regions.

Clusters claim calls a second; regions have room for some. The plan serves the highest priority as far as it can be served at
all, then the next one with what that left, and never takes from one to give to a lower one. Within a priority all are served to
the same degree as far as rooms allow. Of all such plans it is one that leaves the most at home. Integers only: a maximum flow of
least cost, grown level by level, so the plan is the optimum and not a guess at it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

__all__ = ["Claim", "Placed", "Plan", "place"]

_WHOLE: Final = 1_000_000
"""A degree of service, in millionths: a cluster of a million calls a second is still shed to one call."""
_FAR: Final = 1
"""What a call costs away from home. Distances between regions are not known, so all that is away is equally far."""
_NEVER: Final = 2 * _FAR
"""More than any move costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one cluster wants: `calls` a second, how much of it each region's lines of the cluster can take (`rooms`; a region
    that is not named has no line of it), and where it is at home: in one region, or by `usual` calls a second in several.
    """

    cluster: str
    calls: int
    rooms: Mapping[str, int]
    home: str = ""
    priority: int = 0
    """Higher is served first."""
    usual: Mapping[str, int] = field(default_factory=dict)
    """What it has in each region while nothing is scarce: so much is at home there. Empty: all of it is, in `home`."""


class Placed(NamedTuple):
    """Calls a second of one cluster in one region."""

    cluster: str
    region: str
    calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Who is carried where, by cluster and region, and the calls a second of each cluster that nobody can carry."""

    placed: tuple[Placed, ...]
    shed: Mapping[str, int]

    def in_region(self, cluster: str, region: str) -> int:
        """Calls a second."""
        return sum(each.calls for each in self.placed if (each.cluster, each.region) == (cluster, region))


def place(claims: Sequence[Claim], rooms: Mapping[str, int]) -> Plan:
    """The plan for these claims where each region carries `rooms` calls a second in all; ValueError where a figure is negative."""
    _check(claims, rooms)
    ordered = sorted(claims, key=lambda claim: (-claim.priority, claim.cluster))
    net = _Net(ordered, rooms)
    for priority in dict.fromkeys(claim.priority for claim in ordered):
        _serve(net, [place for place, claim in enumerate(ordered) if claim.priority == priority])
    placed = tuple(
        Placed(claim.cluster, region, calls)
        for place, claim in enumerate(ordered)
        for region, calls in zip(net.regions, net.placed[place], strict=True)
        if calls
    )
    shed = {claim.cluster: claim.calls - sum(net.placed[place]) for place, claim in enumerate(ordered)}
    return Plan(placed=placed, shed={cluster: calls for cluster, calls in shed.items() if calls})


def _check(claims: Sequence[Claim], rooms: Mapping[str, int]) -> None:
    names = [claim.cluster for claim in claims]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{twice[0]}: claims twice")
    for claim in claims:
        if claim.calls < 0 or min((*claim.rooms.values(), *claim.usual.values()), default=0) < 0:
            raise ValueError(f"{claim.cluster}: calls and rooms are 0 or more")
    if less := sorted(region for region, room in rooms.items() if room < 0):
        raise ValueError(f"{less[0]}: a region's room is 0 or more")


def _serve(net: _Net, level: Sequence[int]) -> None:
    """One priority, evenly: all of it to the highest degree that can be had, then again without those that are at their end."""
    open_ones = list(level)
    while open_ones:
        degree = _highest(net, open_ones)
        net.grow({place: net.wanted(place, degree) for place in open_ones})
        # What a degree rounds away, one call at a time; who cannot take one more is at the end of what there is.
        able = [place for place in open_ones if net.grow({place: min(net.served(place) + 1, net.calls[place])})]
        open_ones = [place for place in able if net.served(place) < net.calls[place]]


def _highest(net: _Net, places: Sequence[int]) -> int:
    """The highest degree to which all of these can be served at once, by halving."""
    if net.copy().grow({place: net.calls[place] for place in places}):
        return _WHOLE
    low, high = 0, _WHOLE
    while high - low > 1:
        middle = (low + high) // 2
        trial = net.copy()
        if trial.grow({place: trial.wanted(place, middle) for place in places}):
            low = middle
        else:
            high = middle
    return low


class _Net:
    """The flow so far: how many calls of each claim are placed in each region. Written by `place` only."""

    def __init__(self, claims: Sequence[Claim], rooms: Mapping[str, int]) -> None:
        self.regions = tuple(sorted(rooms))
        self.calls = [claim.calls for claim in claims]
        self.own = [[claim.rooms.get(region, 0) for region in self.regions] for claim in claims]
        self.near = [[_near(claim, region) for region in self.regions] for claim in claims]
        self.placed = [[0] * len(self.regions) for _ in claims]
        self.left = [rooms[region] for region in self.regions]

    def copy(self) -> _Net:
        """Another one to try something on."""
        other = object.__new__(_Net)
        other.regions, other.calls, other.own, other.near = self.regions, self.calls, self.own, self.near
        other.placed, other.left = [list(row) for row in self.placed], list(self.left)
        return other

    def served(self, place: int) -> int:
        """Calls placed of this claim, anywhere."""
        return sum(self.placed[place])

    def wanted(self, place: int, degree: int) -> int:
        """That degree of the claim, never less than it has."""
        return max(self.served(place), self.calls[place] * degree // _WHOLE)

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
