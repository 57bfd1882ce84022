"""Who is carried where, once what is left does not carry everything: the order of business across regions.

Clusters claim calls a second; regions have room for some. The plan serves the highest priority as far as it can be served at
all, then the next one with what that left, and never takes from one to give to a lower one. Within a priority all are served to
the same degree as far as rooms allow. Of all such plans it is one that leaves the most at home. Integers only: a maximum flow of
least cost, grown level by level, so the plan is the optimum and not a guess at it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from reachline.core.flow import WHOLE, Net

__all__ = ["Claim", "Placed", "Plan", "place"]


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
    net = Net(ordered, rooms)
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


def _serve(net: Net, level: Sequence[int]) -> None:
    """One priority, evenly: all of it to the highest degree that can be had, then again without those that are at their end."""
    open_ones = list(level)
    while open_ones:
        degree = _highest(net, open_ones)
        net.grow({place: net.wanted(place, degree) for place in open_ones})
        # What a degree rounds away, one call at a time; who cannot take one more is at the end of what there is.
        able = [place for place in open_ones if net.add(place, min(net.served(place) + 1, net.calls[place]))]
        open_ones = [place for place in able if net.served(place) < net.calls[place]]


def _highest(net: Net, places: Sequence[int]) -> int:
    """The highest degree to which all of these can be served at once, by halving."""
    if net.fits({place: net.calls[place] for place in places}):
        return WHOLE
    low, high = 0, WHOLE
    while high - low > 1:
        middle = (low + high) // 2
        if net.fits({place: net.wanted(place, middle) for place in places}):
            low = middle
        else:
            high = middle
    return low
