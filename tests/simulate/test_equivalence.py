"""The simulator holds no rule of its own: its evidence, given to the center's own code and journal, is decided the same."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from tests.simulate.short import hard_down

from reachline.center.board import Board, ConfigStatus
from reachline.center.ledgers import compiled
from reachline.center.owner import Owner
from reachline.center.roster import Roster
from reachline.center.stream import Stream
from reachline.model import Version
from reachline.simulate.contender import Run
from reachline.simulate.reach.contender import Reachline
from reachline.simulate.reach.document import document
from reachline.simulate.scenarios import Scenario
from reachline.simulate.timeline import Timeline
from reachline.simulate.world import World
from reachline.store.journal import Journal
from reachline.store.records import Bodies, Outcomes, Record, Reported, Ticked
from reachline.store.replay import replay
from reachline.store.segment import Segment, listed
from reachline.wire.frame import Detail, Report


def simulated(scenario: Scenario) -> tuple[Record, ...]:
    """A run's evidence and ticks, as the simulator's center took them."""
    made: list[Reachline] = []

    def make(run: Run) -> Reachline:
        made.append(Reachline(run, scenario, Timeline(scenario), mode="fast", keeps=True))
        return made[0]

    World(scenario, make, seed=1).go()
    return tuple(made[0].center.records)


def judged(scenario: Scenario, records: Iterable[Record], directory: Path) -> None:
    """The same evidence through a real owner into a real journal."""
    now = [0]
    journal = Journal.open(directory)
    board = Board(
        clock=lambda: now[0], origin=0.0, roster=Roster({}), config=ConfigStatus(name="", digest="", loaded=0.0)
    )
    board.version = Version(1, 0)
    owner = Owner(board=board, stream=Stream(board), journal=journal, ledgers={}, holds={})
    owner.begin(compiled(document(scenario, mode="fast", seed=1)))

    async def work() -> None:
        for record in records:
            now[0] = record.at_ms
            match record:
                case Reported():
                    rows = [Report(line=line, reading=reading, detail=Detail()) for line, reading in record.readings]
                    owner.report(record.vantage, rows, doubt=record.doubt)
                case Outcomes():
                    owner.outcomes(record.scope, record.client, record.rows)
                case Ticked():
                    await owner.tick()
                case _:
                    pass

    asyncio.run(work())
    journal.close()


def ticks(directory: Path) -> list[tuple[int, bytes, int]]:
    """(at, seal of all rows, decisions) of every tick in a journal."""
    found = []
    for place in listed(directory):
        bodies = Bodies()
        with Segment(place) as segment:
            for stored in segment.records():
                record = bodies.read(stored.kind, stored.scope, stored.at_ms, stored.body)
                if isinstance(record, Ticked):
                    found.append((record.at_ms, record.digest, len(record.changes)))
    return found


def test_a_simulated_run_and_the_center_s_own_journal_hold_the_same_decisions(tmp_path: Path) -> None:
    scenario = hard_down()
    records = simulated(scenario)

    judged(scenario, records, tmp_path / "journal")

    decided = [(one.at_ms, one.digest, len(one.changes)) for one in records if isinstance(one, Ticked)]
    assert sum(changes for _, _, changes in decided) >= 3
    assert ticks(tmp_path / "journal") == decided
    done = replay(tmp_path / "journal")
    assert done.difference is None
    assert done.ticks == len(decided)
