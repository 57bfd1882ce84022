"""Short scenarios from end to end: the same seed is the same run, limits are held, and nobody sees what they may not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.simulate.short import hard_down, scenario

from reachline.simulate.composite import composite
from reachline.simulate.counts import turns
from reachline.simulate.limits import Row, held, passed
from reachline.simulate.runner import Job, perform, play


def row(*contenders: str, seed: int = 1, **said: Any) -> list[Row]:
    return perform(Job(hard_down(**said), seed, contenders))


def figure(of: Row, name: str) -> float:
    found = of.metrics[name]
    assert isinstance(found, int | float)
    return found


def test_a_line_that_is_gone_is_left_by_clients_at_once_and_by_the_center_soon() -> None:
    ours, theirs = row("reachline", "none")

    assert ours.ok, {name: ours.metrics.get(name) for name, is_held in ours.limits.items() if not is_held}
    assert not theirs.ok
    assert figure(ours, "bad_requests") < figure(theirs, "bad_requests") / 5
    assert figure(ours, "composite") > figure(theirs, "composite")


def test_the_same_seed_is_the_same_run_and_another_is_another() -> None:
    def told(seed: int) -> str:
        return json.dumps([each._asdict() for each in row("reachline", seed=seed, duration_s=40)])

    assert told(3) == told(3)
    assert told(3) != told(4)


def test_nothing_happens_on_healthy_lines() -> None:
    world = play(scenario(), "reachline", seed=2)

    assert world.observer.events == []
    assert {round(share, 3) for share in world.observer.seconds[-1].shares.values()} == {0.333}


def test_a_few_bad_calls_where_doing_nothing_has_none_cost_their_share_of_a_hundredth() -> None:
    none = {"bad_requests": 0.0}

    assert composite({"bad_requests": 2e-6}, none, run=1_200, has_truth=False) == pytest.approx(99.99)
    assert composite({"bad_requests": 0.5}, none, run=1_200, has_truth=False) == 60.0


def test_what_sums_of_shares_miss_by_is_no_cost() -> None:
    residue = {"needless_shift": 5e-17}

    assert composite(residue, residue, run=1_200, has_truth=False) == 100.0


def test_the_oracle_is_never_worse_than_doing_nothing() -> None:
    best, idle = (play(hard_down(), name, seed=1).fleet.sums.bad for name in ("oracle", "none"))

    assert best * 10 < idle


def test_the_literal_rules_are_slower() -> None:
    said: dict[str, Any] = {
        "duration_s": 80,
        "phases": [{"from": 30, "to": 80, "line": "L1", "set": {"connect_fail": 1.0}}],
    }
    said["truth"] = [{"line": "L1", "from": 30, "to": 80, "class": "down"}]

    fast, literal = row("reachline", "reachline-literal", **said)

    assert figure(literal, "t_detect") > figure(fast, "t_detect")


def test_a_bound_is_broken_by_what_never_came_and_held_by_what_is_on_it() -> None:
    limits = hard_down().limits

    assert held(limits, {"t_detect": 5.0, "t_drain": None, "sdk_local_avoid": 2.0}, has_calls=True) == {
        "t_detect": True,
        "t_drain": False,
        "sdk_local_avoid": False,
        "false_trips_per_h": False,
    }


@pytest.mark.parametrize(("broken", "is_held"), [(1, True), (2, False)])
def test_a_bound_may_be_broken_by_one_seed_in_twenty(broken: int, is_held: bool) -> None:
    rows = [Row("s", "c", seed, {"t_detect": 1.0}, {"t_detect": seed > broken}) for seed in range(1, 21)]

    assert passed(rows) == {("s", "c"): {"t_detect": is_held}}


def test_flaps_are_quick_turns_of_more_than_twenty_points() -> None:
    def series(*values: int, every: int = 10_000) -> list[tuple[int, float]]:
        return [(at * every, float(value)) for at, value in enumerate(values)]

    assert turns(series(100, 50, 100, 50)) == 2
    assert turns(series(100, 50, 65, 50)) == 0
    assert turns(series(100, 50, 100, 50, every=90_000)) == 0
    assert turns(series(100, 0, 0, 5, 10, 20, 40, 60, 100)) == 1
