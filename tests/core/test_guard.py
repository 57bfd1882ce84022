from __future__ import annotations

import pytest

from reachline.core.guard import BLAST, LAST_LINE, PANIC, Candidate, allowed, is_panic
from reachline.core.rules import GuardRules, Rules
from reachline.core.weigh import MILLI
from reachline.model import Gate, LineId, Zone

RULES = Rules()


def line(name: str, zone: Zone = Zone.H, gate: Gate = Gate.CLOSED, *, base: int = 100, **known: object) -> Candidate:
    one = Candidate(LineId(name), base, gate, zone, 0, drained=False, weight=base * MILLI)
    return one._replace(**known)  # type: ignore[arg-type]


def failed(name: str, **known: object) -> Candidate:
    return line(name, Zone.F, **known)  # type: ignore[arg-type]


def opened(name: str, **known: object) -> Candidate:
    return line(name, Zone.F, Gate.OPEN, **known)  # type: ignore[arg-type]


def verdict(lines: list[Candidate], *, offered: int = 0, rules: Rules = RULES) -> str:
    """What becomes of the wish of line `x`."""
    return allowed(lines, [LineId("x")], rules, offered=offered)[LineId("x")]


def test_half_of_a_cluster_may_be_open_and_no_more() -> None:
    assert verdict([failed("x"), opened("a"), line("b"), line("c")]) == ""
    assert verdict([failed("x"), opened("a"), opened("b"), line("c"), line("d")]) == BLAST
    assert verdict([failed("x", base=200), line("b"), line("c")]) == ""
    assert verdict([failed("x", base=201), line("b"), line("c")]) == BLAST


def test_size_is_capacity_where_all_lines_have_one() -> None:
    light, heavy = failed("x", capacity=10), failed("x", capacity=90)
    small = [line(name, capacity=10) for name in "ab"]

    assert verdict([light, opened("a", capacity=10), line("b", capacity=90)]) == ""
    assert verdict([heavy, *small]) == BLAST
    assert verdict([light, opened("a", capacity=10), line("b")]) == BLAST, "unknown: base weights count"


def test_a_line_that_returns_still_counts_as_open() -> None:
    assert (
        verdict([failed("x"), line("a", gate=Gate.RAMP), line("b", gate=Gate.HALF_OPEN), line("c"), line("d")]) == BLAST
    )


def test_how_much_may_be_open_is_a_rule() -> None:
    lines = [failed("x"), opened("a"), opened("b"), line("c"), line("d")]

    assert verdict(lines, rules=Rules(guard=GuardRules(open_milli=600))) == ""


def test_a_line_that_differs_from_one_just_refused_has_an_answer_of_its_own() -> None:
    lines = [failed("a"), failed("b"), failed("c"), failed("small", base=10, faults=-1)]

    found = allowed(lines, [line.line for line in lines], RULES)

    assert found == {"c": "", "b": BLAST, "a": BLAST, "small": ""}


def test_lines_of_one_incident_count_as_one() -> None:
    struck = {"incident": "p1"}

    assert verdict([failed("x", **struck), opened("a", **struck), line("b")]) == ""
    assert verdict([failed("x", **struck), opened("a"), line("b")]) == BLAST
    assert verdict([failed("x", **struck), opened("a", incident="p2"), line("b")]) == BLAST


def test_the_last_closed_line_is_held_whatever_carries_it() -> None:
    assert verdict([failed("x", capacity=10), opened("a", capacity=10)], offered=1) == LAST_LINE
    assert verdict([failed("x"), line("a", gate=Gate.RAMP)]) == LAST_LINE, "a line in trial or ramp is no refuge"
    assert verdict([failed("x"), line("a", drained=True)]) == LAST_LINE


def test_drained_lines_do_not_count() -> None:
    assert verdict([failed("x"), line("a", drained=True), line("b")]) == ""
    assert verdict([failed("x"), opened("a", drained=True), line("b")]) == ""


def test_a_healthy_lower_tier_that_has_the_capacity_lifts_the_limit() -> None:
    heavy = failed("x", base=95)

    assert verdict([heavy, line("b", base=5)]) == BLAST
    assert verdict([heavy, line("b", base=5, is_lower=True)]) == ""
    assert verdict([heavy, line("b", base=5, is_lower=True, capacity=900)], offered=900_000) == ""
    assert verdict([heavy, line("b", base=5, is_lower=True, capacity=900)], offered=900_001) == BLAST
    assert verdict([heavy, line("b", Zone.D, base=5, is_lower=True), line("c", base=5)]) == BLAST, "not healthy"
    assert verdict([heavy._replace(is_lower=True), line("b", base=5, is_lower=True)]) == BLAST, "not lower than itself"


def test_healthy_lines_known_to_carry_all_lift_the_limit() -> None:
    lines = [failed("x", capacity=600), opened("a", capacity=600), line("b", capacity=600)]

    assert verdict(lines, offered=600_000) == ""
    assert verdict(lines, offered=600_001) == BLAST
    assert verdict(lines) == BLAST, "nobody knows what is offered"


def test_where_nothing_better_is_left_a_line_that_works_a_little_is_held() -> None:
    worn = {"weight": 40 * MILLI, "lively": True}
    others = [line("a", Zone.D, **worn), line("b", Zone.D, **worn), line("c", Zone.D, **worn)]  # type: ignore[arg-type]

    assert verdict([failed("x", **worn), *others]) == PANIC
    assert verdict([failed("x", weight=0), *others]) == "", "dead: it carries nobody"
    assert verdict([failed("x", **worn), line("a"), line("b"), line("c")]) == ""


def test_the_worst_goes_first_and_what_it_takes_counts_for_the_next() -> None:
    lines = [failed("x"), failed("y", faults=9), line("z")]

    assert allowed(lines, [LineId("x"), LineId("y")], RULES) == {LineId("y"): "", LineId("x"): BLAST}


@pytest.mark.parametrize(("left", "panics"), [(100, False), (99, True), (0, True), (200, False)])
def test_panic_is_more_than_half_of_the_weight_lost(left: int, panics: bool) -> None:
    assert is_panic(left, 200, GuardRules()) is panics
