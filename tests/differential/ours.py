"""Ours, from the same document that Envoy has: a cluster kept in process, its time moved and its calls told by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from random import Random
from typing import Any

from reachline.core.ejection import Monitor
from reachline.core.outlier_events import Saw
from reachline.core.outlier_rules import OutlierRules
from reachline.core.pick import Memory
from reachline.core.pick.build import loads_of
from reachline.core.pick.priorities import Loads
from reachline.doors.envoy import Cluster, read
from reachline.members import Membership, compare
from reachline.upstream.kept import KeptCluster
from reachline.upstream.reading import read as read_kept
from reachline.upstream.settings import policy_of

CHANCE = Random(1)


class Kept:
    """One cluster without a network. Endpoints are named by their ports, times are in ms from 0 on."""

    def __init__(self, document: Mapping[str, Any], memory: Memory | None = None) -> None:
        name = document["name"]
        own = {key: value for key, value in document.items() if key != "name"}
        settings = read_kept({name: own}, place=name)[name]
        self.now_ms = 0
        self._events: list[Mapping[str, object]] = []
        self.cluster = KeptCluster(
            settings,
            clock=lambda: self.now_ms / 1_000,
            wall=lambda: 0.0,
            rng=Random(CHANCE.random()),
            hear=self._events.append,
        )
        if memory is not None:
            self.cluster._judged.memory = memory
        self.cluster.update(compare(Membership(), settings.membership))
        self.cluster.wake()
        self._picks = {str(row.member.address.port): row.seat.item for row in self.cluster.rows()}

    def pick(self, key: str | None = None) -> int | None:
        """An endpoint; `key` is a header's value."""
        found = self.cluster.pick(key)
        return None if found is None or found.address is None else found.address[1]

    @property
    def items(self) -> set[int]:
        """Endpoints that calls may reach now."""
        return {int(item.target.rpartition(":")[2]) for item in self.cluster._pickers.all.items}

    def saw(self, port: str, saw: Saw, now_ms: int, *, code: int | None = None) -> None:
        self.now_ms = now_ms
        self.cluster.saw(self._picks[port], saw, code=code)

    def turn(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.cluster.turn()

    @property
    def rules(self) -> OutlierRules:
        found = self.cluster.settings.outliers
        assert found is not None
        return found

    @property
    def ejected(self) -> set[int]:
        return {int(each.rpartition(":")[2]) for each in self.cluster.open_lines()}

    @property
    def counts(self) -> dict[str, int]:
        """Of outlier detection, without its name before them."""
        return {name.partition(".")[2]: count for name, count in self.cluster.metrics().items() if "." in name}

    @property
    def events(self) -> list[dict[str, Any]]:
        """As its log has them, but for the time of day."""
        self.cluster.events.flush()
        return [json.loads(json.dumps({**each, "timestamp": ""})) for each in self._events]

    def monitor(self, port: str) -> Monitor:
        outliers = self.cluster._judged.outliers
        assert outliers is not None
        found = outliers.monitor(self._picks[port].target)
        assert found is not None
        return found

    def until_ms(self, port: str) -> int | None:
        """The planned end of an ejection."""
        (told,) = self.cluster.explain(self._picks[port].target)
        return None if told.ejection is None else told.ejection.until_ms


def cluster(document: Mapping[str, Any]) -> Cluster:
    """The one cluster of a document, read as text: as Envoy reads it."""
    return read(json.dumps([document])).clusters[document["name"]]


def shares(document: Mapping[str, Any]) -> Loads:
    """Percent of the calls by priority."""
    kept = Kept(document).cluster
    return loads_of(kept._judged.roll.seats(), policy_of(kept.settings, kept.settings.membership))
