"""A region dies under load: the center's own parts, its journal and real clients in one process, under a clock of the test's."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from reachline.center.board import Board, ConfigStatus
from reachline.center.ledgers import compiled
from reachline.center.owner import Owner
from reachline.center.roster import Roster
from reachline.center.stream import Stream
from reachline.client.answer import line_list
from reachline.doors import reach
from reachline.errors import Shed
from reachline.model import Counts, Kind, Reading, Scope, VantageId
from reachline.store.journal import Journal
from reachline.store.recover import recover
from reachline.store.replay import replay
from reachline.upstream import Cluster
from reachline.wire.frame import Report

REGIONS = ("east", "north", "west")
PRIORITIES = {"gold": 30, "silver": 20, "bronze": 10, "rest": 1}
RATE = 100
"""Calls a second of each cluster: 400 in all, where three regions carry 480 and two of them 320."""
VANTAGES = tuple(map(VantageId, ("v1", "v2", "v3")))
DOCUMENT = f"""
mode: fast
judge: {{tick: 1s}}
regions: {{{", ".join(f"{region}: {{capacity: 160}}" for region in REGIONS)}}}
agents: {{v1: {{}}, v2: {{}}, v3: {{}}}}
clusters:
""" + "\n".join(
    f"  {name}:\n    priority: {priority}\n    lines: {{"
    + ", ".join(
        f"{region}: {{to: 'tcp://10.{at}.0.{priority}:443', region: {region}, capacity: 100}}"
        for at, region in enumerate(REGIONS)
    )
    + "}"
    for name, priority in PRIORITIES.items()
)


def reading(*, works: bool) -> Reading:
    if works:
        return Reading(Kind.TCP, Counts(ok=20), 20, 0, 3, 3, answered=20, p50_us=20_000, p95_us=30_000, fresh_ok=2)
    return Reading(Kind.TCP, Counts(late=20), 20, 20, 3, 0, fresh_failed=2)


class World:
    """A center and one client of each cluster; time passes by `run` alone."""

    def __init__(self, directory: Path, text: str = DOCUMENT) -> None:
        self.ms, self.dead = 0, ""
        self.journal = Journal.open(directory)
        document = reach.read(text, name="reachline.yaml")
        config = ConfigStatus(name="", digest="", loaded=0.0)
        self.board = Board(clock=lambda: self.ms, origin=0.0, roster=Roster({}), config=config)
        self.owner = Owner(board=self.board, stream=Stream(self.board), journal=self.journal, ledgers={}, holds={})
        self.owner.begin(compiled(document))
        self.clients = {
            name: Cluster(name, clock=lambda: self.ms / 1_000, rng=Random(at)) for at, name in enumerate(PRIORITIES)
        }
        for client in self.clients.values():
            client.wake()
        self.rate = RATE
        self.seen: Counter[tuple[str, str]] = Counter()
        """Calls by cluster, and where they ended: a region, `failed`, or `shed`."""

    async def run(self, seconds: int) -> None:
        for _ in range(10 * seconds):
            self.ms += 100
            for name, client in self.clients.items():
                for _ in range(self.rate // 10):
                    self._call(name, client)
            if self.ms % 1_000 == 0:
                self._report()
            await self.owner.tick()
            self._push()

    def _call(self, name: str, client: Cluster) -> None:
        try:
            pick = client.pick()
        except Shed:
            self.seen[name, "shed"] += 1
            return
        if pick is None:
            return
        region = pick.line.partition("/")[2]
        client.report(pick, "refused" if region == self.dead else None)
        self.seen[name, "failed" if region == self.dead else region] += 1

    def _report(self) -> None:
        for name, client in self.clients.items():
            for vantage in VANTAGES:
                rows = [
                    Report(line=f"{name}/{region}", reading=reading(works=region != self.dead)) for region in REGIONS
                ]
                self.owner.report(vantage, rows)
            taken, shed = client.take("test"), client.tally.take_shed()
            self.owner.outcomes(Scope(cluster=name), f"client-{name}", taken, shed=shed)

    def _push(self) -> None:
        for name, client in self.clients.items():
            if client.version is None or self.board.clusters[name].value.version > client.version:
                client.replace(line_list(json.loads(self.board.body(name)), cluster=name), source="center")

    def shares(self) -> dict[str, float]:
        """Of each cluster's calls that were looked at last, those that were carried."""
        calls = Counter[str]()
        for (name, _), each in self.seen.items():
            calls[name] += each
        lost = {name: self.seen[name, "shed"] + self.seen[name, "failed"] for name in calls}
        return {name: 1 - lost[name] / calls[name] for name in calls}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "journal")


def test_five_seconds_after_a_region_died_high_priorities_are_carried_whole_and_the_lowest_is_shed_as_planned(
    world: World, tmp_path: Path
) -> None:
    async def story() -> None:
        await world.run(20)
        assert world.shares() == dict.fromkeys(PRIORITIES, 1.0)
        assert not any(ledger.board.steer for ledger in world.owner.ledgers.values())

        world.dead = "east"
        await world.run(5)
        world.seen.clear()
        await world.run(10)

        shares = world.shares()
        assert [shares[name] for name in ("gold", "silver", "bronze")] == [1.0, 1.0, 1.0]
        assert shares["rest"] == pytest.approx(0.2, abs=0.04)
        for region in ("north", "west"):
            assert sum(calls for (_, where), calls in world.seen.items() if where == region) <= 10 * 160 * 1.05

    asyncio.run(story())
    world.journal.close()
    done = replay(tmp_path / "journal")
    assert done.difference is None
    kept = recover(tmp_path / "journal").ledgers
    assert {scope.cluster: ledger.board.steer for scope, ledger in kept.items()} == {
        scope.cluster: ledger.board.steer for scope, ledger in world.owner.ledgers.items()
    }


def test_the_plan_ends_once_what_is_asked_for_is_carried_by_weight(world: World) -> None:
    async def story() -> None:
        await world.run(5)
        world.dead = "east"
        await world.run(8)
        assert world.owner.ledgers[Scope(cluster="rest")].board.steer is not None
        world.rate = 60
        await world.run(25)
        assert not any(ledger.board.steer for ledger in world.owner.ledgers.values())
        world.seen.clear()
        await world.run(2)

    asyncio.run(story())
    world.journal.close()
    assert world.shares() == dict.fromkeys(PRIORITIES, 1.0)
