"""A drill rehearsed: where a copy of the ledger comes to rest, how soon, and that the ledger itself knows nothing of it."""

from __future__ import annotations

from dataclasses import replace

from tests.core.test_drill import RULES, A, B, C, drill, settled, tick, weights

from reachline.core.rehearsal import Load, rehearsed
from reachline.core.rules import Patience
from reachline.core.twin import twin
from reachline.model import Gate
from reachline.testing import builders

LINES = (builders.line("a"), replace(builders.line("b"), capacity=100), builders.line("c"))


def after(found):
    return {one.line: one.after.weight for one in found.seen.effects}


def test_a_failed_line_is_shown_as_it_will_stand_and_when() -> None:
    ledger = settled()
    before = ledger.freeze()

    found = rehearsed(twin(ledger), drill(), 35_000)

    assert after(found) == {A: 0, B: 100, C: 100}
    assert found.seen.effects[0].before.weight == 100
    assert (found.settles_ms, found.held, found.seen.panic) == (20_000, (), "")
    assert ledger.freeze() == before


def test_it_foresees_what_then_comes() -> None:
    ledger = settled()
    found = rehearsed(twin(ledger), drill(slow_ms=300, until_ms=105_000), 35_000)
    ledger.order(drill(slow_ms=300, until_ms=105_000))
    for number in range(4, 11):
        tick(ledger, number)

    assert after(found) == weights(ledger)
    assert after(found)[A] < 50


def test_lines_that_the_guard_keeps_are_named() -> None:
    found = rehearsed(twin(settled()), drill("payments"), 35_000)

    assert sorted(rule for _, rule in found.held) == ["guard.blast", "guard.blast"]
    assert sorted(after(found).values()) == [0, 5, 5]


def test_nobody_is_blind_for_want_of_news_and_faults_that_last_stay() -> None:
    ledger = settled()
    for number in (4, 5, 6):
        tick(ledger, number, "HDH")

    found = rehearsed(twin(ledger), drill(slow_ms=300, until_ms=1_000_000), 65_000)

    assert not any(one.after.blind for one in found.seen.effects)
    assert after(found)[B] == weights(ledger)[B] < 100
    assert after(found)[A] == 5


def test_it_looks_as_far_ahead_as_faults_grow_however_short_the_ticks() -> None:
    short = replace(RULES, tick_ms=2_000, patience=Patience(degraded=1, failed=1, recover=3))
    lines = (replace(builders.line("a"), base=10), *builders.lines("b", "c"))

    found = rehearsed(twin(settled(lines, short)), drill(slow_ms=300, until_ms=1_000_000), 35_000)

    assert after(found)[A] == 1
    assert found.settles_ms > 120_000


def test_loads_are_told_by_what_was_offered_last() -> None:
    ledger = settled(LINES)
    ledger.offered = ledger.offered._replace(level=90_000)

    found = rehearsed(twin(ledger), drill(), 35_000)

    assert found.loads == (
        Load(line=A, before=30_000, during=0, capacity=None),
        Load(line=B, before=30_000, during=45_000, capacity=100),
        Load(line=C, before=30_000, during=45_000, capacity=None),
    )


def test_slow_within_the_limits_moves_nothing() -> None:
    found = rehearsed(twin(settled(rules=RULES)), drill(slow_ms=100), 35_000)

    assert set(after(found).values()) == {100}
    assert {one.after.gate for one in found.seen.effects} == {Gate.CLOSED}
