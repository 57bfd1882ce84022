"""What a tick hands out: its decisions told late, and what many lines share worked out once."""

from __future__ import annotations

from random import Random

import pytest

from reachline.core.credit import Credit
from reachline.core.ledger import Ledger
from reachline.core.quorum import Ballot
from reachline.core.tick import Changes
from reachline.doors import reach
from reachline.model import Change, LineId, VantageId, Version, Zone
from reachline.testing.builders import line, reading, scope, vantages

TICK_MS = 10_000
SEEN_BY = vantages(3)
STATES = (reading(), reading(ok=190, late=10), reading(ok=0, late=200, rounds_ok=0))


def ledger(mode: str) -> Ledger:
    document = reach.read(f"mode: {mode}\nclusters: {{payments: {{lines: ['tcp://a.test:443']}}}}", name="test")
    lines = [line(f"l{number}") for number in range(6)]
    rules = reach.rules(document, "payments")
    return Ledger(scope(), lines, rules, vantages=frozenset(SEEN_BY), version=Version(1, 0), now_ms=0)


def ticks(book: Ledger) -> list[Changes]:
    """Lines that turn bad and come back, each by itself."""
    chance, found = Random("told late"), []
    for number in range(1, 21):
        for vantage in SEEN_BY:
            said = [(name, STATES[chance.choice((0, 1, 1, 2))]) for name in book.lines]
            book.report(vantage, said, now_ms=number * TICK_MS)
        changes = book.close(number * TICK_MS).changes
        if isinstance(changes, Changes):
            found.append(changes)
    return found


@pytest.mark.parametrize("mode", ["literal", "fast"])
def test_decisions_say_the_same_however_late_they_are_read(mode: str) -> None:
    at_once: list[tuple[Change, ...]] = []
    early = ledger(mode)
    close = early.close
    chance = Random("told late")
    for number in range(1, 21):
        for vantage in SEEN_BY:
            said = [(name, STATES[chance.choice((0, 1, 1, 2))]) for name in early.lines]
            early.report(vantage, said, now_ms=number * TICK_MS)
        at_once.append(tuple(close(number * TICK_MS).changes))

    late = [tuple(changes) for changes in ticks(ledger(mode))]

    assert sum(map(len, at_once)) > 10
    assert late == at_once


def test_decisions_are_made_once_and_equal_a_tuple_of_the_same() -> None:
    changes = next(changes for changes in ticks(ledger("literal")) if changes)

    first = changes.told()

    assert changes.told() is first
    assert changes == first
    assert first == changes
    assert (len(changes), list(changes), changes[0], changes[:1], repr(changes)) == (
        len(first),
        list(first),
        first[0],
        first[:1],
        repr(first),
    )


@pytest.mark.parametrize("least", [1, 2, 3, 4])
def test_a_line_is_crowded_where_so_many_call_it_bad(least: int) -> None:
    chance, credit, blame = Random("crowded"), Credit(), dict[LineId, int]()
    who = [VantageId(f"v{number}") for number in range(4)]
    for name in (LineId(f"payments/l{number}") for number in range(40)):
        for vantage in who:
            is_bad = name.endswith("0") or chance.random() < 0.4
            credit.cast(vantage, name, None, Ballot(Zone.D if is_bad else Zone.H, 0))
            blame[name] = blame.get(name, 0) + is_bad

    assert credit.crowded(who, least) == {name for name, count in blame.items() if count >= least}
    assert credit.crowded(who[:1], 2) == set()
