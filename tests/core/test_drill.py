"""Drills: what they hold of lines, what they leave alone, how they end, and that a checkpoint and a replay know of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from reachline.core.drill import verdict
from reachline.core.explain import explain
from reachline.core.incidents import Incidents
from reachline.core.ledger import Closed, Ledger
from reachline.core.orders import Action, Order
from reachline.core.rules import BreakerRules, FaultRules, Limit, Patience, Rules, with_tables
from reachline.core.telling import text
from reachline.model import Counts, Gate, Health, Kind, Line, LineId, Reading, Version, Zone
from reachline.testing import builders

TICK_MS = 10_000
VANTAGES = builders.vantages(3)
SLOW = (Limit("p95", 200_000, 160_000, 500_000, 400_000, 20), Limit("ewma", 150_000, 120_000, 400_000, 320_000, 5))
RULES = Rules(
    limits=(Limit("loss", 10, 5, 50, 30, 25), *SLOW, Limit("connect", None, None, 0, 3, 3)),
    faults=with_tables(FaultRules(), decay=0.15, half_life_ms=30_000),
    breaker=BreakerRules(jitter_milli=0),
)
A, B, C = (LineId(f"payments/{name}") for name in "abc")
WELL = Reading(Kind.TCP, Counts(ok=200), sent=1_000, lost=4, rounds=3, rounds_ok=3)
READINGS = {"H": WELL, "D": WELL._replace(lost=32), "F": WELL._replace(counts=Counts(refused=200), rounds_ok=0)}


def tick(ledger: Ledger, number: int, zones: str = "HHH") -> Closed:
    """All vantages say the same of lines a, b, c (`-`: nothing); then the tick closes."""
    said = [(line, READINGS[zone]) for line, zone in zip((A, B, C), zones, strict=False) if zone != "-"]
    for vantage in VANTAGES:
        ledger.report(vantage, said, now_ms=number * TICK_MS - 100)
    return ledger.close(number * TICK_MS)


def settled(lines: Sequence[Line] = builders.lines(*"abc"), rules: Rules = RULES, zones: str = "HHH") -> Ledger:
    """Judged for three ticks."""
    names = frozenset(VANTAGES)
    ledger = Ledger(builders.scope(), lines, rules, vantages=names, version=Version(7, 0), now_ms=0)
    for number in (1, 2, 3):
        tick(ledger, number, zones)
    return ledger


def drill(target: str = A, *, slow_ms: int = 0, until_ms: int = 200_000) -> Order:
    return Order(1, Action.DRILL, target, "kim", "practice", 30_000, until_ms, slow_ms=slow_ms, margin_milli=10)


def weights(ledger: Ledger) -> dict[LineId, int]:
    return {one.line: one.weight for one in ledger.snapshot().standings}


def test_a_line_that_is_played_failed_is_out_after_the_usual_patience_whatever_is_measured() -> None:
    ledger = settled()
    ledger.order(drill())

    seen = [tick(ledger, number).changes for number in (4, 5, 6, 7)]

    assert [[(one.rule, one.after.weight) for one in changes] for changes in seen] == [
        [], [("drill.failed", 87)], [("drill.failed", 0)], [],
    ]  # fmt: skip
    assert (seen[2][0].after.health, seen[2][0].after.gate) == (Health.UNHEALTHY, Gate.OPEN)
    assert dict(seen[2][0].facts)["order"] == 1
    assert weights(ledger) == {A: 0, B: 100, C: 100}


def test_where_one_failed_verdict_is_enough_the_tick_in_which_a_drill_begins_names_it() -> None:
    ledger = settled(rules=replace(RULES, patience=Patience(failed=1, lone_failed=1)))
    ledger.order(drill())

    (change,) = tick(ledger, 4).changes

    assert (change.rule, change.after.gate) == ("drill.failed", Gate.OPEN)


def test_the_verdict_of_a_drill_needs_no_news_and_no_second_vantage() -> None:
    ledger = settled(rules=replace(RULES, patience=Patience(lone_failed=9)))
    ledger.members(frozenset(VANTAGES[:1]))
    ledger.order(drill())

    for number in (4, 5, 6):
        tick(ledger, number, "-HH")

    assert weights(ledger)[A] == 0


def test_a_line_that_is_played_slow_gathers_faults_as_a_slow_one_does() -> None:
    ledger = settled()
    ledger.order(drill(slow_ms=300))

    changes = [change for number in (4, 5, 6, 7) for change in tick(ledger, number).changes]

    assert [(one.rule, one.after.weight) for one in changes] == [
        ("drill.slowed", 87), ("drill.slowed", 75), ("drill.slowed", 64),
    ]  # fmt: skip


@pytest.mark.parametrize(("slow_ms", "zone"), [(0, Zone.F), (149, Zone.H), (150, Zone.D), (399, Zone.D), (400, Zone.F)])
def test_slow_is_held_against_the_lines_limits_of_latency(slow_ms: int, zone: Zone) -> None:
    assert verdict(drill(slow_ms=slow_ms), RULES.limits) is zone


def test_slow_means_nothing_where_latency_is_not_judged() -> None:
    mute = (Limit("p95", None, None, None, None, 20), Limit("loss", 10, 5, 50, 30, 25))

    assert verdict(drill(slow_ms=9_000), mute) is Zone.H


def test_a_drill_never_makes_a_line_better_than_it_is() -> None:
    ledger, plain = settled(), settled()
    ledger.order(drill(slow_ms=300))

    for number in (4, 5, 6):
        tick(ledger, number, "FHH")
        tick(plain, number, "FHH")

    assert ledger.rows[A].judgement == plain.rows[A].judgement
    assert ledger.rows[A].reason == plain.rows[A].reason == "vote.connect.failed"


def test_over_it_stands_at_full_weight_at_once_where_it_was_well_all_the_time() -> None:
    ledger = settled()
    ledger.order(drill(until_ms=95_000))
    for number in range(4, 9):
        tick(ledger, number)
    during = weights(ledger)[A]

    due = ledger.deadline()
    (change,) = ledger.close(95_000).changes

    assert (during, due) == (0, 95_000)
    assert (change.rule, change.after.weight, change.after.health) == ("drill.over", 100, Health.HEALTHY)
    assert ledger.rows[A].breaker.gate is Gate.CLOSED
    assert ledger.rows[A].judgement.faults == 0


def test_over_it_is_degraded_where_it_was_degraded_meanwhile_and_no_more_than_newly_so() -> None:
    ledger = settled()
    ledger.order(drill())
    for number in range(4, 9):
        tick(ledger, number, "DHH")
    ledger.undo(1)

    (change,) = tick(ledger, 9, "DHH").changes

    assert (change.rule, change.after.health, change.after.gate) == ("drill.over", Health.DEGRADED, Gate.CLOSED)
    assert change.after.weight in (75, 87)


def test_over_it_stays_out_where_it_failed_meanwhile_and_returns_through_a_trial() -> None:
    ledger = settled()
    ledger.order(drill())
    for number in range(4, 9):
        tick(ledger, number, "HHH" if number < 7 else "FHH")
    ledger.undo(1)

    tick(ledger, 9, "FHH")
    still = ledger.rows[A].breaker.gate
    tick(ledger, 10)

    assert still is Gate.OPEN
    assert ledger.rows[A].breaker.gate is Gate.HALF_OPEN


def test_over_it_is_unknown_where_nobody_ever_judged_it() -> None:
    ledger = settled(zones="-HH")
    ledger.order(drill())
    for number in range(4, 9):
        tick(ledger, number, "-HH")
    during = weights(ledger)[A]
    ledger.undo(1)

    (change,) = tick(ledger, 9, "-HH").changes

    assert (during, change.after.weight, change.after.health) == (0, 100, Health.UNKNOWN)


def test_a_line_that_is_out_by_itself_is_left_alone() -> None:
    ledger, plain = settled(), settled()
    for number in (4, 5, 6):
        tick(ledger, number, "FHH")
        tick(plain, number, "FHH")
    ledger.order(drill(until_ms=85_000))

    for number in range(7, 14):
        tick(ledger, number)
        tick(plain, number)

    assert ledger.rows[A].breaker == plain.rows[A].breaker
    assert ledger.rows[A].breaker.gate is not Gate.CLOSED


def test_what_an_operator_opened_meanwhile_stays_out_when_the_drill_is_over() -> None:
    ledger = settled()
    ledger.order(drill(until_ms=110_000))
    for number in (4, 5, 6, 7):
        tick(ledger, number)
    ledger.order(Order(2, Action.OPEN, A, by="anna", why="works", since_ms=75_000, until_ms=110_000))
    tick(ledger, 8)

    ledger.undo(1)
    tick(ledger, 9)
    tick(ledger, 10)

    assert ledger.rows[A].breaker.gate is Gate.OPEN
    tick(ledger, 11)
    assert ledger.rows[A].breaker.gate is Gate.HALF_OPEN


def test_faults_that_a_line_had_of_its_own_are_not_forgiven_by_a_milder_drill() -> None:
    ledger, plain = settled(), settled()
    ledger.order(drill(slow_ms=300, until_ms=75_000))

    for number in range(4, 9):
        tick(ledger, number, "DHH")
        tick(plain, number, "DHH")

    assert ledger.rows[A].judgement == plain.rows[A].judgement


def test_the_guard_keeps_what_it_would_keep_of_a_real_failure() -> None:
    ledger = settled()
    ledger.order(drill("payments"))
    for number in (4, 5, 6):
        tick(ledger, number)

    during = weights(ledger)
    held = [line for line, row in ledger.rows.items() if row.held]
    ledger.undo(1)
    tick(ledger, 7)

    assert sorted(during.values()) == [0, 5, 5]
    assert len(held) == 2
    assert set(weights(ledger).values()) == {100}
    assert not any(row.held for row in ledger.rows.values())


def test_successes_of_a_line_that_is_played_failed_do_not_keep_it_in_traffic() -> None:
    big, small = builders.line("a", base=300), builders.line("b", base=100)
    ledger = settled((replace(big, capacity=40), replace(small, capacity=100)))
    ledger.order(drill())
    seen = []

    for number in range(4, 9):
        for vantage in VANTAGES:
            ledger.report(vantage, [(A, WELL._replace(fresh_ok=5))], now_ms=number * TICK_MS - 50)
        ledger.close(number * TICK_MS)
        seen.append(weights(ledger)[A])

    assert seen[2:] == [0, 0, 0]


def test_what_is_measured_meanwhile_is_kept_and_nobody_loses_trust_by_it() -> None:
    ledger = settled()
    ledger.order(drill())
    for number in range(4, 9):
        tick(ledger, number)

    assert ledger.rows[A].zone is Zone.H
    assert ledger.poll.credit.trusts == {}


def test_a_checkpoint_in_the_midst_of_a_drill_goes_on_as_the_ledger_does() -> None:
    ledger = settled()
    ledger.order(drill(until_ms=85_000))
    for number in (4, 5, 6):
        tick(ledger, number)
    thawed = Ledger.thaw(ledger.freeze())

    for number in range(7, 11):
        assert tick(thawed, number) == tick(ledger, number)
    assert weights(ledger)[A] == 100


def test_a_drill_is_no_incident_where_the_log_begins_in_its_midst_either() -> None:
    ledger = settled()
    ledger.order(drill())
    changes = [change for number in (4, 5, 6) for change in tick(ledger, number).changes]
    ledger.undo(1)
    over = tick(ledger, 7).changes
    whole, late = Incidents(), Incidents()

    whole.take([*changes, *over])
    late.take(over)

    assert len(changes) == 2
    assert whole.all() == late.all() == ()


def test_explain_names_the_drill_and_its_end() -> None:
    ledger = settled()
    ledger.order(drill())
    history = [change for number in (4, 5, 6) for change in tick(ledger, number).changes]

    found = explain(ledger.view(A, 60_000), history, rules=RULES, now_ms=60_000)

    assert found.because == "a drill plays that it failed (order 1)"
    assert (found.next_ms, found.next) == (200_000, "order 1, a drill, ends; then it stands as its own evidence says")
    assert found.otherwise[-1] == "an operator ends the drill (`undo 1`)"
    assert "drill, order 1 by kim on payments/a until 200000 (in 2 min 20 s), because practice." in text(found, str)


def test_explain_says_how_slow_a_line_is_played() -> None:
    ledger = settled()
    ledger.order(drill(slow_ms=300))

    told = text(explain(ledger.view(A, 40_000), [], rules=RULES, now_ms=40_000), str)

    assert "drill of 300 ms, order 1 by kim" in told
