"""Another document for a ledger that runs: what is new is published, and what was found so far stays what it was found of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.core.modes import FAST, TICK_MS

from reachline.core.cusum import QUESTIONS, Question
from reachline.core.ledger import Ledger
from reachline.core.rules import Patience, Rules
from reachline.model import Gate, Health, Line, LineId, Snapshot, Version
from reachline.testing import builders

THREE = builders.vantages(3)
LITERAL = replace(FAST, mode="literal", questions=(), patience=Patience())
NOT_SLOW = tuple(one for one in QUESTIONS if one.what not in ("slow", "crawl"))
"""What a class asks that minds no round trip."""
A, B = LineId("payments/a"), LineId("payments/b")
TEN = builders.lines(*"abcdefghij")
WELL = builders.reading(ok=5)
SLOW = WELL._replace(fresh_slow=5)


def running(lines: Sequence[Line], rules: Rules = FAST) -> Ledger:
    ledger = Ledger(builders.scope(), lines, rules, vantages=frozenset(THREE), version=Version(1, 0), now_ms=0)
    for number in range(1, 6):
        ticked(ledger, number)
    return ledger


def ticked(ledger: Ledger, number: int, *, slow: bool = False) -> Snapshot:
    """All see every line well, or A slow; what is published then."""
    said = [(line, SLOW if slow and line == A else WELL) for line in ledger.lines]
    for vantage in THREE:
        ledger.report(vantage, said, now_ms=number * TICK_MS - 1)
    ledger.close(number * TICK_MS)
    return ledger.snapshot()


def reloaded(ledger: Ledger, lines: Sequence[Line], rules: Rules, number: int) -> None:
    ledger.reconfigure(lines, rules, frozenset(THREE), now_ms=number * TICK_MS + 1)


@pytest.mark.parametrize("new", ["0", "e0", "z"])
def test_a_line_that_joins_many_is_published_beside_all_of_them(new: str) -> None:
    ledger = running(TEN)

    reloaded(ledger, (*TEN, builders.line(new)), FAST, 5)
    published = ticked(ledger, 6)

    assert sorted(one.line for one in published.standings) == sorted({*ledger.lines})
    assert f"payments/{new}" in ledger.lines


def degraded_by_slowness() -> Ledger:
    ledger = running(builders.lines("a", "b"))
    for number in range(6, 9):
        ticked(ledger, number, slow=True)
    assert ledger.rows[A].judgement.health is Health.DEGRADED
    return ledger


@pytest.mark.parametrize("rules", [replace(FAST, questions=NOT_SLOW), LITERAL], ids=["not_slow", "literal"])
def test_what_is_not_asked_any_more_is_held_against_nobody(rules: Rules) -> None:
    ledger = degraded_by_slowness()

    reloaded(ledger, tuple(ledger.lines.values()), rules, 8)
    for number in range(9, 14):
        ticked(ledger, number, slow=True)

    assert (ledger.rows[A].judgement.health, ledger.rows[A].breaker.gate) == (Health.HEALTHY, Gate.CLOSED)
    assert ledger.rows[A].asked.is_calm


def test_what_is_still_asked_goes_on_from_where_it_was() -> None:
    ledger = degraded_by_slowness()
    before = ledger.rows[A].asked
    slowly: tuple[Question, ...] = tuple(one._replace(dwell=one.dwell + 1) for one in QUESTIONS[::-1])

    reloaded(ledger, tuple(ledger.lines.values()), replace(FAST, questions=slowly), 8)

    assert ledger.rows[A].asked.sums == before.sums[::-1]
    ticked(ledger, 9)
    assert ledger.rows[A].judgement.health is Health.DEGRADED


def test_a_question_that_is_new_begins_at_nothing() -> None:
    ledger = running(builders.lines("a", "b"), replace(FAST, questions=NOT_SLOW))
    bad = builders.reading(ok=4, refused=1, rounds_ok=1)
    for vantage in THREE:
        ledger.report(vantage, [(A, bad), (B, WELL)], now_ms=11_999)
    ledger.close(12_000)
    assert any(ledger.rows[A].asked.sums)

    reloaded(ledger, tuple(ledger.lines.values()), FAST, 6)
    ticked(ledger, 7, slow=True)

    assert ledger.rows[A].judgement.health is Health.HEALTHY
