"""As much of a center as steering sees: a board whose lines a test has stand as it wants."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from envoy.config.endpoint.v3 import endpoint_pb2

from reachline.center.board import Board, Cluster, ConfigStatus
from reachline.center.roster import Roster
from reachline.center.xds.resources import Audience, Cells, Kind, Resources
from reachline.center.xds.steering import Steering
from reachline.doors import reach
from reachline.model import Gate, Health, Scope, Snapshot, Standing, Version
from reachline.wire.ads import EDS

ENVOY: Final = Audience(Kind.ENVOY)


class Center:
    """As much of one as steering sees."""

    def __init__(self, text: str, health: Health = Health.UNKNOWN) -> None:
        self.now_ms = 0
        config = ConfigStatus(name="", digest="", loaded=0)
        self.board = Board(clock=lambda: self.now_ms, origin=0, roster=Roster({}), config=config)
        self.cells = Cells()
        self.read(text, health)

    def read(self, text: str, health: Health = Health.UNKNOWN) -> None:
        self.document = reach.read(text, name="d.yaml", environ={})
        for name in self.document.clusters:
            lines = {line.id: line for line in reach.lines(self.document, name)}
            standings = tuple(
                Standing(line=each.id, health=health, gate=Gate.CLOSED, step=0, weight=each.base, raw_milli=0, score=0,
                         reason="", window=0, since_ms=0)
                for each in lines.values()
            )  # fmt: skip
            snapshot = Snapshot(scope=Scope(cluster=name), version=Version(1, 1), issued_ms=0, standings=standings)
            rules = reach.rules(self.document, name)
            self.board.publish(Cluster(scope=Scope(cluster=name), lines=lines, rules=rules, snapshot=snapshot))

    def weighs(self, line: str, weight: int, health: Health) -> None:
        cluster = self.board.clusters["shop"].value
        standings = tuple(
            replace(each, weight=weight, health=health) if each.line == f"shop/{line}" else each
            for each in cluster.snapshot.standings
        )
        self.board.publish(replace(cluster, snapshot=replace(cluster.snapshot, standings=standings)))

    def steering(self) -> Steering:
        return Steering(self.board, self.cells, self.document, rng=Random(1))

    def told(self, audience: Audience = ENVOY) -> Resources | None:
        return self.cells.cell(audience).value

    def endpoints(self, audience: Audience = ENVOY) -> dict[str, list[str]]:
        found = self.told(audience)
        if found is None or (one := found.get(EDS, "shop")) is None:
            return {}
        message = endpoint_pb2.ClusterLoadAssignment.FromString(one.body)
        return {
            each.locality.sub_zone: [end.endpoint.address.socket_address.address for end in each.lb_endpoints]
            for each in message.endpoints
        }
