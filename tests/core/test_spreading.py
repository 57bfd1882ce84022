from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from reachline.core.breaker import Breaker
from reachline.core.judge import Judgement
from reachline.core.row import Row
from reachline.core.rules import FAULT, BreakerRules, FaultRules, Rules, with_tables
from reachline.core.spreading import Weights, weights
from reachline.core.weigh import wire
from reachline.model import Gate, Health, Line, LineId, Role
from reachline.testing import builders

RULES = Rules(faults=with_tables(FaultRules(), decay=0.15, half_life_ms=30_000))
WELL = Row(Judgement(Health.HEALTHY, good=3))
WORN = Row(Judgement(Health.DEGRADED, faults=4 * FAULT))
OPEN = Row(Judgement(Health.UNHEALTHY, faults=4 * FAULT), Breaker(Gate.OPEN))
ALIVE = OPEN._replace(lively=True)
BACK = Row(Judgement(Health.UNHEALTHY), Breaker(Gate.RAMP, step=2))
HELD = Row(Judgement(Health.UNHEALTHY, faults=2 * FAULT), held=True, guard="guard.blast")


def line(name: str, capacity: int | None = None, *, role: Role | None = None, drained: bool = False) -> Line:
    return replace(builders.line(name, roles=[role] if role else [], drained=drained), capacity=capacity)


def of(rows: Mapping[Line, Row], rules: Rules = RULES, *, rps: int = 0) -> Weights:
    lines = tuple(sorted(rows, key=lambda one: one.id))
    return weights(lines, {one.id: row for one, row in rows.items()}, rules, offered=1_000 * rps)


def published(found: Weights) -> list[int]:
    return [wire(found.raw.get(LineId(name), 0)) for name in sorted({*found.raw, *found.full})]


def shares(found: Weights) -> list[float]:
    total = sum(found.raw.values())
    return [round(raw / total, 3) for _, raw in sorted(found.raw.items())]


def test_the_steps_of_a_weight_come_in_their_order() -> None:
    """Each line is stopped by the first step that speaks of it: what later steps would say of it changes nothing."""
    lines = {
        line("a-drained", 1, drained=True): BACK,
        line("b-open", 1): OPEN,
        line("c-held", 1): HELD,
        line("d-ramp", 900): BACK._replace(judgement=Judgement(Health.UNHEALTHY, faults=FAULT)),
        line("e-worn", 900): WORN,
        line("f-full", 400): WELL,
        line("g-well", 900): WELL,
        line("h-well", 900): WELL,
    }

    calm, busy = of(lines), of(lines, rps=1_700)

    assert [wire(calm.raw.get(one.id, 0)) for one in lines] == [0, 0, 5, 18, 55, 100, 100, 100]
    load = {one.id: 1_700 * busy.raw.get(one.id, 0) / sum(busy.raw.values()) for one in lines}
    names = {one.id.partition("/")[2]: round(load[one.id]) for one in lines}
    assert names["a-drained"] == names["b-open"] == 0, "drain and breaker before all that follows"
    assert names["f-full"] == 340, "0.85 of its capacity"
    assert names["d-ramp"] == round(1_700 * 17.214 / 377.1), "the ramp bounds it, whatever others cannot carry"
    assert names["g-well"] == names["h-well"] > 451, "they take what the full line cannot"
    assert names["e-worn"] * 1_000 // names["g-well"] == 548, "faults before capacity: it takes its part of that"
    assert busy.panic == "blast"


def test_the_floor_of_a_held_line_is_never_filled_by_what_others_cannot_carry() -> None:
    found = of({line("a", 2_000): HELD, line("b", 600): WELL, line("c", 600): WELL}, rps=1_190)

    assert shares(found)[0] == round(5 / 205, 3)


