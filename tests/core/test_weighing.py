from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.core.breaker import Breaker
from reachline.core.judge import Judgement
from reachline.core.row import Row
from reachline.core.rules import FAULT, FaultRules, Rules, with_tables
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
STATES = (
    Row(),
    Row(Judgement(Health.DEGRADED, faults=4 * FAULT)),
    Row(Judgement(Health.UNHEALTHY), Breaker(Gate.OPEN)),
    Row(Judgement(Health.UNHEALTHY), Breaker(Gate.RAMP, step=2)),
    Row(Judgement(Health.UNHEALTHY), held=True),
)
moves = st.lists(st.dictionaries(st.sampled_from(sorted(LINES)), st.sampled_from(STATES), min_size=1), max_size=8)


@pytest.mark.parametrize("policy", ["weighted", "primary_backup", "ab_groups"])
@given(moves=moves)
def test_what_is_remade_for_moved_lines_alone_is_what_all_lines_anew_would_say(
    policy: str, moves: list[dict[LineId, Row]]
) -> None:
    rules = Rules(faults=FAULTS, policy=(policy,))
    rows, weighing = dict.fromkeys(LINES, Row()), Weighing()
    known = dict(weighing.all(LINES, rows, rules).raw)
    for move in moves:
        rows |= move
        found = weighing.moved(move, LINES, rows, rules) or weighing.all(LINES, rows, rules)
        known |= found.raw
        anew = weights(tuple(LINES.values()), rows, rules)

        assert (known, found.full, found.panic) == (dict(anew.raw), anew.full, anew.panic)


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
