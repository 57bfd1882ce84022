"""The center's small parts by themselves: cells, roster, readings, checks, metrics' text."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from reachline.center.checks import check
from reachline.center.metrics import Labels
from reachline.center.published import Published
from reachline.center.readings import HISTORY, Readings, detail_row
from reachline.center.roster import FORGET_MS, STRAY_MS, Arrival, Expected, Roster
from reachline.core import histogram
from reachline.errors import RemoteProtocolError
from reachline.model import CENSORED_US, Counts, Kind, LineId, Locality, Reading, VantageId
from reachline.testing import builders
from reachline.testing.center import good
from reachline.wire.frame import SLICE, Detail, Heartbeat, Hello, Report

A = LineId("payments/a")
ONE, TWO = VantageId("one"), VantageId("two")
FRESH = 25_000


def hello(agent: str = "one", **more: Any) -> Hello:
    known: dict[str, Any] = {"release": "1", "agent": agent, "boot": "b1"}
    return Hello(**(known | more))


def beat(sequence: int, **more: Any) -> Heartbeat:
    known: dict[str, Any] = {"agent": "one", "boot": "b1", "sequence": sequence}
    return Heartbeat(**(known | more))


def report(reading: Reading, **detail: Any) -> list[Report]:
    return [Report(line=A, reading=reading, detail=Detail(**detail))]


def test_a_published_value_wakes_everybody_who_waits():
    async def work():
        cell = Published(1)
        waiting = [asyncio.create_task(cell.changed(within=30)) for _ in range(3)]
        await asyncio.sleep(0)

        cell.replace(2)

        assert await asyncio.gather(*waiting) == [True, True, True]
        assert cell.value == 2
        assert await cell.changed(within=0.01) is False

    asyncio.run(work())


def test_sequences_are_new_once_and_gaps_are_counted():
    roster = Roster({})
    agent = roster.attach(hello(), 1, 0)

    said = [roster.heard(agent, 1, beat(sequence), 0) for sequence in (1, 2, 2, 1, 5)]

    assert said == [Arrival.NEW, Arrival.NEW, Arrival.DUPLICATE, Arrival.DUPLICATE, Arrival.NEW]
    assert (agent.heartbeats, agent.duplicates, agent.gaps) == (3, 2, 2)


def test_a_new_boot_begins_its_sequence_anew_and_the_same_boot_does_not():
    roster = Roster({})
    agent = roster.attach(hello(), 1, 0)
    roster.heard(agent, 1, beat(7), 0)

    same = roster.heard(roster.attach(hello(), 2, 0), 2, beat(7), 0)
    other = roster.heard(roster.attach(hello(boot="b2"), 3, 0), 3, beat(1, boot="b2"), 0)

    assert (same, other) == (Arrival.DUPLICATE, Arrival.NEW)


def test_a_replaced_stream_speaks_for_nobody():
    roster = Roster({})
    agent = roster.attach(hello(), 1, 0)
    roster.attach(hello(), 2, 0)

    assert roster.heard(agent, 1, beat(1), 0) is Arrival.STRANGER
    assert roster.detach(agent, 1, is_clean=True) is False
    assert roster.members(0) == {ONE}


def test_a_joined_agent_is_forgotten_an_hour_after_it_fell_silent_and_at_once_on_bye():
    roster = Roster({})
    one, two = roster.attach(hello("one"), 1, 0), roster.attach(hello("two"), 2, 0)
    for sequence in (1, 2, 3):
        roster.heard(one, 1, beat(sequence), 0)
    assert roster.deadline() is None

    roster.detach(one, 1, is_clean=False)
    assert roster.deadline() == FORGET_MS
    assert roster.members(FORGET_MS - 1) == {ONE, TWO}
    assert roster.members(FORGET_MS) == {TWO}
    roster.detach(two, 2, is_clean=True)
    assert roster.members(FORGET_MS) == frozenset()


def test_an_agent_that_was_hardly_there_is_waited_for_a_minute_only():
    roster = Roster({})
    one = roster.attach(hello("one"), 1, 0)
    roster.foreign(TWO, 0)

    roster.detach(one, 1, is_clean=False)

    assert roster.members(STRAY_MS - 1) == {ONE, TWO}
    assert roster.members(STRAY_MS) == frozenset()


def test_agents_that_counted_before_a_restart_are_waited_for_an_hour():
    roster = Roster({})

    roster.adopt([ONE], 0)

    assert roster.members(FORGET_MS - 1) == {ONE}
    assert roster.members(FORGET_MS) == frozenset()


def test_the_documents_agents_are_members_whatever_they_do_and_keep_their_locality():
    roster = Roster({ONE: Expected(Locality(zone="az1")), TWO: Expected()})
    one = roster.attach(hello(locality=("r", "elsewhere", "")), 1, 0)
    two = roster.attach(hello("two", locality=("r", "az2", "")), 2, 0)

    roster.detach(one, 1, is_clean=True)

    assert roster.members(10 * FORGET_MS) == {ONE, TWO}
    assert (one.locality.zone, two.locality.zone) == ("az1", "az2")
    assert roster.expect({TWO: Expected()}) == {ONE}
    assert roster.members(0) == {TWO}


def test_strangers_cannot_join_without_end():
    roster = Roster({})
    for number in range(1_000):
        assert roster.refusal(hello(f"a{number}")) is None
        roster.attach(hello(f"a{number}"), number + 1, 0)

    refusal = roster.refusal(hello("one-more"))
    assert refusal
    assert "have joined" in refusal.reason
    assert not refusal.is_final
    assert "have joined" in roster.foreign(VantageId("one-more"), 0)
    assert roster.refusal(hello("a7")) is None


def test_rates_are_pooled_by_their_own_counts_over_fresh_vantages():
    readings = Readings()
    readings.take(ONE, report(Reading(Kind.TCP, Counts(ok=90, late=10), sent=100, lost=1)), 0)
    readings.take(TWO, report(Reading(Kind.TCP, Counts(ok=300), sent=300, lost=3)), 1_000)

    both = readings.figures(A, 1_000, fresh_ms=FRESH)
    later = readings.figures(A, 1_000 + FRESH, fresh_ms=FRESH)
    nobody = readings.figures(A, 1_001 + FRESH, fresh_ms=FRESH)

    assert (both.timeout, both.loss) == (10 / 400, 4 / 400)
    assert (later.timeout, later.loss) == (0.0, 0.01)
    assert (nobody.timeout, nobody.p95, nobody.kind) == (None, None, None)


def test_words_of_a_target_cannot_steer_a_terminal():
    readings = Readings()
    readings.take(ONE, report(good(), error="it said \x1b[2J", address="\n[::1]"), 0)

    (seen,) = readings.seen(A).values()
    row = detail_row(seen)

    assert (row["error"], row["address"]) == ("it said \\x1b[2J", "\\n[::1]")


def test_a_vantage_that_left_is_shown_for_a_minute_and_ids_that_come_but_once_do_not_pile_up():
    readings = Readings()
    for number in range(200):
        readings.take(VantageId(f"once-{number}"), report(good()), number)
    readings.take(ONE, report(good()), 200)

    readings.members({ONE}, 200)
    shown = {vantage for vantage, _ in readings.seen(A)}
    readings.members({ONE}, 60_201)

    assert shown == {ONE, *(f"once-{number}" for number in range(136, 200))}
    assert {vantage for vantage, _ in readings.seen(A)} == {ONE}


def test_percentiles_of_several_vantages_come_from_their_merged_histograms():
    readings = Readings()
    for vantage, values in ((ONE, [10_000] * 95), (TWO, [400_000] * 5)):
        data = histogram.encode(histogram.of(values))
        readings.take(vantage, report(Reading(Kind.TCP, Counts(ok=len(values)), p95_us=values[0]), histogram=data), 0)

    figures = readings.figures(A, 0, fresh_ms=FRESH)

    assert figures.p50 == pytest.approx(0.010, rel=0.05)
    assert figures.p95 == pytest.approx(0.010, rel=0.05)


def test_void_replayed_and_censored_figures_are_never_shown_as_measured():
    readings = Readings()
    readings.take(ONE, report(good()._replace(void=True)), 0)
    assert readings.figures(A, 0, fresh_ms=FRESH).p95 is None
    readings.take(TWO, report(good()), 0, replayed=True)
    assert readings.figures(A, 0, fresh_ms=FRESH).p95 is None

    readings.take(TWO, report(Reading(Kind.TCP, Counts(ok=1, late=1), p95_us=CENSORED_US)), 0)
    readings.take(TWO, report(good()), 0, replayed=True)

    figures = readings.figures(A, 0, fresh_ms=FRESH)
    assert (figures.p95, figures.timeout) == (None, 0.5)


def test_a_list_shows_the_kind_whose_rtt_tells_most_and_the_worst_rate_of_all_but_dns():
    readings = Readings()
    rows = [(Kind.DNS, 40, 900_000), (Kind.HTTP, 10, 50_000), (Kind.TCP, 0, 20_000)]
    reports = [
        Report(line=A, reading=Reading(kind, Counts(ok=100 - late, late=late), p95_us=p95)) for kind, late, p95 in rows
    ]

    readings.take(ONE, reports, 0)

    figures = readings.figures(A, 0, fresh_ms=FRESH)
    assert (figures.kind, figures.p95, figures.timeout) == ("tcp", 0.02, 0.1)


def test_history_keeps_fifteen_minutes_and_tells_unknown_from_zero():
    readings = Readings()
    steps = int(HISTORY / 10) + 5

    for step in range(steps):
        if step == steps - 1:
            readings.take(ONE, report(Reading(Kind.TCP, Counts(ok=9, late=1), sent=10)), step * 10_000)
        readings.mark(A, step, step * 10_000, fresh_ms=FRESH, every_ms=10_000)

    points = readings.history(A)
    assert len(points) == HISTORY / 10
    assert [point.at_ms for point in points] == [step * 10_000 for step in range(5, steps)]
    assert (points[0].loss, points[-1].loss) == (None, 0.0)
    assert points[-1].timeout == pytest.approx(0.1)
    readings.keep(frozenset())
    assert readings.history(A) == ()


@pytest.mark.parametrize(
    ("spoilt", "field"),
    [
        (beat(-1), "sequence"),
        (beat(1, doubt=8), "doubt"),
        (beat(1, part=(0, 1)), "part"),
        (beat(1, reports=(Report(line="", reading=good()),)), "reports.0.line"),
        (beat(1, reports=(Report(line=A, reading=good()),) * (SLICE * len(Kind) + 1)), "reports"),
        (beat(1, reports=(Report(line=A, reading=good()._replace(rounds_ok=4)),)), "rounds_ok"),
        (beat(1, reports=(Report(line=A, reading=good()._replace(recent=1, recent_bad=2)),)), "recent_bad"),
        (beat(1, reports=(Report(line=A, reading=good()._replace(answered=51)),)), "answered"),
        (beat(1, reports=(Report(line=A, reading=good()._replace(p95_us=2**41)),)), "reading"),
        (beat(1, reports=(Report(line=A, reading=good(), detail=Detail(error="x" * 301)),)), "detail"),
    ],
)
def test_a_heartbeat_that_cannot_be_true_is_refused_by_field(spoilt, field):
    with pytest.raises(RemoteProtocolError, match=field):
        check(spoilt)


def test_an_honest_heartbeat_passes():
    check(beat(1, part=(2, 3), doubt=7, reports=tuple(report(good()))))
    check(beat(1, reports=tuple(report(Reading(Kind.TCP, Counts(late=3), p95_us=CENSORED_US)))))


def test_a_lines_labels_follow_it_and_go_with_it():
    labels, line = Labels(), replace(builders.line("a"), provider='p"1')

    first = labels.of((line, *builders.lines("b")))
    second = labels.of((replace(line, provider="p2"),))

    assert first == [
        '{line="payments/a",cluster="payments",provider="p\\"1"',
        '{line="payments/b",cluster="payments"',
    ]
    assert second == ['{line="payments/a",cluster="payments",provider="p2"']
    assert len(labels) == 1
