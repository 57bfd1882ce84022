"""Incidents of the decision log: when they begin and end, what counts as one, and what decisions did about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from reachline.core.incidents import Finding, Incident, Incidents, finding, times
from reachline.core.ledger import Ledger
from reachline.core.orders import Action, Order
from reachline.core.rules import BreakerRules, FaultRules, Limit, Rules, with_tables
from reachline.model import Change, Counts, Fact, Gate, Health, Kind, Line, LineId, Outcome, Reading, Version
from reachline.testing import builders

TICK_MS = 10_000
VANTAGES = builders.vantages(3)
RULES = Rules(
    limits=(Limit("loss", 10, 5, 50, 30, 25), Limit("connect", None, None, 0, 3, 3)),
    faults=with_tables(FaultRules(), decay=0.15, half_life_ms=30_000),
    breaker=BreakerRules(jitter_milli=0),
)
A, B, C, D = (LineId(f"payments/{name}") for name in "abcd")
WELL = Reading(Kind.TCP, Counts(ok=200), sent=1_000, lost=4, rounds=3, rounds_ok=3)
READINGS = {"H": WELL, "D": WELL._replace(lost=32), "F": WELL._replace(counts=Counts(refused=200), rounds_ok=0)}


def decided(
    zones: Sequence[str],
    *,
    rules: Rules = RULES,
    lines: Sequence[Line] = builders.lines(*"abcd"),
    orders: Sequence[Order] = (),
) -> list[Change]:
    """The decisions of a ledger in which each tick says one zone of each of lines a, b, c, d; calls in trials succeed."""
    ledger = Ledger(builders.scope(), lines, rules, vantages=frozenset(VANTAGES), version=Version(7, 0), now_ms=0)
    for order in orders:
        ledger.order(order)
    changes: list[Change] = []
    for number, each in enumerate(zones, start=1):
        now_ms = number * TICK_MS
        for vantage in VANTAGES:
            said = [(line.id, READINGS[zone]) for line, zone in zip(lines, each, strict=False)]
            ledger.report(vantage, said, now_ms=now_ms - 100)
        trials = {
            line: row.breaker for line, row in ledger.rows.items() if row.breaker.gate not in (Gate.CLOSED, Gate.OPEN)
        }
        calls = [Outcome(line, window=breaker.window, ok=200) for line, breaker in trials.items()]
        ledger.outcomes("app", calls, now_ms=now_ms - 50)
        changes += ledger.close(now_ms).changes
    return changes


def told(changes: Sequence[Change]) -> tuple[Incident, ...]:
    log = Incidents()
    log.take(changes)
    return log.all()


BROWNOUT = ["HHHH"] * 3 + ["DHHH"] * 3 + ["HHHH"] * 20
OUTAGE = ["HHHH"] * 3 + ["FHHH"] * 4 + ["HHHH"] * 40


def test_an_incident_lasts_from_the_first_bad_verdict_to_full_weight() -> None:
    changes = decided(BROWNOUT)

    (one,) = told(changes)

    full = next(change for change in changes if change.at_ms > 60_000 and change.after.weight >= 99)
    assert (one.name, one.lines, one.group) == (A, (A,), "")
    assert (one.began_ms, one.detected_ms, one.acted_ms) == (40_000, 50_000, 50_000)
    assert one.is_over
    assert one.ended_ms == full.at_ms
    assert (one.rule, one.has_failed, one.opened, one.kept_by) == ("vote.loss.degraded", False, 0, ())
    assert 60 < one.least < 80


def test_an_outage_with_its_ramp_is_one_incident() -> None:
    (one,) = told(decided(OUTAGE))

    assert (one.opened, one.least, one.has_failed, one.is_over) == (1, 0, True, True)
    assert one.ended_ms is not None
    assert one.ended_ms >= 60_000 + 60_000 + 150_000


def test_what_is_not_over_lasts() -> None:
    (one,) = told(decided(OUTAGE[:12]))

    assert (one.is_over, one.ended_ms, one.waiting) == (False, None, frozenset({A}))


def test_a_fault_that_comes_back_before_full_weight_is_the_same_incident() -> None:
    again = ["HHHH"] * 3 + ["FHHH"] * 4 + ["HHHH"] * 6 + ["FHHH"] * 2 + ["HHHH"] * 60

    (one,) = told(decided(again))

    assert one.opened == 2


def test_two_lines_that_share_nothing_are_two_incidents() -> None:
    found = told(decided(["HHHH"] * 3 + ["DDHH"] * 3 + ["HHHH"] * 20))

    assert [one.name for one in found] == [A, B]


def test_lines_that_fail_with_their_group_are_one_incident_named_after_it() -> None:
    lines = tuple(replace(each, provider="p1") if each.id in (A, B) else each for each in builders.lines(*"abcd"))

    (one,) = told(decided(["HHHH"] * 3 + ["DDHH"] * 3 + ["HHHH"] * 20, lines=lines))

    assert (one.name, one.lines, one.is_over) == ("payments: p1", (A, B), True)
    assert (one.began_ms, one.detected_ms) == (40_000, 50_000)


def test_an_operator_makes_no_incident() -> None:
    orders = [Order(1, Action.OPEN, A, "kim", "", 0, 90_000), Order(2, Action.DRAIN, B, "kim", "", 0, 90_000)]

    assert told(decided(["HHHH"] * 60, orders=orders)) == ()


def test_a_log_that_begins_amid_a_fault_knows_since_when_the_line_stood_so() -> None:
    changes = decided(OUTAGE)
    opened = next(place for place, change in enumerate(changes) if change.after.gate is Gate.OPEN)

    (one,) = told(changes[opened + 1 :])

    assert one.began_ms == changes[opened].after.since_ms
    assert one.is_over


def test_a_log_that_begins_while_an_operator_keeps_a_line_open_has_no_incident_either() -> None:
    changes = decided(["HHHH"] * 30, orders=[Order(1, Action.OPEN, A, "kim", "", 0, 90_000)])

    assert changes[0].rule == "operator.open"
    assert len(changes) > 1
    assert told(changes[1:]) == ()


def test_a_fault_that_costs_no_weight_lasts_until_the_line_is_healthy() -> None:
    changes = decided(OUTAGE, rules=replace(RULES, enforce=False))

    (one,) = told(changes)

    healthy = next(change for change in reversed(changes) if change.after.health is Health.HEALTHY and change.line == A)
    assert one.kept_by == ("enforce.faults", "enforce.breaker")
    assert one.ended_ms == healthy.at_ms
    assert one.ended_ms > 120_000


def test_a_rule_that_only_records_is_named() -> None:
    changes = decided(OUTAGE, rules=replace(RULES, shadowed=("breaker",)))

    (one,) = told(changes)

    assert one.kept_by == ("enforce.breaker",)
    assert one.least > 0


def test_a_log_in_two_parts_tells_the_same_incidents() -> None:
    changes = decided(OUTAGE)
    log = Incidents()

    for change in changes:
        log.take([change])

    assert log.all() == told(changes)


def test_lines_that_left_the_document_end_their_incident_unrestored() -> None:
    log = Incidents()
    log.take(decided(OUTAGE[:12]))

    log.keep([B, C, D])

    (one,) = log.all()
    assert (one.is_over, one.ended_ms) == (True, None)


def test_times_are_means_over_what_is_known() -> None:
    lasting, over = told(decided(OUTAGE[:12])), told(decided(BROWNOUT))

    found = times((*lasting, *over))

    assert (found.total, found.lasting, found.detect_ms, found.act_ms) == (2, 1, 10_000, 10_000)
    assert found.restore_ms == (over[0].ended_ms or 0) - over[0].began_ms
    assert times(()).detect_ms is None


def one_change(rule: str, *, gate: Gate = Gate.CLOSED, weight: int = 87, reason: str = "", order: int = 0) -> Change:
    after = builders.standing("a", health=Health.DEGRADED, gate=gate, weight=weight, reason=reason)
    facts = (Fact("order", order),) if order else ()
    return Change(line=A, at_ms=1, before=builders.standing("a"), after=after, rule=rule, facts=facts)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (one_change("vote.loss.degraded"), Finding("loss", is_enforced=True)),
        (one_change("vote.connect.failed", gate=Gate.OPEN, weight=0), Finding("connect", is_enforced=True)),
        (one_change("business.timeout.degraded"), Finding("timeout", is_enforced=True)),
        (one_change("vote.loss.degraded", weight=100), Finding("loss", is_enforced=False, kept_by="enforce")),
        (one_change("vote.connect.failed", weight=5, reason="guard.last_line"),
         Finding("connect", is_enforced=False, kept_by="guard.last_line")),
        (one_change("vote.connect.failed", order=3), Finding("connect", is_enforced=False, kept_by="operator.close")),
        (one_change("breaker.trial_failed", gate=Gate.OPEN, weight=0), Finding("trial", is_enforced=True)),
        (one_change("faults.grew"), None),
        (one_change("operator.open", gate=Gate.OPEN, weight=0), None),
    ],
)  # fmt: skip
def test_a_finding_is_enforced_or_says_what_kept_it_from_that(change: Change, expected: Finding | None) -> None:
    assert finding(change) == expected


def test_rules_that_only_record_enforce_nothing() -> None:
    changes = decided(OUTAGE, rules=replace(RULES, enforce=False))

    found = [one for change in changes if (one := finding(change))]

    assert found
    assert {one.kept_by for one in found} == {"enforce.faults", "enforce.breaker"}
