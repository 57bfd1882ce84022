from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.core.breaker import Breaker
from reachline.core.judge import Judgement
from reachline.core.row import Row
from reachline.core.rules import FAULT, BreakerRules, FaultRules, Rules, with_tables
from reachline.core.spreading import weights
from reachline.core.weighing import Weighing
from reachline.model import Gate, Health, Line, LineId, Role
from reachline.testing import builders

FAULTS = with_tables(FaultRules(), decay=0.15, half_life_ms=30_000)
LINES = {
    line.id: line
    for line in (
        builders.line("a", base=100, roles=(Role.TRAFFIC, Role.PRIMARY)),
        builders.line("b", base=100, roles=(Role.TRAFFIC, Role.BACKUP)),
        builders.line("c", base=7, roles=(Role.RESERVE,)),
        builders.line("d", base=30, drained=True),
    )
}
FILLING = {
    line.id: replace(line, capacity=capacity) for line, capacity in zip(LINES.values(), (40, 60, None, 9), strict=True)
}
STATES = (
    Row(),
    Row(Judgement(Health.DEGRADED, faults=4 * FAULT)),
    Row(Judgement(Health.UNHEALTHY), Breaker(Gate.OPEN)),
    Row(Judgement(Health.UNHEALTHY), Breaker(Gate.RAMP, step=2)),
    Row(Judgement(Health.UNHEALTHY), held=True, guard="guard.last_line"),
    Row(Judgement(Health.UNHEALTHY), held=True, guard="guard.blast"),
    Row(Judgement(Health.UNHEALTHY, faults=2 * FAULT), Breaker(Gate.OPEN), lively=True),
)
moves = st.lists(st.dictionaries(st.sampled_from(sorted(LINES)), st.sampled_from(STATES), min_size=1), max_size=8)


@pytest.mark.parametrize(
    ("policy", "lines", "share_steps"),
    [
        ("weighted", LINES, False),
        ("weighted", FILLING, False),
        ("weighted", FILLING, True),
        ("primary_backup", FILLING, False),
        ("ab_groups", FILLING, False),
    ],
    ids=["capacities unknown", "capacities known", "steps of the traffic", "tiers", "groups"],
)
@given(moves=moves, loads=st.lists(st.sampled_from([0, 30_000, 90_000]), min_size=8, max_size=8))
def test_what_is_remade_for_moved_lines_alone_is_what_all_lines_anew_would_say(
    policy: str, lines: dict[LineId, Line], share_steps: bool, moves: list[dict[LineId, Row]], loads: list[int]
) -> None:
    rules = Rules(faults=FAULTS, policy=(policy,), breaker=BreakerRules(share_steps=share_steps))
    rows, weighing = dict.fromkeys(lines, Row()), Weighing()
    known = dict(weighing.all(lines, rows, rules).raw)
    for move, load in zip(moves, loads, strict=False):
        rows |= move
        found = weighing.moved(move, lines, rows, rules, offered=load) or weighing.all(lines, rows, rules, offered=load)
        known |= found.raw
        anew = weights(tuple(lines.values()), rows, rules, offered=load)

        assert (known, found.full, found.panic, found.poured) == (dict(anew.raw), anew.full, anew.panic, anew.poured)


def test_other_traffic_moves_weights_only_where_a_line_may_be_full() -> None:
    rules = Rules(faults=FAULTS)
    for lines, load, expected in ((LINES, 90_000, False), (FILLING, 30_000, False), (FILLING, 90_000, True)):
        weighing = Weighing()
        weighing.all(lines, dict.fromkeys(lines, Row()), rules)

        assert weighing.follows(load, rules) is expected


@pytest.mark.parametrize("policy", [("weighted",), ("primary_backup",), ("ab_groups", "primary_backup")])
def test_where_traffic_is_not_followed_it_moves_no_weight(policy: tuple[str, ...]) -> None:
    rules, rows, weighing = Rules(faults=FAULTS, policy=policy), dict.fromkeys(FILLING, Row()), Weighing()
    before = dict(weighing.all(FILLING, rows, rules, offered=10_000).raw)
    moved = []
    for offered in range(11_000, 101_000, 1_000):
        now = dict(weights(tuple(FILLING.values()), rows, rules, offered=offered).raw)
        if now != before:
            moved.append(offered)
            assert weighing.follows(offered, rules)

    assert moved


def test_under_the_users_own_weights_one_line_moves_alone() -> None:
    rules = Rules(faults=FAULTS)
    rows, weighing = dict.fromkeys(LINES, Row()), Weighing()
    weighing.all(LINES, rows, rules)
    moved = LineId("payments/a")
    rows[moved] = STATES[1]

    found = weighing.moved([moved], LINES, rows, rules)

    assert found is not None
    assert list(found.raw) == [moved]


def test_a_line_that_carries_all_in_an_emergency_is_weighed_with_the_others() -> None:
    lines: dict[LineId, Line] = {line.id: line for line in builders.lines("a", "b")}
    rules, weighing = Rules(faults=FAULTS), Weighing()
    rows = dict.fromkeys(lines, STATES[2])

    assert weighing.all(lines, rows, rules).panic == "fail_open"
    assert weighing.moved(list(lines), lines, rows, rules) is None
