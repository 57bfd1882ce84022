"""Replay equality as a property, in both modes: whatever was heard, its records alone decide the same to the byte."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.test_promises import FAST, LITERAL, READINGS, VANTAGES, Event, new_ledger, scripts

from reachline.core.ledger import Ledger
from reachline.core.rules import Rules
from reachline.model import Outcome
from reachline.store.records import Bodies, Outcomes, Record, Reported, Ticked, kind_of, tick_body
from reachline.store.recover import feed
from reachline.testing import builders

SCOPE = builders.scope()


def recorded(ledger: Ledger, number: int, event: Event) -> list[Record]:
    """What a center writes of one tick: each vantage's report, a client's calls, and what came of it."""
    zones, ok, failed, order = event
    at_ms = (number + 1) * ledger.rules.tick_ms
    said = tuple((line, READINGS[zone]) for line, zone in zip(ledger.rows, zones, strict=True) if zone != "-")
    calls = tuple(Outcome(line, window=row.breaker.window, ok=ok, failed=failed) for line, row in ledger.rows.items())
    heard: list[Record] = [
        Reported(scope=SCOPE, at_ms=at_ms - 100, vantage=VANTAGES[place], doubt=place, readings=said) for place in order
    ]
    heard.append(Outcomes(scope=SCOPE, at_ms=at_ms - 50, client="app", rows=calls))
    for record in heard:
        feed(ledger, record)
    closed = ledger.close(at_ms)
    return [*heard, Ticked(scope=SCOPE, at_ms=at_ms, changes=closed.changes, digest=closed.digest)]


@pytest.mark.parametrize("rules", [LITERAL, FAST], ids=["literal", "fast"])
@settings(max_examples=10)
@given(script=scripts, cut=st.integers(0, 23), capacity=st.sampled_from([None, 300]))
def test_what_was_written_decides_the_same_from_any_checkpoint_on(
    rules: Rules, script: list[Event], cut: int, capacity: int | None
) -> None:
    ledger, checkpoint, after = new_ledger(rules, capacity), new_ledger(rules, capacity).freeze(), list[Record]()
    for number, event in enumerate(script):
        if number == cut:
            checkpoint, after = ledger.freeze(), []
        after += recorded(ledger, number, event)

    again, written, read = Ledger.thaw(checkpoint), Bodies(), Bodies()
    for record in after:
        found = read.read(kind_of(record), SCOPE, record.at_ms, written.write(record))
        closed = feed(again, found)

        assert found == record
        if isinstance(record, Ticked) and closed is not None:
            assert tick_body(closed.digest, closed.changes) == tick_body(record.digest, record.changes)
    assert again.freeze() == ledger.freeze()
