"""A ledger whose lines are measured by their own usual round trip: learnt over hours, in ticks of a minute."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reachline.core.ledger import Ledger
from reachline.core.rules import BaselineRules, FaultRules, Limit, QuorumRules, Rules, with_tables
from reachline.model import Health, Kind, LineId, Reading, Version
from reachline.testing import builders

MINUTE, HOUR, MS = 60_000, 60, 1_000
LIMITS = (
    Limit("loss", 10, 5, 50, 30, 25),
    Limit("p95", 200 * MS, 160 * MS, 500 * MS, 400 * MS, 20),
    Limit("ewma", 150 * MS, 120 * MS, 400 * MS, 320 * MS, 5),
    Limit("jitter", 150 * MS, 120 * MS, 400 * MS, 320 * MS, 20),
    Limit("connect", None, None, 0, 3, 3),
)
LONG_HAUL = Rules(
    tick_ms=MINUTE,
    limits=LIMITS,
    baseline=BaselineRules(degraded_milli=2_500, failed_milli=5_000),
    quorum=QuorumRules(fresh_ms=2 * MINUTE, blind_ms=10 * MINUTE),
    faults=with_tables(FaultRules(), decay=0.15, half_life_ms=30_000),
)
A, B = LineId("payments/a"), LineId("payments/b")
THREE = builders.vantages(3)


def at(p50_ms: int, *, kind: Kind = Kind.TCP) -> Reading:
    """A window around this median: half as much again at P95."""
    usual = p50_ms * MS
    reading = builders.reading(ok=50, p50_us=usual, p95_us=3 * usual // 2, ewma_us=usual)
    return reading._replace(kind=kind, jitter_us=usual // 2)


class World:
    """Two lines by three vantages; a tick is a minute."""

    def __init__(self, rules: Rules = LONG_HAUL) -> None:
        self.now_ms = 0
        self.ledger = Ledger(
            builders.scope(),
            builders.lines("a", "b"),
            rules,
            vantages=frozenset(THREE),
            version=Version(1, 0),
            now_ms=0,
        )

    def run(self, minutes: int, *of_a: Reading) -> None:
        for _ in range(minutes):
            self.now_ms += MINUTE
            for vantage in THREE:
                said = [*((A, reading) for reading in of_a), (B, at(20))]
                self.ledger.report(vantage, said, now_ms=self.now_ms)
            self.ledger.close(self.now_ms)

    @property
    def health(self) -> Health:
        return self.ledger.rows[A].judgement.health

    def usual(self, line: LineId = A) -> dict[Kind, int]:
        return self.ledger.poll.habits.usual(line, self.now_ms)


def test_a_line_that_is_slow_by_nature_is_degraded_until_three_hours_are_known_and_then_measured_by_itself() -> None:
    world = World()
    world.run(2 * HOUR, at(300))
    before = world.health
    world.run(2 * HOUR, at(300))

    assert world.usual() == {Kind.TCP: 300 * MS}
    assert [before, world.health] == [Health.DEGRADED, Health.HEALTHY]


@pytest.mark.parametrize(("p50", "health"), [(480, Health.HEALTHY), (520, Health.DEGRADED), (1_100, Health.UNHEALTHY)])
def test_such_a_line_is_degraded_at_2_5_and_failed_at_5_times_its_median(p50: int, health: Health) -> None:
    world = World()
    world.run(4 * HOUR, at(300))

    world.run(6, at(p50))

    assert world.health is health


def test_a_fault_is_not_learnt_however_slowly_it_comes() -> None:
    world = World()
    world.run(4 * HOUR, at(60))
    for minute in range(60 * 8):
        world.run(1, at(60 + minute))

    assert world.health is not Health.HEALTHY
    assert world.usual() == {Kind.TCP: 60 * MS}


def test_each_kind_has_its_own_usual() -> None:
    world = World()
    world.run(4 * HOUR, at(100), at(260, kind=Kind.HTTP))

    assert world.usual() == {Kind.TCP: 100 * MS, Kind.HTTP: 260 * MS}
    assert world.health is Health.HEALTHY


def test_what_is_usual_outlives_a_checkpoint_and_goes_on_as_if_there_had_been_none() -> None:
    world, other = World(), World()
    for one in (world, other):
        one.run(4 * HOUR + 20, at(300))
    other.ledger = Ledger.thaw(other.ledger.freeze())
    for one in (world, other):
        one.run(HOUR, at(310))

    assert other.ledger.freeze() == world.ledger.freeze()
    assert other.usual() == {Kind.TCP: 300 * MS}


def test_what_is_usual_follows_a_line_to_its_new_name_and_is_forgotten_with_it() -> None:
    world = World()
    world.run(4 * HOUR, at(300))
    line, _ = builders.lines("a", "b")
    renamed = LineId("payments/other")
    lines = [replace(line, id=renamed)]
    world.ledger.reconfigure(lines, LONG_HAUL, frozenset(THREE), now_ms=world.now_ms)

    assert world.usual(renamed) == {Kind.TCP: 300 * MS}
    assert world.usual(A) == world.usual(B) == {}


def test_other_rules_hold_nothing() -> None:
    world = World(Rules(limits=LIMITS, tick_ms=MINUTE))
    world.run(4 * HOUR, at(20))

    assert (world.ledger.poll.habits.said, world.ledger.poll.habits.known) == ({}, {})


@settings(max_examples=10, deadline=None)
@given(st.permutations(THREE), st.lists(st.integers(50, 900), min_size=3, max_size=3))
def test_the_order_of_heartbeats_inside_a_tick_does_not_matter(order: list[str], medians: list[int]) -> None:
    said = dict(zip(THREE, medians, strict=True))
    worlds = World(), World()
    for world, vantages in zip(worlds, (THREE, order), strict=True):
        for _ in range(3):
            world.now_ms += MINUTE
            for vantage in vantages:
                world.ledger.report(vantage, [(A, at(said[vantage])), (B, at(20))], now_ms=world.now_ms)  # type: ignore[arg-type,index]
            world.ledger.close(world.now_ms)

    assert worlds[0].ledger.poll.habits.known == worlds[1].ledger.poll.habits.known
