"""Posts of calls that come between the same two ticks may come as one: no decision can tell."""

from __future__ import annotations

import pytest
from tests.simulate.short import hard_down

from reachline.simulate.contender import Run
from reachline.simulate.reach.contender import Reachline
from reachline.simulate.scenarios import Scenario
from reachline.simulate.timeline import Timeline
from reachline.simulate.world import World
from reachline.store.records import Outcomes


def played(scenario: Scenario, mode: str, *, keeps: bool) -> tuple[Reachline, World]:
    made: list[Reachline] = []

    def make(run: Run) -> Reachline:
        made.append(Reachline(run, scenario, Timeline(scenario), mode=mode, keeps=keeps))
        return made[0]

    world = World(scenario, make, seed=1)
    world.go()
    return made[0], world


@pytest.mark.parametrize("mode", ["fast", "literal"])
@pytest.mark.parametrize("away", [[], [{"from": 20, "to": 26, "center": "restart"}]], ids=["", "center restarted"])
def test_posts_that_wait_for_the_tick_change_no_decision(mode: str, away: list[dict[str, object]]) -> None:
    # A whole number of ticks in both modes, so that nothing waits at the end.
    down: list[dict[str, object]] = [{"from": 30, "to": 50, "line": "L1", "set": {"connect_fail": 1.0}}]
    scenario = hard_down(duration_s=60, phases=[*down, *away])

    each, world = played(scenario, mode, keeps=True)
    joined, other = played(scenario, mode, keeps=False)

    assert joined.center.ledger.freeze() == each.center.ledger.freeze()
    assert joined.told.changes == each.told.changes
    assert other.observer.events == world.observer.events
    assert sum(isinstance(record, Outcomes) for record in each.center.records) > 100
