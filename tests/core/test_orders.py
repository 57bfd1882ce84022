"""Operators' orders: what they do to lines, when they end, what outranks what, and that a replay obeys them too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reachline.core.explain import explain
from reachline.core.ledger import Closed, Ledger
from reachline.core.orders import NOBODY, Action, Order, covering, covers, named, obeyed, placed, renamed
from reachline.core.rules import BreakerRules, FaultRules, Limit, Rules, with_tables
from reachline.core.telling import text
from reachline.model import Counts, Gate, Health, Kind, Line, LineId, Outcome, Reading, Role, Version
from reachline.testing import builders

TICK_MS = 10_000
VANTAGES = builders.vantages(3)
RULES = Rules(
    limits=(Limit("loss", 10, 5, 50, 30, 25), Limit("connect", None, None, 0, 3, 3)),
    faults=with_tables(FaultRules(), decay=0.15, half_life_ms=30_000),
    breaker=BreakerRules(jitter_milli=0),
)
A, B, C = (LineId(f"payments/{name}") for name in "abc")
WELL = Reading(Kind.TCP, Counts(ok=200), sent=1_000, lost=4, rounds=3, rounds_ok=3)
READINGS = {"H": WELL, "D": WELL._replace(lost=32), "F": WELL._replace(counts=Counts(refused=200), rounds_ok=0)}


def new_ledger(lines: Sequence[Line] = builders.lines(*"abc"), rules: Rules = RULES) -> Ledger:
    return Ledger(builders.scope(), lines, rules, vantages=frozenset(VANTAGES), version=Version(7, 0), now_ms=0)


def tick(ledger: Ledger, number: int, zones: str = "HHH") -> Closed:
    """All vantages say the same of lines a, b, c; then the tick closes."""
    said = [(line, READINGS[zone]) for line, zone in zip((A, B, C), zones, strict=False)]
    for vantage in VANTAGES:
        ledger.report(vantage, said, now_ms=number * TICK_MS - 100)
    return ledger.close(number * TICK_MS)


def settled(lines: Sequence[Line] = builders.lines(*"abc"), rules: Rules = RULES) -> Ledger:
    """Healthy after three ticks."""
    ledger = new_ledger(lines, rules)
    for number in (1, 2, 3):
        tick(ledger, number)
    return ledger


def ordered(action: Action, target: str = A, *, number: int = 1, until_ms: int | None = None, **more: object) -> Order:
    return Order(number, action, target, "kim", "works", 30_000, until_ms, **more)  # type: ignore[arg-type]


def weights(ledger: Ledger) -> dict[LineId, int]:
    return {one.line: one.weight for one in ledger.snapshot().standings}


def test_a_drained_line_has_no_traffic_after_one_tick_and_opens_nothing() -> None:
    ledger = settled()
    ledger.order(ordered(Action.DRAIN, until_ms=60_000))

    before, closed = weights(ledger), tick(ledger, 4)

    assert before[A] == 100
    (change,) = closed.changes
    assert (change.line, change.rule, change.after.weight) == (A, "operator.drain", 0)
    assert (change.after.health, change.after.gate) == (Health.DRAINING, Gate.CLOSED)
    assert change.after.since_ms == 40_000
    assert dict(change.facts)["order"] == 1
    assert weights(ledger) == {A: 0, B: 100, C: 100}


def test_an_order_ends_at_its_deadline_by_itself() -> None:
    ledger = settled()
    ledger.order(ordered(Action.DRAIN, until_ms=55_000))
    tick(ledger, 4)
    tick(ledger, 5)

    due = ledger.deadline()
    closed = ledger.close(55_000)

    assert due == 55_000
    assert [(change.rule, change.after.weight) for change in closed.changes] == [("operator.undrain", 100)]
    assert ledger.book.given == ()
    assert ledger.deadline() != 55_000


def test_an_undone_order_ends_at_the_next_tick_and_another_number_ends_nothing() -> None:
    ledger = settled()
    ledger.order(ordered(Action.DRAIN, number=4))
    tick(ledger, 4)
    ledger.undo(3)
    tick(ledger, 5)
    still = weights(ledger)[A]
    ledger.undo(4)

    tick(ledger, 6)

    assert (still, weights(ledger)[A]) == (0, 100)
    assert ledger.book.last == 4


@pytest.mark.parametrize(("action", "weight"), [(Action.WEIGHT, 30), (Action.STANDBY, 5)])
def test_weight_and_standby_change_the_base_for_the_time(action: Action, weight: int) -> None:
    ledger = settled()
    ledger.order(ordered(action, weight=30 if action is Action.WEIGHT else 0, until_ms=60_000))

    (change,) = tick(ledger, 4).changes
    during = weights(ledger)
    tick(ledger, 6)

    assert change.rule == f"operator.{action.value}"
    assert during == {A: weight, B: 100, C: 100}
    assert weights(ledger) == {A: 100, B: 100, C: 100}


def test_standby_makes_a_primary_a_backup_where_the_policy_knows_them() -> None:
    lines = (builders.line("a", roles=[Role.PRIMARY]), builders.line("b", roles=[Role.PRIMARY]))
    ledger = settled(lines, replace(RULES, policy=("primary_backup",)))
    ledger.order(ordered(Action.STANDBY))

    tick(ledger, 4, "HH")

    assert weights(ledger) == {A: 5, B: 95}


def test_an_open_order_keeps_a_healthy_line_out_and_lets_it_back_through_a_trial() -> None:
    ledger = settled()
    ledger.order(ordered(Action.OPEN, until_ms=70_000))
    (change,) = tick(ledger, 4).changes
    for number in (5, 6):
        tick(ledger, number)
    during = ledger.rows[A].breaker

    tick(ledger, 7)

    assert (change.rule, change.after.gate, change.after.weight) == ("operator.open", Gate.OPEN, 0)
    assert (change.after.reason, change.after.next_ms) == ("operator.open", 70_000)
    assert (during.gate, during.since_ms) == (Gate.OPEN, 40_000)
    assert (ledger.rows[A].breaker.gate, weights(ledger)[A]) == (Gate.HALF_OPEN, 5)
    assert ledger.rows[A].breaker.reopens == 0


def test_an_open_order_without_end_has_no_deadline_and_holds_until_it_is_undone() -> None:
    ledger = settled()
    ledger.order(ordered(Action.OPEN))
    for number in range(4, 40):
        tick(ledger, number)
    held, due = ledger.rows[A].breaker.gate, ledger.view(A, 390_000).due_ms
    ledger.undo(1)

    tick(ledger, 40)

    assert (held, due) == (Gate.OPEN, None)
    assert ledger.rows[A].breaker.gate is Gate.HALF_OPEN


def test_an_open_order_undone_before_its_time_lets_the_line_on_trial_at_once() -> None:
    ledger = settled()
    ledger.order(ordered(Action.OPEN, until_ms=900_000))
    tick(ledger, 4)
    ledger.undo(1)

    tick(ledger, 5)

    assert ledger.rows[A].breaker.gate is Gate.HALF_OPEN


def test_a_line_that_is_failed_when_its_open_order_ends_stays_open() -> None:
    ledger = settled()
    ledger.order(ordered(Action.OPEN, until_ms=60_000))
    for number in (4, 5, 6, 7):
        tick(ledger, number, "FHH")

    assert ledger.rows[A].breaker.gate is Gate.OPEN


def test_an_open_order_never_takes_the_last_line_and_waits_until_another_carries() -> None:
    ledger = settled()
    ledger.order(ordered(Action.OPEN, "payments"))
    tick(ledger, 4)
    (left,) = (line for line, row in ledger.rows.items() if row.breaker.gate is Gate.CLOSED)
    other = A if left != A else B
    waits = weights(ledger)[left]
    ledger.order(ordered(Action.CLOSE, other, number=2))

    tick(ledger, 5)

    assert waits == 100
    assert ledger.rows[left].breaker.gate is Gate.OPEN
    assert weights(ledger)[other] == 100


def test_the_worst_of_the_lines_to_be_opened_goes_first() -> None:
    ledger = settled()
    for number in (4, 5, 6):
        tick(ledger, number, "DDH")
    ledger.order(ordered(Action.OPEN, "payments"))

    tick(ledger, 7, "DDH")

    assert [line for line, row in ledger.rows.items() if row.breaker.gate is Gate.CLOSED] == [C]


def test_force_takes_the_last_line_too_and_nothing_fails_open() -> None:
    ledger = settled()
    ledger.order(ordered(Action.OPEN, "payments", force=True))

    tick(ledger, 4)

    assert weights(ledger) == {A: 0, B: 0, C: 0}
    assert ledger.snapshot().panic == ""


def test_an_open_order_acts_where_rules_are_not_enforced() -> None:
    ledger = settled(rules=replace(RULES, enforce=False))
    ledger.order(ordered(Action.OPEN))

    tick(ledger, 4)

    assert weights(ledger) == {A: 0, B: 100, C: 100}


def test_a_close_order_overrides_the_breaker_and_records_what_the_judge_says() -> None:
    ledger = settled()
    for number in (4, 5, 6):
        tick(ledger, number, "FHH")
    assert ledger.rows[A].breaker.gate is Gate.OPEN
    ledger.order(ordered(Action.CLOSE))
    closing = tick(ledger, 7, "FHH").changes
    later = [tick(ledger, number, "FHH") for number in range(8, 12)]

    changes = [change for closed in later for change in closed.changes if change.line == A]

    assert [(change.rule, change.after.gate) for change in closing if change.line == A] == [
        ("operator.close", Gate.CLOSED)
    ]
    assert "vote.connect.failed" in [change.rule for change in changes]
    assert all(change.after.gate is Gate.CLOSED and dict(change.facts)["order"] == 1 for change in changes)
    assert ledger.rows[A].judgement.health is Health.UNHEALTHY


def test_a_failed_line_opens_again_once_its_close_order_is_over() -> None:
    ledger = settled()
    ledger.order(ordered(Action.CLOSE, until_ms=80_000))
    for number in range(4, 8):
        tick(ledger, number, "FHH")
    closed = ledger.rows[A].breaker.gate

    tick(ledger, 8, "FHH")

    assert (closed, ledger.rows[A].breaker.gate) == (Gate.CLOSED, Gate.OPEN)


def test_of_orders_that_contradict_each_other_the_newest_counts() -> None:
    ledger = settled()
    ledger.order(ordered(Action.WEIGHT, weight=30))
    ledger.order(ordered(Action.WEIGHT, "payments", number=2, weight=60))
    ledger.order(ordered(Action.OPEN, number=3))
    ledger.order(ordered(Action.CLOSE, number=4))

    tick(ledger, 4)
    newest = weights(ledger)
    ledger.undo(2)
    tick(ledger, 5)

    assert newest == {A: 60, B: 60, C: 60}
    assert weights(ledger) == {A: 30, B: 100, C: 100}


def test_drain_outranks_an_order_that_keeps_the_breaker_closed() -> None:
    ledger = settled()
    ledger.order(ordered(Action.CLOSE))
    ledger.order(ordered(Action.DRAIN, number=2))

    tick(ledger, 4)

    assert weights(ledger)[A] == 0


@pytest.mark.parametrize(
    ("target", "names"),
    [("payments/a", True), ("payments/a@az1", True), ("payments", True), ("provider:p1", True), ("group:f", True),
     ("payments/b", False), ("payments/a@az2", False), ("p1", False), ("provider:p2", False), ("group:p1", False)],
)  # fmt: skip
def test_a_target_is_a_line_all_its_origins_a_cluster_a_provider_or_a_group(target: str, names: bool) -> None:
    line = replace(builders.line("a", origin="az1"), provider="p1", groups=("f", "g"))

    assert covers(target, line) is names


def weightless(*names: str) -> Ledger:
    """Three lines, of which these were ordered to carry nothing."""
    ledger = settled()
    for number, name in enumerate(names, 1):
        ledger.order(ordered(Action.WEIGHT, f"payments/{name}", number=number, weight=0))
    tick(ledger, 4)
    return ledger


def test_a_line_that_was_given_no_weight_is_nobodys_refuge() -> None:
    ledger = weightless("b", "c")

    for number in (5, 6, 7, 8):
        tick(ledger, number, "FHH")

    assert weights(ledger) == {A: 5, B: 0, C: 0}
    assert (ledger.rows[A].breaker.gate, ledger.rows[A].guard) == (Gate.CLOSED, "guard.last_line")


def test_the_last_line_that_has_weight_waits_with_an_order_to_open_it() -> None:
    ledger = weightless("b", "c")

    ledger.order(ordered(Action.OPEN, number=3))
    tick(ledger, 5)

    assert weights(ledger) == {A: 100, B: 0, C: 0}


def test_where_all_that_have_weight_are_open_they_carry_all_the_same() -> None:
    ledger = settled()
    for number in (4, 5, 6):
        tick(ledger, number, "FHH")
    assert ledger.rows[A].breaker.gate is Gate.OPEN

    for number, line in enumerate((B, C), 1):
        ledger.order(ordered(Action.WEIGHT, line, number=number, weight=0))
    tick(ledger, 7, "FHH")

    assert weights(ledger) == {A: 100, B: 0, C: 0}
    assert ledger.snapshot().panic == "fail_open"


def test_lines_and_orders_find_each_other_whichever_is_looked_up() -> None:
    lines = [
        replace(builders.line(name, origin=origin), provider=provider, groups=groups)
        for name, origin, provider, groups in (
            ("a", "az1", "p1", ("f",)), ("a", "az2", "p2", ("f", "f")), ("b", "", "", ()), ("p1", "", "p1", ("p1",)),
        )
    ]  # fmt: skip
    targets = ("payments/a", "payments/a@az2", "payments", "provider:p1", "group:f", "provider:", "group:p1", "p1", "x")
    book = NOBODY
    for number, target in enumerate(targets, 1):
        book = placed(book, ordered(Action.WEIGHT, target, number=number))

    known = named(lines)
    _, wanted = obeyed(book, {line.id: line for line in lines}, ("weighted",))

    for target in targets:
        assert known.get(target, ()) == tuple(line for line in lines if covers(target, line))
    for line in lines:
        assert wanted[line.id].weight == max(order.number for order in covering(book, line))
    assert "provider:" not in known


def test_an_order_follows_a_renamed_line_and_takes_in_a_line_that_joins() -> None:
    ledger = settled()
    ledger.order(ordered(Action.DRAIN))
    ledger.order(ordered(Action.WEIGHT, "payments", number=2, weight=7))
    tick(ledger, 4)
    renamed_a = replace(builders.line("a"), id=LineId("payments/z"))

    ledger.reconfigure((renamed_a, *builders.lines("b", "d")), RULES, frozenset(VANTAGES), now_ms=45_000)
    ledger.close(50_000)

    assert weights(ledger) == {"payments/z": 0, "payments/b": 7, "payments/d": 7}


def test_renaming_leaves_other_targets_alone() -> None:
    book = placed(placed(NOBODY, ordered(Action.DRAIN)), ordered(Action.DRAIN, "group:f", number=2))

    assert [order.target for order in renamed(book, {A: "payments/z"}).given] == ["payments/z", "group:f"]


def test_a_checkpoint_holds_orders_in_force_and_those_that_no_tick_has_seen_yet() -> None:
    ledger = settled()
    ledger.order(ordered(Action.OPEN, until_ms=70_000))
    tick(ledger, 4)
    ledger.order(ordered(Action.DRAIN, B, number=2, until_ms=90_000))
    twin = Ledger.thaw(ledger.freeze())

    told = [(tick(ledger, number), tick(twin, number)) for number in range(5, 12)]

    assert all(one == other for one, other in told)
    assert ledger.freeze() == twin.freeze()
    assert [order.number for order in ledger.book.given] == []


def test_a_line_under_orders_is_told_with_them() -> None:
    ledger = settled()
    ledger.order(ordered(Action.WEIGHT, "payments", weight=7))

    tick(ledger, 4)

    assert [order.action for order in ledger.view(A, 40_000).orders] == [Action.WEIGHT]
    assert ledger.view(A, 40_000).line.base == 7


@pytest.mark.parametrize(
    ("action", "until_ms", "comes", "otherwise"),
    [
        (Action.OPEN, 70_000, "order 1 ends; then it is on trial", "an operator ends order 1, which keeps it open"),
        (Action.OPEN, None, "nothing is due before order 1 is undone", "an operator ends order 1, which keeps it open"),
        (Action.CLOSE, 70_000, "nothing is due", "an operator ends order 1, which keeps it closed"),
        (Action.DRAIN, None, "nothing is due", "an operator ends the draining (`undo 1`)"),
    ],
)
def test_an_explanation_says_what_the_order_does_and_how_it_ends(
    action: Action, until_ms: int | None, comes: str, otherwise: str
) -> None:
    ledger = settled()
    ledger.order(ordered(action, until_ms=until_ms))
    changes = tick(ledger, 4).changes

    found = explain(ledger.view(A, 41_000), changes, rules=RULES, now_ms=41_000)

    assert found.next.startswith(comes)
    assert found.next_ms == (until_ms if action is Action.OPEN else None)
    assert otherwise in found.otherwise
    assert ("failed ticks" in " ".join(found.otherwise)) is (action is Action.DRAIN)
    until = "until 70000 (in 29 s)" if until_ms else "until it is undone"
    assert f"Orders {action.value}, order 1 by kim on payments/a {until}, because works." in text(found, str)


def test_calls_in_a_trial_after_an_order_count_as_ever() -> None:
    ledger = settled()
    ledger.order(ordered(Action.OPEN, until_ms=40_000))
    tick(ledger, 4)
    ledger.order(ordered(Action.OPEN, number=2, until_ms=50_000))
    tick(ledger, 5)
    tick(ledger, 6)
    window = ledger.rows[A].breaker.window

    ledger.outcomes("app", [Outcome(A, window=window, ok=200)], now_ms=65_000)
    for number in (7, 8, 9):
        tick(ledger, number)

    assert ledger.rows[A].breaker.gate in (Gate.RAMP, Gate.CLOSED)


def test_a_line_that_browns_out_while_another_is_drained_opens_nothing_and_gives_it_no_traffic() -> None:
    ledger = settled()
    ledger.order(ordered(Action.DRAIN, B, until_ms=900_000))
    seen = []
    for number in range(4, 60):
        tick(ledger, number, "DHH" if 10 <= number < 30 else "HHH")
        seen.append((weights(ledger), {row.breaker.gate for row in ledger.rows.values()}))

    assert {weight[B] for weight, _ in seen} == {0}
    assert set().union(*(gates for _, gates in seen)) == {Gate.CLOSED}
    assert min(weight[A] for weight, _ in seen) < 30
    assert {weight[C] for weight, _ in seen} == {100}


ASKED = st.builds(
    Order,
    number=st.just(0),
    action=st.sampled_from([Action.WEIGHT, Action.STANDBY, Action.OPEN, Action.CLOSE]),
    target=st.sampled_from([A, B, C, "payments", "provider:p1"]),
    by=st.just("kim"),
    why=st.just(""),
    since_ms=st.just(0),
    until_ms=st.none() | st.integers(1, 40).map(lambda tick: tick * 7_000),
    weight=st.integers(1, 300),
    force=st.just(False),
)
TICKS = st.lists(
    st.tuples(st.text("HDF", min_size=3, max_size=3), st.none() | ASKED, st.integers(0, 12)), min_size=4, max_size=30
)


@settings(max_examples=40, deadline=None)
@given(ticks=TICKS, thawed=st.integers(0, 30))
def test_whatever_is_ordered_without_force_some_line_carries_and_a_replay_agrees(
    ticks: Sequence[tuple[str, Order | None, int]], thawed: int
) -> None:
    lines = tuple(replace(each, provider="p1") if each.id != C else each for each in builders.lines(*"abc"))
    ledger, twin = new_ledger(lines), new_ledger(lines)
    for number, (zones, order, gone) in enumerate(ticks, start=1):
        if number == thawed:
            twin = Ledger.thaw(ledger.freeze())
        for each in (ledger, twin):
            if order is not None:
                each.order(order._replace(number=number))
            each.undo(gone)

        closed, again = tick(ledger, number, zones), tick(twin, number, zones)

        assert closed == again
        assert all(weight >= 0 for weight in weights(ledger).values())
        assert any(weights(ledger).values())
    assert ledger.freeze() == twin.freeze()
