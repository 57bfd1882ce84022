"""The owner gives ledger and journal calm figures held still, and people the exact ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from reachline.center.board import Board, ConfigStatus
from reachline.center.ledgers import compiled
from reachline.center.owner import Owner
from reachline.center.roster import Roster
from reachline.center.stream import Stream
from reachline.doors import reach
from reachline.model import LineId, Reading, VantageId, Version
from reachline.store.journal import Journal
from reachline.store.records import Bodies, Reported
from reachline.store.segment import Segment, listed
from reachline.testing.builders import reading
from reachline.wire.frame import Report

ONE = VantageId("one")
A = LineId("payments/a")
WITH = "clusters: {payments: {lines: {a: 'tcp://a.test:443', b: 'tcp://b.test:443'}}}"
WITHOUT = "clusters: {payments: {lines: {b: 'tcp://b.test:443'}}}"


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal.open(tmp_path)


@pytest.fixture
def owner(journal: Journal) -> Owner:
    board = Board(clock=lambda: 10, origin=0.0, roster=Roster({}), config=ConfigStatus(name="", digest="", loaded=0.0))
    board.version = Version(1, 0)
    owner = Owner(board=board, stream=Stream(board), journal=journal, ledgers={}, holds={})
    owner.begin(compiled(reach.read(WITH, name="test")))
    return owner


def journalled(journal: Journal, directory: Path) -> list[Reading]:
    """Readings of the line, in order."""
    journal.close()
    bodies, found = Bodies(), []
    for place in listed(directory):
        with Segment(place) as segment:
            for stored in segment.records():
                record = bodies.read(stored.kind, stored.scope, stored.at_ms, stored.body)
                if isinstance(record, Reported):
                    found += [one for line, one in record.readings if line == A]
    return found


def test_the_journal_holds_calm_figures_still_and_loses_no_failure(
    owner: Owner, journal: Journal, tmp_path: Path
) -> None:
    said = [reading(p95_us=110_000), reading(p95_us=118_000), reading(p95_us=118_000, late=1)]

    for one in said:
        owner.report(ONE, [Report(line=A, reading=one)])

    kept = journalled(journal, tmp_path)
    assert [one.p95_us for one in kept] == [110_000] * 3
    assert [one.counts for one in kept] == [one.counts for one in said]


def test_a_line_that_left_the_document_is_not_remembered(owner: Owner, journal: Journal, tmp_path: Path) -> None:
    owner.report(ONE, [Report(line=A, reading=reading(p95_us=110_000))])
    for text in (WITHOUT, WITH):
        owner.reconfigure(compiled(reach.read(text, name="test")))

    owner.report(ONE, [Report(line=A, reading=reading(p95_us=118_000))])

    assert [one.p95_us for one in journalled(journal, tmp_path)] == [110_000, 118_000]
