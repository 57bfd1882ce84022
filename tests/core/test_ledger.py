"""The order of steps, and the promises that hold whatever the evidence: they are properties, not examples."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.core.ledger import Closed, Ledger
from reachline.core.row import is_quiet
from reachline.core.rules import BreakerRules, FaultRules, Limit, Rules, with_tables
from reachline.errors import JournalError
from reachline.model import (
    Counts,
    Endpoint,
    Gate,
    Health,
    Kind,
    Line,
    LineId,
    Outcome,
    Reading,
    Role,
    Scope,
    Version,
)
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
READINGS = {
    "H": WELL,
    "D": WELL._replace(lost=32),
    "F": WELL._replace(counts=Counts(refused=200), rounds_ok=0),
    "N": Reading(Kind.TCP),
}


def new_ledger(lines: Sequence[Line] = builders.lines(*"abc"), rules: Rules = RULES) -> Ledger:
    return Ledger(builders.scope(), lines, rules, vantages=frozenset(VANTAGES), version=Version(7, 0), now_ms=0)


def tick(ledger: Ledger, number: int, zones: str, *, order: Sequence[int] = (0, 1, 2)) -> Closed:
    """All vantages say the same of lines a, b, c (`-`: nothing), in the given order, then the tick closes."""
    now_ms = number * TICK_MS
    said = [(line, READINGS[zone]) for line, zone in zip((A, B, C), zones, strict=False) if zone != "-"]
    for place in order:
        ledger.report(VANTAGES[place], said, now_ms=now_ms - 100)
    return ledger.close(now_ms)


def test_a_new_line_takes_traffic_before_the_first_verdict() -> None:
    snapshot = new_ledger().snapshot()

    assert [(one.health, one.weight) for one in snapshot.standings] == [(Health.UNKNOWN, 100)] * 3


def test_a_trip_names_rule_votes_and_counts() -> None:
    ledger = new_ledger()
    for number in (1, 2):
        tick(ledger, number, "FHH")

    closed = tick(ledger, 3, "FHH")

    (change,) = (change for change in closed.changes if change.line == A)
    facts = dict(change.facts)
    assert change.rule == "vote.connect.failed"
    assert [(vote.vantage, vote.metric, vote.numerator, vote.denominator) for vote in change.votes] == [
        (vantage, "tcp.connect", 0, 3) for vantage in VANTAGES
    ]
    assert (facts["down_ticks"], facts["failed_patience"], facts["until_ms"]) == (3, 3, 30_000 + 60_000)
    assert (change.after.weight, change.after.next_ms) == (0, 90_000)


def test_a_tick_without_new_evidence_decides_nothing() -> None:
    ledger = new_ledger()
    for number in (1, 2):
        tick(ledger, number, "FHH")

    closed = ledger.close(30_000)

    assert closed.changes == ()
    assert closed.snapshot is None


def test_one_sick_vantage_of_three_changes_nothing() -> None:
    ledger = new_ledger()
    tick(ledger, 1, "HHH")
    for number in range(2, 12):
        for vantage, zone in zip(VANTAGES, "FHH", strict=True):
            ledger.report(vantage, [(A, READINGS[zone])], now_ms=number * TICK_MS - 100)
        assert not [change for change in ledger.close(number * TICK_MS).changes if change.line == A and number > 3]

    assert ledger.snapshot().standings[0].weight == 100


def test_a_lone_vantage_needs_six_ticks_to_open() -> None:
    ledger = new_ledger()
    ledger.members(frozenset(VANTAGES[:1]))
    gates = []
    for number in range(1, 7):
        ledger.report(VANTAGES[0], [(A, READINGS["F"])], now_ms=number * TICK_MS - 100)
        ledger.close(number * TICK_MS)
        gates.append(ledger.rows[A].breaker.gate)

    assert gates == [Gate.CLOSED] * 5 + [Gate.OPEN]


def test_the_last_closed_line_is_held_at_the_floor_and_trips_once_another_is_back() -> None:
    ledger = new_ledger(builders.lines(*"ab"))
    for number in (1, 2, 3):
        tick(ledger, number, "FF")

    held = {one.line: one for one in ledger.snapshot().standings}
    assert sorted(one.gate.name for one in held.values()) == ["CLOSED", "OPEN"]
    (last,) = (one for one in held.values() if one.gate is Gate.CLOSED)
    assert (last.reason, last.weight, last.health) == ("guard.last_line", 5, Health.UNHEALTHY)
    assert ledger.snapshot().panic == "last_line"

    # the open one returns: its calls succeed in every window until it is closed; then the held one may go
    back = A if last.line == B else B
    for number in range(4, 60):
        row = ledger.rows[back].breaker
        ledger.outcomes("app", [Outcome(back, window=row.window, ok=200)], now_ms=number * TICK_MS - 50)
        tick(ledger, number, "HF" if back == A else "FH")
        if ledger.rows[back].breaker.gate is Gate.CLOSED:
            break
    tick(ledger, number + 1, "HF" if back == A else "FH")

    assert ledger.rows[last.line].breaker.gate is Gate.OPEN
    assert ledger.snapshot().panic == ""


def test_a_held_line_that_heals_is_let_go_and_climbs_back_to_full_weight() -> None:
    ledger = new_ledger(builders.lines(*"ab"))
    for number in (1, 2, 3):
        tick(ledger, number, "FF")
    (held,) = (line for line, row in ledger.rows.items() if row.held)

    changes = tick(ledger, 4, "HH").changes
    for number in range(5, 40):
        tick(ledger, number, "HH")

    assert (held, "guard.released") in [(change.line, change.rule) for change in changes]
    assert ledger.board.standings[held].weight == 100
    assert ledger.board.standings[held].health is Health.HEALTHY
    assert ledger.board.panic == ""


def test_an_open_line_that_nobody_sees_stays_open_until_somebody_does() -> None:
    ledger = new_ledger()
    for number in (1, 2, 3):
        tick(ledger, number, "FHH")

    for number in range(4, 40):
        tick(ledger, number, "---")
    assert ledger.rows[A].breaker.gate is Gate.OPEN
    tick(ledger, 40, "HHH")

    assert ledger.rows[A].breaker.gate is Gate.HALF_OPEN


def test_with_every_line_open_the_least_bad_carries_all() -> None:
    lines = builders.lines(*"ab")
    ledger = new_ledger([*lines, builders.line("c", drained=True)])
    for line in (A, B):
        ledger.rows[line] = ledger.rows[line]._replace(
            breaker=ledger.rows[line].breaker._replace(gate=Gate.OPEN, until_ms=10**9)
        )
    ledger.rows[A] = ledger.rows[A]._replace(judgement=ledger.rows[A].judgement._replace(faults=5_000_000))

    closed = ledger.close(TICK_MS)

    assert closed.snapshot is not None
    assert {one.line: one.weight for one in closed.snapshot.standings} == {A: 5, B: 100, C: 0}
    assert closed.snapshot.panic == "fail_open"


def test_a_drained_line_gets_nothing_and_is_called_draining() -> None:
    ledger = new_ledger([builders.line("a", drained=True), builders.line("b")])

    standings = {one.line: one for one in ledger.snapshot().standings}

    assert (standings[A].weight, standings[A].health, standings[A].reason) == (0, Health.DRAINING, "operator.drain")


def test_silence_makes_a_line_blind_and_holds_its_state() -> None:
    ledger = new_ledger()
    tick(ledger, 1, "DHH")
    tick(ledger, 2, "DHH")
    weight = ledger.board.standings[A].weight

    closed = ledger.close(20_000 - 100 + 60_000)

    assert {(one.line, one.rule) for one in closed.changes} == {(line, "quorum.blind") for line in (A, B, C)}
    assert (ledger.board.standings[A].weight, ledger.board.standings[A].blind) == (weight, True)


def test_unenforced_rules_judge_and_record_but_do_not_act() -> None:
    rules = Rules(limits=RULES.limits, faults=RULES.faults, enforce=False)
    ledger = new_ledger(rules=rules)
    for number in (1, 2, 3):
        closed = tick(ledger, number, "FHH")

    assert [change.rule for change in closed.changes if change.line == A] == ["vote.connect.failed"]
    assert ledger.board.standings[A].weight == 100


def test_a_renamed_line_keeps_its_history() -> None:
    ledger = new_ledger()
    for number in (1, 2, 3):
        tick(ledger, number, "FHH")
    a, *others = builders.lines(*"abc")
    renamed = Line(id=LineId("payments/z"), scope=a.scope, endpoint=a.endpoint)

    ledger.reconfigure([renamed, *others], RULES, frozenset(VANTAGES), now_ms=31_000)
    ledger.close(40_000)

    assert ledger.board.standings[LineId("payments/z")].gate is Gate.OPEN
    assert A not in ledger.board.standings


def test_a_changed_role_moves_weight_within_one_tick() -> None:
    primary, backup = builders.line("a", roles=[Role.PRIMARY]), builders.line("b", roles=[Role.BACKUP])
    ledger = new_ledger([primary, backup], Rules(faults=RULES.faults, policy=("primary_backup",)))
    swapped = [builders.line("a", roles=[Role.BACKUP]), builders.line("b", roles=[Role.PRIMARY])]

    ledger.reconfigure(swapped, ledger.rules, frozenset(VANTAGES), now_ms=5_000)
    closed = ledger.close(TICK_MS)

    assert closed.snapshot is not None
    assert {one.line: one.weight for one in closed.snapshot.standings} == {A: 5, B: 95}


def test_versions_never_fall() -> None:
    ledger = new_ledger()
    tick(ledger, 1, "HHH")
    before = ledger.snapshot().version

    ledger.rebase(Version(6, 99))
    assert ledger.snapshot().version == before
    ledger.rebase(Version(8, 0))
    assert ledger.snapshot().version == Version(8, 0)


@pytest.mark.parametrize("frozen", [b"", b"{}", b"[1]", b'{"schema":99}', b"\xff\xfe"])
def test_what_is_no_checkpoint_is_refused_by_name(frozen: bytes) -> None:
    with pytest.raises(JournalError):
        Ledger.thaw(frozen)


scripts = st.lists(
    st.tuples(
        st.text("HDFN-", min_size=3, max_size=3),
        st.integers(0, 300),
        st.integers(0, 2),
        st.permutations((0, 1, 2)),
    ),
    min_size=1,
    max_size=60,
)


def play(ledger: Ledger, number: int, event: tuple[str, int, int, Sequence[int]]) -> Closed:
    zones, ok, failed, order = event
    rows = [Outcome(line, window=ledger.rows[line].breaker.window, ok=ok, failed=failed) for line in (A, B, C)]
    ledger.outcomes("app", rows, now_ms=number * TICK_MS - 50)
    return tick(ledger, number, zones, order=order)


@given(script=scripts)
def test_some_line_always_carries_traffic_and_no_weight_is_negative(
    script: list[tuple[str, int, int, list[int]]],
) -> None:
    ledger = new_ledger()
    for number, event in enumerate(script, 1):
        play(ledger, number, event)
        weights = [one.weight for one in ledger.snapshot().standings]
        gates = [row.breaker.gate for row in ledger.rows.values()]

        assert min(weights) >= 0
        assert max(weights) > 0
        assert Gate.CLOSED in gates
        assert ledger.restless == {line for line, row in ledger.rows.items() if not is_quiet(row, ledger.rules)}


@given(script=scripts)
def test_order_of_vantages_inside_a_tick_does_not_matter(script: list[tuple[str, int, int, list[int]]]) -> None:
    one, other = new_ledger(), new_ledger()
    for number, (zones, ok, failed, order) in enumerate(script, 1):
        left = play(one, number, (zones, ok, failed, order))
        right = play(other, number, (zones, ok, failed, (0, 1, 2)))

        assert left == right
        assert left.digest == right.digest


@given(script=scripts, cut=st.integers(0, 59))
def test_a_thawed_ledger_decides_as_the_frozen_one(script: list[tuple[str, int, int, list[int]]], cut: int) -> None:
    ledger = new_ledger()
    for number, event in enumerate(script, 1):
        if number == cut:
            frozen = ledger.freeze()
            ledger = Ledger.thaw(frozen)
            assert ledger.freeze() == frozen
        play(ledger, number, event)
    straight = new_ledger()
    for number, event in enumerate(script, 1):
        play(straight, number, event)

    assert ledger.freeze() == straight.freeze()


@given(script=scripts)
def test_without_evidence_only_a_deadline_changes_anything_and_it_does(
    script: list[tuple[str, int, int, list[int]]],
) -> None:
    ledger = new_ledger()
    for number, event in enumerate(script, 1):
        play(ledger, number, event)
    now_ms, due = len(script) * TICK_MS, ledger.deadline()
    assert due is not None
    state = ledger.rows.copy()

    if due > now_ms + 1:
        assert ledger.close(due - 1).changes == ()
        assert ledger.rows == state
    ledger.close(max(due, now_ms + 1))

    assert ledger.rows != state


def test_permutations_of_reporters_are_all_tried() -> None:
    digests = set()
    for order in permutations(range(3)):
        ledger = new_ledger()
        digests.add(
            tuple(tick(ledger, number, zones, order=order).digest for number, zones in enumerate(["FDH"] * 4, 1))
        )

    assert len(digests) == 1


def test_a_foreign_scope_is_a_name_of_its_own() -> None:
    line = Line(id=LineId("other/a"), scope=Scope(cluster="other"), endpoint=Endpoint(scheme="tcp", host="h", port=1))

    assert line.identity != builders.line("a").identity


def test_a_degraded_tick_holds_the_ramp_and_costs_it_no_weight() -> None:
    ledger = new_ledger()
    for number in (1, 2, 3):
        tick(ledger, number, "FHH")
    for number in range(4, 14):
        tick(ledger, number, "HHH")
    assert ledger.rows[A].breaker.gate is Gate.HALF_OPEN

    for number in range(14, 16):
        play(ledger, number, ("DHH", 200, 0, (0, 1, 2)))

    standing = ledger.board.standings[A]
    assert (standing.gate, standing.weight) == (Gate.HALF_OPEN, 5)
