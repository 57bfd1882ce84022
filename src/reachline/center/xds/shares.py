"""What data planes are told of each line's share and health: the weights that the center published, and nothing else. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from reachline.center.board import Cluster
from reachline.center.xds.layout import Layout
from reachline.core.steer import WHOLE, steered
from reachline.model import Gate, Health, LineId, Standing
from reachline.wire.xds_assigned import WEIGHTS_MOST, Told, said

__all__ = ["Shares"]

_LEAST: Final = 50
"""One part in so many is the least that degraded lines (and the others) must have to be told as degraded: Envoy splits between
both in whole percent, and a share of less than two could come out as half or nothing."""


_MANY: Final = 4
"""Where one line in so many stands otherwise, all are looked at: one by one costs four times as much a line."""
_HEALTHY, _DEGRADED, _UNHEALTHY, _DRAINING = Health.HEALTHY, Health.DEGRADED, Health.UNHEALTHY, Health.DRAINING
_CLOSED: Final = Gate.CLOSED
"""Looked up once: an enum's attribute costs eight times as much as a name."""


@lru_cache(maxsize=1 << 14)
def _told(weight: int, health: Health) -> Told:
    # Made once for all lines of which it is said; 2**14: weights move among few values between two ticks.
    return said(weight, health)


@lru_cache(maxsize=1 << 14)
def _well(weight: int) -> Told:
    # By its weight alone: an enum is hashed in Python, and most lines are well.
    return said(weight, _HEALTHY if weight else _UNHEALTHY)


class Shares:
    """Of one cluster for one audience. Written by its owner; what did not change since the last snapshot is not looked at again."""

    def __init__(self, *, tells_degraded: bool) -> None:
        """`tells_degraded`: degraded lines are told as such, for clients that give them their weight all the same."""
        self.dropped_millionths = 0
        """The share of all calls that is to be refused."""
        self._tells_degraded = tells_degraded
        self._layout = Layout()
        self._places: dict[LineId, int] = {}
        self._standings: dict[LineId, Standing] = {}
        self._weights: list[int] = []
        self._healths: list[Health] = []
        self._worse: set[int] = set()
        """Places of degraded lines."""
        self._told: list[Told] = []
        self._is_plain = False

    def told(self, cluster: Cluster, layout: Layout) -> list[Told]:
        """What is said of each spot now, in the order of the layout.

        Who gets nothing is UNHEALTHY (DRAINING where an operator says so).
        """
        if layout is not self._layout:
            self._layout, self._standings = layout, {}
            self._places = {}
            self._is_plain = False
        places = self._take(cluster)
        weights, self.dropped_millionths = self._steered(cluster)
        fitted = _fitted(weights)
        tells = self._tells_degraded and self._tells_apart(fitted)
        is_plain = fitted is self._weights and tells is self._tells_degraded
        if places is not None and self._is_plain and is_plain:
            told = list(self._told)
            for at in places:
                told[at] = _said(fitted[at], self._healths[at], tells_degraded=tells)
        else:
            rows = zip(fitted, self._healths, strict=True)
            told = [
                _well(weight) if health is _HEALTHY else _said(weight, health, tells_degraded=tells)
                for weight, health in rows
            ]
        self._told, self._is_plain = told, is_plain
        return told

    def _take(self, cluster: Cluster) -> set[int] | None:
        """The places of which something new is said; None: more than a few, or all of a new layout."""
        before, after = self._standings, cluster.snapshot.standings
        new = [standing for standing in after if before.get(standing.line) is not standing] if before else after
        if _MANY * len(new) >= len(after):
            self._take_all(after)
            return None
        before.update({standing.line: standing for standing in new})
        if len(before) > len(after):
            gone = before.keys() - {standing.line for standing in after}
            for line in gone:
                del before[line]
        else:
            gone = set()
        known = self._places = self._places or {
            line: at for at, lines in enumerate(self._layout.lines) for line in lines
        }
        places = {known[line] for line in (*gone, *(standing.line for standing in new)) if line in known}
        for at in places:
            found = [before[line] for line in self._layout.lines[at] if line in before]
            self._weights[at] = sum([standing.weight for standing in found])
            self._healths[at] = health = _health(found)
            if health is _DEGRADED:
                self._worse.add(at)
            else:
                self._worse.discard(at)
        return places

    def _take_all(self, standings: Sequence[Standing]) -> None:
        """Everything, without looking for what differs."""
        before = self._standings = {standing.line: standing for standing in standings}
        try:  # most clusters, and large ones: each spot is one line, and stands somewhere
            found = [before[line] for (line,) in self._layout.lines]
        except (KeyError, ValueError):
            rows = [[before[line] for line in lines if line in before] for lines in self._layout.lines]
            self._weights = [sum([each.weight for each in row]) for row in rows]
            self._healths = [_health(row) for row in rows]
        else:
            self._weights = [each.weight for each in found]
            self._healths = [
                _HEALTHY if (health := each.health) is not _DEGRADED and health is not _DRAINING else _health((each,))
                for each in found
            ]
        self._worse = {at for at, health in enumerate(self._healths) if health is _DEGRADED}

    def _tells_apart(self, weights: Sequence[int]) -> bool:
        """Whether an Envoy would split calls between degraded lines and the others as their weights say."""
        degraded = sum([weights[at] for at in self._worse])
        total = sum(weights) if degraded else 0
        least = min(degraded, total - degraded)
        return least == 0 or _LEAST * least >= total

    def _steered(self, cluster: Cluster) -> tuple[list[int], int]:
        """Weights as the plan across regions leaves them, and what it refuses."""
        if cluster.steer is None or not cluster.rules.acts("regions"):
            return self._weights, 0
        regions = [spot.region for spot in self._layout.spots]
        return steered(self._weights, regions, cluster.steer.shares), WHOLE - cluster.steer.admitted


def _fitted(weights: list[int]) -> list[int]:
    """The same shares, summing to no more than xDS allows."""
    total = sum(weights)
    if total <= WEIGHTS_MOST:
        return weights
    most = WEIGHTS_MOST - len(weights)
    return [max(1, weight * most // total) if weight else 0 for weight in weights]


def _health(found: Sequence[Standing]) -> Health:
    """Of the lines of one spot: degraded or drained where all of them are."""
    # Half-open lines and those that return get their share as published: the trial is the center's.
    healths = {_HEALTHY if each.health is _DEGRADED and each.gate is not _CLOSED else each.health for each in found}
    (only,) = healths if len(healths) == 1 else (_HEALTHY,)
    return only if only is _DEGRADED or only is _DRAINING else _HEALTHY


def _said(weight: int, health: Health, *, tells_degraded: bool) -> Told:
    if not weight:
        return _told(0, _DRAINING if health is _DRAINING else _UNHEALTHY)
    return _told(weight, _DEGRADED) if tells_degraded and health is _DEGRADED else _well(weight)
