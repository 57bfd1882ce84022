"""What holds whatever the evidence, where lines share risks and have capacities: properties, in both modes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core import modes
from tests.core.modes import FAULTS

from reachline.core.groups import members
from reachline.core.ledger import Closed, Ledger
from reachline.core.rules import BreakerRules, Limit, Rules
from reachline.model import Counts, Gate, Kind, Line, Outcome, Reading, Version
from reachline.testing import builders

VANTAGES = builders.vantages(3)
LITERAL = Rules(limits=(Limit("loss", 10, 5, 50, 30, 25), Limit("connect", None, None, 0, 3, 3)), faults=FAULTS)
FAST = replace(
    modes.FAST,
    breaker=BreakerRules(fail_milli=10, early_ms=20_000, cooldown_ms=20_000, trial_ms=6_000, step_ms=6_000),
)
MODES = pytest.mark.parametrize("rules", [LITERAL, FAST], ids=["literal", "fast"])
FEW = settings(max_examples=15)
"""A script is up to seventy ticks of five lines: few of them say much."""
WELL = Reading(Kind.TCP, Counts(ok=200), sent=1_000, lost=4, rounds=3, rounds_ok=3, answered=200, fresh_ok=20)
READINGS = {
    "H": WELL,
    "D": WELL._replace(lost=32, fresh_ok=19, fresh_failed=1, fresh_slow=8),
    "F": WELL._replace(counts=Counts(refused=200), rounds_ok=0, fresh_ok=0, fresh_failed=20, fresh_slow=0),
    "W": WELL._replace(lost=80, fresh_ok=12, fresh_failed=8),
}


def lines(capacity: int | None = None) -> list[Line]:
    shared = {"a": ("p1", ()), "b": ("p1", ()), "c": ("p1", ("fibre",)), "d": ("p2", ("fibre",)), "e": ("", ())}
    return [
        replace(builders.line(name, base=base), provider=provider, groups=groups, capacity=capacity)
        for (name, (provider, groups)), base in zip(shared.items(), (100, 100, 50, 100, 70), strict=True)
    ]


def new_ledger(rules: Rules, capacity: int | None = None) -> Ledger:
    return Ledger(
        builders.scope(), lines(capacity), rules, vantages=frozenset(VANTAGES), version=Version(7, 0), now_ms=0
    )


Event = tuple[str, int, int, Sequence[int]]
scripts = st.lists(
    st.tuples(
        st.text("HHDFW-", min_size=5, max_size=5), st.integers(0, 2_000), st.integers(0, 9), st.permutations((0, 1, 2))
    ),
    min_size=1,
    max_size=24,
)


def play(ledger: Ledger, number: int, event: Event, *, repeat: int = 3) -> Closed:
    """A few ticks of the same evidence: all vantages say the same of a line (`-`: nothing), clients' calls come to this."""
    zones, ok, failed, order = event
    for part in range(repeat):
        now_ms = (number * repeat + part + 1) * ledger.rules.tick_ms
        said = [(line, READINGS[zone]) for line, zone in zip(ledger.rows, zones, strict=True) if zone != "-"]
        for place in order:
            ledger.report(VANTAGES[place], said, now_ms=now_ms - 100)
        for client in [("app", ok, failed), ("web", ok // 2, 0)][:: 1 if order[0] else -1]:
            rows = [
                Outcome(line, window=row.breaker.window, ok=client[1], failed=client[2])
                for line, row in ledger.rows.items()
            ]
            ledger.outcomes(client[0], rows, now_ms=now_ms - 50)
        closed = ledger.close(now_ms)
    return closed


def held_open(ledger: Ledger) -> int:
    """Base weight that is not closed; lines of one incident count as the largest of them."""
    apart: dict[str, int] = defaultdict(int)
    for line, row in ledger.rows.items():
        if row.breaker.gate is not Gate.CLOSED:
            base = ledger.lines[line].base
            apart[row.incident] = max(apart[row.incident], base) if row.incident else apart[""] + base
    return sum(apart.values())


@MODES
@FEW
@given(script=scripts)
def test_some_line_carries_traffic_no_more_are_open_than_allowed_and_one_of_a_group_tries(
    rules: Rules, script: list[Event]
) -> None:
    ledger = new_ledger(rules)
    groups = members(ledger.lines.values())
    for number, event in enumerate(script):
        play(ledger, number, event)
        weights = [one.weight for one in ledger.snapshot().standings]

        assert min(weights) >= 0
        assert max(weights) > 0
        assert any(row.breaker.gate is Gate.CLOSED for row in ledger.rows.values())
        assert 2 * held_open(ledger) <= sum(line.base for line in ledger.lines.values())
        for each in groups.values():
            assert sum(ledger.rows[line].breaker.gate is Gate.HALF_OPEN for line in each) <= 1
        assert all(row.guard for row in ledger.rows.values() if row.held)


@MODES
@FEW
@given(script=scripts, cut=st.integers(0, 23), capacity=st.sampled_from([None, 300]))
def test_a_thawed_ledger_decides_as_the_frozen_one(
    rules: Rules, script: list[Event], cut: int, capacity: int | None
) -> None:
    ledger, straight = new_ledger(rules, capacity), new_ledger(rules, capacity)
    for number, event in enumerate(script):
        if number == cut:
            frozen = ledger.freeze()
            ledger = Ledger.thaw(frozen)
            assert ledger.freeze() == frozen
        assert play(ledger, number, event) == play(straight, number, event)

    assert ledger.freeze() == straight.freeze()


@MODES
@FEW
@given(script=scripts, capacity=st.sampled_from([None, 300]))
def test_order_inside_a_tick_does_not_matter(rules: Rules, script: list[Event], capacity: int | None) -> None:
    one, other = new_ledger(rules, capacity), new_ledger(rules, capacity)
    for number, (zones, ok, failed, order) in enumerate(script):
        assert play(one, number, (zones, ok, failed, order)) == play(other, number, (zones, ok, failed, (0, 1, 2)))


@MODES
@FEW
@given(script=scripts)
def test_without_evidence_only_a_deadline_changes_anything_and_it_does(rules: Rules, script: list[Event]) -> None:
    ledger = new_ledger(rules, 300)
    for number, event in enumerate(script):
        play(ledger, number, event)
    now_ms, due = len(script) * 3 * rules.tick_ms, ledger.deadline()
    assert due is not None
    state = ledger.rows.copy()

    if due > now_ms + 1:
        assert ledger.close(due - 1).changes == ()
        assert ledger.rows == state
    ledger.close(max(due, now_ms + 1))

    assert ledger.rows != state
