"""A ledger held still: the same bytes whoever makes them and whenever, in pieces small enough to be made beside a loop."""

from __future__ import annotations

import json

import pytest

from reachline.core.ledger import Ledger
from reachline.core.still import slices, still
from reachline.model import LineId, Version
from reachline.store.freezing import opened, resumed
from reachline.store.items import Mark, Opening
from reachline.testing import builders
from reachline.testing.storm import RULES, SCOPES, act, begin, perform

SEED = 7


def test_a_ledger_held_still_stays_as_it_was_while_the_ledger_goes_on() -> None:
    ledgers = begin(5)
    held = []
    for number in range(600):
        perform(ledgers, act(SEED, number, number * 300))
        if number % 25 == 0:
            held += [(still(ledger), ledger.freeze()) for ledger in ledgers.values()]

    assert len({wanted for _, wanted in held}) > 40
    for state, wanted in held:
        assert b"".join(slices(state)) == wanted


@pytest.mark.parametrize("acts", [0, 1, 2, 7, 200])
def test_a_checkpoint_is_canonical_and_thaws_into_its_equal(acts: int) -> None:
    ledgers = begin(5)
    for number in range(acts):
        perform(ledgers, act(SEED, number, number * 300))

    for ledger in ledgers.values():
        frozen = ledger.freeze()
        assert json.dumps(json.loads(frozen), sort_keys=True, separators=(",", ":")).encode() == frozen
        assert Ledger.thaw(frozen).freeze() == frozen


def ledger_of(count: int) -> Ledger:
    lines = tuple(builders.line(f"l{number}") for number in range(count))
    return Ledger(SCOPES[0], lines, RULES, vantages=frozenset(), version=Version(1, 0), now_ms=0)


@pytest.mark.parametrize("count", [0, 1, 24, 25, 26, 1_000])
def test_no_piece_holds_more_than_a_few_lines(count: int) -> None:
    ledger = ledger_of(count)

    pieces = list(slices(still(ledger)))

    assert sorted(json.loads(b"".join(pieces))["rows"]) == sorted(ledger.rows)
    assert max(piece.count(b'"id":') for piece in pieces) <= 25
    assert {LineId(line) for line in Ledger.thaw(b"".join(pieces)).lines} == set(ledger.lines)


def test_the_writer_breathes_while_it_makes_a_record_and_a_resume_point_goes_in_steps() -> None:
    ledger, breaths = ledger_of(5_000), []

    record = opened(Opening(1, 0, SCOPES[0], still(ledger), continues=True), lambda: breaths.append(1))
    making = resumed(Mark(7, 3, ((SCOPES[0], still(ledger)),)), iter([b"a", b"b"]))
    steps = 0
    try:
        while True:
            next(making)
            steps += 1
    except StopIteration as done:
        resume = done.value

    assert (record.checkpoint, record.continues) == (ledger.freeze(), True)
    assert len(breaths) >= 5
    assert (resume.seq, resume.at_ms, resume.bodies) == (7, 3, b"ab")
    assert resume.ledgers == ((SCOPES[0], ledger.freeze()),)
    assert steps >= 5_000 / 25