def test_a_degraded_line_carries_what_would_break_the_healthy_ones() -> None:
    lines = {line("a", 600): WORN, line("b", 600): WELL, line("c", 600): WELL}

    assert [round(1_500 * share) for share in shares(of(lines, rps=1_500))] == [480, 510, 510]
    assert published(of(lines, rps=1_200)) == [55, 100, 100]
    assert published(of(lines)) == [55, 100, 100]
    assert of(lines, replace(RULES, shadowed=("capacity",)), rps=1_500).poured == frozenset()


def test_the_reserve_group_takes_no_more_than_it_can_carry() -> None:
    rules = replace(RULES, policy=("ab_groups",))
    traffic = {line("a", 600, role=Role.TRAFFIC): OPEN, line("b", 600, role=Role.TRAFFIC): WELL}

    assert shares(of(traffic | {line("r", 1_000, role=Role.RESERVE): WELL}, rules, rps=900)) == [0.0, 0.7, 0.3]
    assert shares(of(traffic | {line("r", 200, role=Role.RESERVE): WELL}, rules, rps=900)) == [0.0, 0.811, 0.189]


@pytest.mark.parametrize(
    ("rows", "flag", "weight"),
    [
        ((OPEN, WELL, WELL), "", [0, 100, 100]),
        ((ALIVE, ALIVE, WELL), "panic", [55, 55, 100]),
        ((ALIVE, OPEN, WELL), "panic", [55, 0, 100]),
        ((ALIVE, WELL, WELL), "", [0, 100, 100]),
        ((OPEN, OPEN, OPEN), "fail_open", [100, 5, 5]),
    ],
    ids=["a third lost", "most lost", "the dead stay out", "what is alive stays out while most is there", "all open"],
)
def test_in_panic_what_is_open_and_alive_gets_its_raw_weight(
    rows: tuple[Row, ...], flag: str, weight: list[int]
) -> None:
    found = of(dict(zip((line("a"), line("b"), line("c")), rows, strict=True)))

    assert (found.panic, published(found)) == (flag, weight)


def test_there_is_no_panic_where_the_healthy_lines_are_known_to_carry_all() -> None:
    lines = {line("a", 600): ALIVE, line("b", 600): ALIVE, line("c", 600): WELL}

    assert of(lines, rps=500).panic == ""
    assert of(lines, rps=601).panic == "panic"


def test_with_every_line_a_little_worse_it_is_said_and_nothing_moves() -> None:
    deep = Row(Judgement(Health.DEGRADED, faults=20 * FAULT))

    found = of({line("a"): deep, line("b"): deep, line("c"): deep})

    assert found.panic == "panic"
    assert shares(found) == [0.333] * 3


def test_drained_lines_are_no_lost_weight() -> None:
    assert of({line("a", drained=True): OPEN, line("b", drained=True): OPEN, line("c"): WELL}).panic == ""


def test_steps_may_be_shares_of_the_traffic() -> None:
    rules = replace(RULES, breaker=BreakerRules(share_steps=True))
    lines = {line("a"): BACK, line("b"): WELL, line("c"): WELL}

    assert shares(of(lines, rules)) == [0.2, 0.4, 0.4]
    assert shares(of(lines)) == [0.091, 0.455, 0.455]
    two = {line("a"): BACK, line("b"): BACK, line("c"): WELL, line("d"): WELL, line("e"): WELL}
    assert shares(of(two, rules)) == [0.2] * 5


def test_a_share_of_the_traffic_is_never_more_than_the_line_has_in_health() -> None:
    rules = replace(RULES, breaker=BreakerRules(share_steps=True, steps_milli=(50, 600, 1_000)))
    late = Row(Judgement(Health.UNHEALTHY), Breaker(Gate.RAMP, step=1))

    assert published(of({line("a"): late, line("b"): WELL, line("c"): WELL}, rules)) == [100, 100, 100]


def test_unenforced_rules_pour_nothing_and_panic_about_nothing() -> None:
    found = of({line("a", 1): ALIVE, line("b", 1): OPEN, line("c", 1): WELL}, replace(RULES, enforce=False), rps=9)

    assert (published(found), found.panic, found.poured) == ([100, 100, 100], "", frozenset())
