"""The plan across regions: none while weights carry everything; who moves and who is refused once they do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reachline.core.ledger import Ledger
from reachline.core.regions import Seen, is_scarce, outlook, plan, rooms, seen, steers, why_apart, without
from reachline.core.rules import FaultRules, Rules, with_tables
from reachline.core.steer import FULL, SHED, SPENT, WHOLE, Steer, steered, told
from reachline.model import Gate, Line, LineId, Outcome, Scope, Version
from reachline.testing.builders import line

REGIONS = ("east", "west")
FAULTS = with_tables(FaultRules(), decay=0.15, half_life_ms=60_000)


def cluster(name: str, calls: int, priority: int = 0, **rooms: int | None) -> Seen:
    """Half of its calls in each region where nothing else is said."""
    found = rooms or dict.fromkeys(REGIONS, calls)
    loads = {region: calls // len(found) for region in found}
    return Seen(name, calls, loads, found, priority)


def lines(of: str, *, capacity: int | None = 100) -> tuple[Line, ...]:
    return tuple(replace(line(region, cluster=of), region=region, capacity=capacity) for region in REGIONS)


def called(name: str, calls: int, *, priority: int = 0, own: tuple[Line, ...] = (), shed: int = 0) -> Ledger:
    """A ledger whose clients ask for `calls` a second."""
    rules = Rules(tick_ms=1_000, priority=priority, faults=FAULTS)
    scope = Scope(cluster=name)
    ledger = Ledger(scope, own or lines(name), rules, version=Version(1, 0), now_ms=1)
    for second in range(1, 4):
        row = Outcome(next(iter(ledger.lines)), ok=calls - shed)
        ledger.outcomes("client", [row], now_ms=1_000 * second, shed=shed)
        ledger.close(1_000 * second)
    return ledger


def test_there_is_no_plan_while_weights_carry_everything() -> None:
    seens = [cluster("a", 100, east=60, west=60), cluster("b", 100, east=60, west=60)]

    assert not is_scarce(seens, {"east": 100, "west": 100})
    assert plan(seens, {"east": 100, "west": 100}) == {}


@pytest.mark.parametrize(("limit", "scarce"), [(100, False), (96, False), (95, True)])
def test_a_region_is_full_once_weights_put_a_twentieth_more_on_it_than_it_carries(limit: int, scarce: bool) -> None:
    assert is_scarce([cluster("a", 200)], {"east": limit}) is scarce


def test_without_a_limit_a_region_carries_what_its_lines_do_and_all_where_nobody_knows() -> None:
    seens = [cluster("a", 10, east=30, west=None), cluster("b", 20, east=40, west=5)]

    assert rooms(seens, {}) == {"east": 70, "west": 30}
    assert rooms(seens, {"east": 50, "west": 20}) == {"east": 50, "west": 20}


def test_the_lower_priority_is_refused_before_the_higher_one_loses_a_call() -> None:
    found = plan([cluster("low", 100, 1), cluster("high", 100, 9)], {"east": 60, "west": 60})

    assert found == {"low": Steer(100, (("east", 10), ("west", 10)), SHED, 1)}
    assert found["low"].admitted == WHOLE // 5


def test_what_a_cluster_that_does_not_obey_goes_on_to_use_is_no_room_for_the_others() -> None:
    low, high, limits = cluster("low", 100, 1), cluster("high", 100, 9), {"east": 60, "west": 120}
    low = low._replace(loads={"east": 40, "west": 60}, obeys=False)

    found = plan([low, high], limits)

    assert found["high"] == Steer(100, (("east", 20), ("west", 60)), SHED, 9)
    assert found["low"] == plan([low._replace(obeys=True), high], limits)["low"]


def test_one_that_does_not_obey_leaves_those_alone_that_fit_beside_it() -> None:
    wide, narrow = cluster("wide", 100)._replace(obeys=False), cluster("narrow", 20)

    assert plan([wide, narrow], {"east": 60, "west": 60}) == {}
    assert plan([wide, narrow], {"east": 60, "west": 40}).keys() == {"wide", "narrow"}
    assert plan([cluster("wide", 100, 1, east=60, west=20)._replace(obeys=False), narrow], {}).keys() == {"wide"}


def test_where_none_obeys_each_is_told_what_all_would_have() -> None:
    seens = [cluster("low", 100, 1), cluster("high", 100, 9)]
    limits = {"east": 60, "west": 60}

    assert plan([each._replace(obeys=False) for each in seens], limits) == plan(seens, limits) != {}


def test_a_ledger_whose_rule_is_only_recorded_does_not_obey() -> None:
    ledger = called("a", 120)
    ledger.rules = replace(ledger.rules, shadowed=("regions",))

    found = seen(ledger)

    assert found is not None
    assert not found.obeys


def test_one_that_must_move_is_told_where_and_keeps_all() -> None:
    seens = [cluster("wide", 100, 9), cluster("narrow", 60, 1, east=60)]

    found = plan(seens, {"east": 80, "west": 90})

    assert found["wide"] == Steer(100, (("east", 20), ("west", 80)), FULL, 9)
    assert found["wide"].shares == {"east": WHOLE // 5, "west": WHOLE * 4 // 5}
    assert "narrow" not in found


def test_what_its_own_lines_cannot_carry_is_no_matter_of_priority() -> None:
    assert plan([cluster("a", 100, east=30, west=30)], {}) == {"a": Steer(100, (("east", 30), ("west", 30)), SPENT)}


def test_without_a_region_its_calls_go_where_the_other_weights_put_them() -> None:
    seens = [Seen("a", 90, {"east": 50, "north": 30, "west": 10}, dict.fromkeys(("east", "north", "west"), 90))]

    (left,) = without(seens, "east")

    assert (left.loads, set(left.rooms)) == ({"north": 67, "west": 23}, {"north", "west"})
    assert outlook([left], {}).is_scarce is False


def test_without_its_only_region_a_cluster_is_refused_whole() -> None:
    (left,) = without([cluster("a", 10, east=10)], "east")

    assert plan([left], {}) == {"a": Steer(10, (), SPENT)}


def test_a_ledger_is_seen_with_what_it_is_asked_for_and_what_its_lines_carry() -> None:
    assert seen(called("a", 120, priority=7)) == Seen(
        "a", 120, {"east": 60, "west": 60}, {"east": 85, "west": 85}, priority=7
    )


def test_what_clients_refuse_is_asked_for_all_the_same() -> None:
    ledger = called("a", 400, shed=300)

    assert (ledger.asked.level, ledger.offered.level) == (400_000, 100_000)
    assert steers([ledger])["a"] == Steer(400, (("east", 85), ("west", 85)), SPENT)


def test_a_line_on_trial_carries_its_trials_share() -> None:
    ledger = called("a", 10)
    east = LineId("a/east")
    row = ledger.rows[east]
    ledger.rows[east] = row._replace(breaker=row.breaker._replace(gate=Gate.HALF_OPEN))

    found = seen(ledger)

    assert found is not None
    assert found.rooms == {"east": 100 * 850 * ledger.rules.breaker.steps_milli[0] // 1_000_000, "west": 85}


def test_clusters_without_regions_or_without_callers_take_no_part() -> None:
    plain = called("plain", 900, own=tuple(replace(each, region="") for each in lines("plain")))
    quiet = Ledger(Scope(cluster="quiet"), lines("quiet"), Rules(faults=FAULTS), version=Version(1, 0), now_ms=0)

    assert steers([plain, quiet]) == {}
    assert [why_apart(each) for each in (plain, quiet, called("a", 1))] == [
        "no line names a region",
        "nobody calls it, or no line takes calls",
        "",
    ]


def test_where_every_line_is_open_nothing_is_shed_for_nothing_works_anyway() -> None:
    ledger = called("a", 400)
    ledger.board.panic = "fail_open"

    assert steers([ledger]) == {}
    assert why_apart(ledger) == "every line is open"


def test_a_steer_raises_the_version_and_survives_a_checkpoint() -> None:
    ledger = called("a", 400)
    steer, before = steers([ledger])["a"], ledger.snapshot().version

    ledger.steered(steer, now_ms=4_000)

    thawed = Ledger.thaw(ledger.freeze())
    assert ledger.snapshot().version > before
    assert (thawed.board.steer, thawed.asked) == (steer, ledger.asked)
    assert thawed.freeze() == ledger.freeze()
    assert steers([thawed]) == {"a": steer}


def test_weights_follow_regions_first_and_lines_within_them() -> None:
    found = steered([10, 30, 100], ["east", "east", "west"], {"east": WHOLE // 2, "west": WHOLE // 2})

    assert [round(100 * each / sum(found), 1) for each in found] == [12.5, 37.5, 50.0]


def test_a_region_without_a_line_leaves_its_share_to_the_others_and_none_leaves_weights_as_they_are() -> None:
    shares = {"east": WHOLE // 4, "north": WHOLE // 2, "west": WHOLE // 4}

    found = steered([7, 0, 7], ["east", "north", "west"], shares)

    assert (found[0], found[1]) == (found[2], 0)
    assert steered([7, 5], ["a", "b"], shares) == [7, 5]


def test_a_steer_tells_its_share_place_and_reason() -> None:
    text = told(Steer(400, (("east", 100), ("west", 148)), SHED, 10))

    assert text.startswith("priority.shed: 62 % of 400 calls/s are carried (east 100, west 148)")
