"""Recorded evidence under other settings: what would have come sooner, what would have been false, what cannot be told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reachline.core.ledger import Ledger
from reachline.core.whatif import acted_ms, moved_ms, summed, trips
from reachline.errors import JournalError
from reachline.model import LineId, Outcome, Scope, VantageId, Version
from reachline.store.journal import Journal
from reachline.store.records import Ticked
from reachline.store.segment import listed
from reachline.store.whatif import Judged, Proposed, Side, judged, segments_since
from reachline.testing.builders import healthy, reading
from reachline.testing.past import SCOPE, UNIX, dead, record, settings

A, B = LineId("payments/a"), LineId("payments/b")


def ask(directory: Path, proposed: Proposed, **options: float) -> tuple[Judged, Side]:
    found = judged(segments_since(directory, None), {SCOPE: proposed}, **options)  # type: ignore[arg-type]
    return found, found.clusters[SCOPE]


def test_the_same_settings_take_the_same_course(tmp_path: Path) -> None:
    _, side = ask(record(tmp_path, dead(10, 15), cut=20), settings())

    assert side.recorded.points == side.proposed.points
    assert moved_ms(side.recorded, side.proposed, side.until_ms) == 0
    assert side.warnings == ()
    assert len(trips(side.recorded)) == 1


def test_less_patience_acts_sooner_and_the_fault_is_known_by_hindsight(tmp_path: Path) -> None:
    _, side = ask(record(tmp_path, dead(10, 15)), settings("patience: {failed: 2, degraded: 1}"))

    (fault,) = side.faults
    recorded, proposed = (summed(course, side.until_ms, side.faults)[A] for course in (side.recorded, side.proposed))
    assert (fault.line, fault.from_ms, fault.until_ms) == (A, 90_000, 150_000)
    assert (acted_ms(side.recorded, fault), acted_ms(side.proposed, fault)) == (30_000, 20_000)
    assert (recorded.opens, proposed.opens, proposed.false_opens) == (1, 1, 0)
    assert proposed.traffic_ms < recorded.traffic_ms


def test_one_sick_vantage_that_is_believed_makes_a_false_trip(tmp_path: Path) -> None:
    directory = record(tmp_path, dead(10, 15, vantages=["v2"]))

    _, same = ask(directory, settings())
    _, side = ask(directory, settings()._replace(vantages=frozenset({VantageId("v2")})))  # only v2 counts

    assert summed(same.recorded, same.until_ms, same.faults)[A].opens == 0
    assert summed(side.proposed, side.until_ms, side.faults)[A].false_opens == 1


def test_what_lies_before_the_moment_asked_for_is_judged_and_not_counted(tmp_path: Path) -> None:
    directory = record(tmp_path, dead(10, 15), rounds=60)

    found, side = ask(directory, settings(), since=UNIX + 200.0, until=UNIX + 300.0)

    assert (found.span.first, found.span.last) == (UNIX + 200.0, UNIX + 300.0)
    assert side.recorded.from_ms >= 200_000
    assert side.recorded.points == side.proposed.points
    assert summed(side.recorded, side.until_ms, side.faults)[A].opens == 0
    assert side.recorded.points[A][0].weight < 100  # still on its way back


def test_segments_since_begins_with_the_one_that_holds_the_moment(tmp_path: Path) -> None:
    directory = record(tmp_path, dead(10, 15), cut=20)
    first, second = listed(directory)

    assert segments_since(directory, UNIX + 150.0) == (first, second)
    assert segments_since(directory, UNIX + 200.0) == (second,)
    with pytest.raises(JournalError, match="no journal segments"):
        segments_since(tmp_path / "none", None)


def test_behind_lost_records_the_other_course_begins_anew(tmp_path: Path) -> None:
    found, side = ask(record(tmp_path, dead(10, 15), gap=12), settings())

    assert found.span.gaps == 1
    assert side.recorded.points == side.proposed.points


def test_the_other_course_runs_on_where_a_segment_ends(tmp_path: Path) -> None:
    """At the cut the record has not opened the line, and the proposal has."""
    wanted = settings("patience: {failed: 2, degraded: 1}")
    whole, cut = record(tmp_path / "whole", dead(10, 15)), record(tmp_path / "cut", dead(10, 15), cut=12)

    sides = [ask(directory, wanted)[1] for directory in (whole, cut)]

    assert sides[0].proposed.points == sides[1].proposed.points
    assert trips(sides[0].proposed)[0][0] < 120_000 < trips(sides[0].recorded)[0][0] + 1


def test_behind_lost_records_it_goes_on_from_what_was_recorded(tmp_path: Path) -> None:
    """A proposal that never opens takes over a line that the record has opened meanwhile."""
    patient = settings("patience: {failed: 50}")

    _, whole = ask(record(tmp_path / "whole", dead(10, 30)), patient)
    _, torn = ask(record(tmp_path / "torn", dead(10, 30), gap=14), patient)

    assert "OPEN" not in {point.gate.name for point in whole.proposed.points[A]}
    assert "OPEN" in {point.gate.name for point in torn.proposed.points[A]}


def test_a_renamed_line_is_the_same_line(tmp_path: Path) -> None:
    directory = record(tmp_path, dead(10, 15))
    wanted = settings()
    renamed = tuple(line if line.id != A else replace(line, id=LineId("payments/first")) for line in wanted.lines)

    _, side = ask(directory, wanted._replace(lines=renamed))

    assert LineId("payments/first") in side.recorded.points
    assert side.recorded.points.keys() == side.proposed.points.keys() == {line.id for line in renamed}
    assert trips(side.recorded) == trips(side.proposed)
    assert side.faults[0].line == "payments/first"


def test_another_tick_is_kept_at_its_own_multiples(tmp_path: Path) -> None:
    _, side = ask(record(tmp_path, dead(10, 30)), settings("judge: {tick: 5s, heartbeat: 5s}"))

    assert len(trips(side.proposed)) == 1
    assert trips(side.proposed)[0][0] % 5_000 == 0
    assert side.warnings == (
        "evidence came every 10 s and the settings tick every 5 s: times to act are longer than they would be",
    )


def test_calls_of_the_time_count_for_a_trial_that_the_record_did_not_have(tmp_path: Path) -> None:
    """The record holds the line as its last one closed (patience never ends); the proposal opens, tries and closes it."""
    calls = {number: [Outcome(line=A, ok=400)] for number in range(16, 61)}
    patient = settings("patience: {failed: 50}")
    directory = record(tmp_path, dead(10, 15), rounds=60, by=patient, calls=calls)

    _, side = ask(directory, settings("circuit_breaker: {cooldown_jitter: 0}"))

    states = [point.gate.name for point in side.proposed.points[A]]
    assert not trips(side.recorded)
    assert "OPEN" in states
    assert states[-1] == "CLOSED"


@pytest.mark.parametrize(
    ("text", "cluster", "warning"),
    [
        (
            "mode: fast\nlimits: {p95: {degraded: 150ms, exit: 120ms}}",
            "",
            "slow answers were counted above 200 ms and 500 ms",
        ),
        ("limits: {p95: {degraded: 100ms, exit: 80ms}}", "", "P95 below 160 ms is recorded within 25 % only"),
    ],
)
def test_what_evidence_cannot_answer_is_said(tmp_path: Path, text: str, cluster: str, warning: str) -> None:
    _, side = ask(record(tmp_path, dead(10, 15)), settings(text, cluster=cluster))

    assert [one for one in side.warnings if one.startswith(warning)]


def test_lines_and_vantages_without_evidence_are_named(tmp_path: Path) -> None:
    directory = record(tmp_path, dead(10, 15))
    wanted = settings()
    other = settings(cluster=", policy: weighted")
    lines = tuple(line for line in wanted.lines if line.id != B)
    new = replace(lines[0], id=LineId("payments/new"), outbound="socks5://p:1")

    _, side = ask(directory, other._replace(lines=(*lines, new), vantages=wanted.vantages | {VantageId("v9")}))

    assert side.warnings == (
        "never heard in this span, but counted for the quorum: v9",
        "no evidence in this span: payments/new",
        "recorded, but not in the settings: payments/b",
    )


def test_a_cluster_of_which_the_journal_knows_nothing_is_named(tmp_path: Path) -> None:
    other = Scope(cluster="other")

    found = judged(segments_since(record(tmp_path, dead(10, 15)), None), {SCOPE: settings(), other: settings()})

    assert found.unknown == (other,)


def test_a_running_center_s_journal_is_read_as_it_stands(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path)
    ledger = Ledger(SCOPE, settings().lines, settings().rules, version=Version(1, 0), now_ms=0)
    journal.follow({SCOPE: ledger})
    journal.append(Ticked(scope=SCOPE, at_ms=10_000, changes=ledger.close(10_000).changes, digest=bytes(16)))
    assert journal.flush(30)

    _, side = ask(tmp_path, settings())
    journal.close()

    assert side.recorded.points.keys() == {line.id for line in settings().lines}


def test_a_slow_line_is_at_fault_though_nothing_fails(tmp_path: Path) -> None:
    crawling = reading(p50_us=400_000, p95_us=700_000, ewma_us=450_000)._replace(fresh_ok=10)

    _, side = ask(
        record(tmp_path, lambda number, _, line: crawling if 10 <= number <= 20 and line == A else healthy()),
        settings(),
    )

    assert [fault.line for fault in side.faults] == [A]
    assert summed(side.recorded, side.until_ms, side.faults)[A].false_opens == 0
