"""A plan across regions in the journal: replay makes it again, and names one that the ledgers do not give."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reachline.core.ledger import Ledger
from reachline.core.regions import steers
from reachline.core.rules import FaultRules, Rules, with_tables
from reachline.core.steer import Steer
from reachline.model import Outcome, Scope, Version
from reachline.store.journal import Journal
from reachline.store.records import Outcomes, Planned, Record, Ticked
from reachline.store.recover import feed, recover
from reachline.store.replay import replay
from reachline.testing.builders import line

SCOPE = Scope(cluster="payments")
RULES = Rules(tick_ms=1_000, faults=with_tables(FaultRules(), decay=0.15, half_life_ms=60_000))


def planned(directory: Path, *, off: int = 0) -> Steer:
    """A journal of a cluster that asks for 400 calls a second, of which 300 were refused; its plan is `off` by some calls."""
    lines = [replace(line(name), region=name, capacity=100) for name in ("east", "west")]
    ledger = Ledger(SCOPE, lines, RULES, version=Version(1, 0), now_ms=0)
    journal = Journal.open(directory)
    journal.follow({SCOPE: ledger})

    def happens(record: Record) -> None:
        journal.append(record)
        feed(ledger, record)

    for second in range(1, 4):
        row = Outcome(lines[0].id, ok=100)
        happens(Outcomes(scope=SCOPE, at_ms=1_000 * second, client="c", rows=(row,), shed=300))
        closed = ledger.close(1_000 * second)
        journal.append(Ticked(scope=SCOPE, at_ms=1_000 * second, changes=closed.changes, digest=closed.digest))
    found = steers([ledger])["payments"]
    steer = found._replace(placed=tuple((region, calls + off) for region, calls in found.placed))
    happens(Planned(scope=SCOPE, at_ms=3_000, clusters=("payments",), steer=steer))
    closed = ledger.close(4_000)
    journal.append(Ticked(scope=SCOPE, at_ms=4_000, changes=closed.changes, digest=closed.digest))
    journal.close()
    return steer


def test_a_plan_replays_and_is_in_force_after_a_restart(tmp_path: Path) -> None:
    steer = planned(tmp_path)

    assert replay(tmp_path).difference is None
    ledger = recover(tmp_path).ledgers[SCOPE]
    assert ledger.board.steer == steer == Steer(400, (("east", 85), ("west", 85)), "lines.full")
    assert (ledger.asked.level, ledger.offered.level) == (400_000, 100_000)


@pytest.mark.parametrize("off", [-1, 1])
def test_a_plan_that_the_ledgers_do_not_give_is_named(tmp_path: Path, off: int) -> None:
    planned(tmp_path, off=off)

    difference = replay(tmp_path).difference

    assert difference is not None
    assert (difference.field, difference.scope, difference.at_ms) == ("plan", SCOPE, 3_000)
    assert "('east', 85)" in difference.recomputed
