"""A vantage that left is forgotten, line by line; what it has of trust is not, and one that returns at once loses nothing."""

from __future__ import annotations

import json

from reachline.core.ledger import Ledger
from reachline.core.rules import BreakerRules, FaultRules, Limit, Rules, with_tables
from reachline.core.trust import WHOLE
from reachline.model import LineId, VantageId, Version
from reachline.testing import builders

TICK_MS = 10_000
RULES = Rules(
    limits=(Limit("loss", 10, 5, 50, 30, 25), Limit("connect", None, None, 0, 3, 3)),
    faults=with_tables(FaultRules(), decay=0.15, half_life_ms=30_000),
    breaker=BreakerRules(jitter_milli=0),
)
STAY = builders.vantages(3)
GUEST = VantageId("guest")
A, B = LineId("payments/a"), LineId("payments/b")
WELL = builders.reading()
DEAD = builders.reading(ok=0, refused=40, rounds_ok=0)


def running() -> Ledger:
    """Three that stay, and a guest that calls A dead."""
    ledger = Ledger(
        builders.scope(), builders.lines("a", "b"), RULES, vantages=frozenset((*STAY, GUEST)), version=Version(1, 0), now_ms=0
    )  # fmt: skip
    for number in range(1, 4):
        ticked(ledger, number, GUEST)
    return ledger


def ticked(ledger: Ledger, number: int, *guests: VantageId) -> None:
    for vantage in (*STAY, *guests):
        said = [(A, DEAD if vantage in guests else WELL), (B, WELL)]
        ledger.report(vantage, said, now_ms=number * TICK_MS - 1)
    ledger.close(number * TICK_MS)


def test_nothing_a_former_vantage_said_is_kept_once_it_is_too_old_to_count() -> None:
    ledger = running()
    ledger.members(frozenset(STAY))
    for number in range(4, 8):
        ticked(ledger, number)

    ledger.members(frozenset(STAY))

    assert all(ledger.poll.ballots[line].keys() == set(STAY) for line in (A, B))
    assert GUEST not in {*ledger.poll.beats, *ledger.poll.credit.bad, *ledger.poll.credit.sees}
    assert not ledger.poll.doubtful
    kept = json.loads(ledger.freeze())
    assert [place for place, value in kept.items() if GUEST in json.dumps(value)] == ["kept"]
    assert list(kept["kept"]["trusts"]) == [GUEST]


def test_a_vantage_that_returns_at_once_is_who_it_was() -> None:
    ledger = running()
    before = ledger.poll.ballots_of(A)

    ledger.members(frozenset(STAY))
    ledger.members(frozenset((*STAY, GUEST)))

    assert ledger.poll.ballots_of(A) == before
    assert ledger.poll.credit.of(GUEST) != WHOLE


def test_guests_that_come_and_go_leave_no_trace_of_lines() -> None:
    ledger = running()
    for number in range(4, 40):
        guest = VantageId(f"guest{number}")
        ledger.members(frozenset((*STAY, guest)))
        ticked(ledger, number, guest)

    assert len(ledger.poll.ballots[A]) <= len(STAY) + 4


def test_a_checkpoint_goes_on_like_the_ledger_that_forgot() -> None:
    ledger = running()
    ledger.members(frozenset(STAY))
    for number in range(4, 8):
        ticked(ledger, number)
    ledger.members(frozenset(STAY))
    other = Ledger.thaw(ledger.freeze())

    for number in range(8, 12):
        ticked(ledger, number)
        ticked(other, number)

    assert other.freeze() == ledger.freeze()
