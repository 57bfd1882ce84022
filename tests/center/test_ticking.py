"""What is on its way to readers is what was judged, whatever document comes in force meanwhile."""

from __future__ import annotations

from dataclasses import replace

from reachline.center.ticking import whole
from reachline.core.ledger import Ledger
from reachline.core.rules import Rules
from reachline.model import Version
from reachline.testing import builders


def test_a_tick_keeps_the_lines_and_rules_it_was_judged_by() -> None:
    lines, rules = builders.lines("a", "b"), Rules()
    ledger = Ledger(builders.scope(), lines, rules, version=Version(1, 0), now_ms=0)
    tick = whole(ledger)

    ledger.reconfigure(lines[:1], replace(rules, tick_ms=2_000), frozenset(), now_ms=1)

    assert (tick.rules, set(tick.lines)) == (rules, {line.id for line in lines})
