"""`fast` mode as a ledger decides by it: what adds up over vantages and calls, in ticks of two seconds."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest
from tests.core.modes import FAST, TICK_MS

from reachline.core.cusum import QUESTIONS
from reachline.core.ledger import Ledger
from reachline.core.rules import FAULT
from reachline.core.severity import severity_milli
from reachline.model import Gate, Health, LineId, Reading, VantageId, Version
from reachline.testing import builders

A, B = LineId("payments/a"), LineId("payments/b")
FIVE = builders.vantages(5)
WELL = builders.reading(ok=5)
DEAD = builders.reading(ok=0, refused=5, rounds_ok=0, p50_us=None, p95_us=None, ewma_us=None)


class World:
    """Two lines by some vantages."""

    def __init__(self, vantages: tuple[VantageId, ...] = FIVE) -> None:
        lines = builders.lines("a", "b")
        self.vantages, self.now_ms = vantages, 0
        self.ledger = Ledger(
            builders.scope(), lines, FAST, vantages=frozenset(vantages), version=Version(1, 0), now_ms=0
        )

    def tick(self, *, of_a: Mapping[VantageId, Reading] | Reading = WELL, calls: tuple[int, int] = (0, 0)) -> None:
        """All see B well, and A as said; `calls` are (ok, failed) to A."""
        self.now_ms += TICK_MS
        for vantage in self.vantages:
            said = of_a if isinstance(of_a, Reading) else of_a.get(vantage, WELL)
            self.ledger.report(vantage, [(A, said), (B, WELL)], now_ms=self.now_ms)
        if any(calls):
            outcome = builders.outcome("a", ok=calls[0], failed=calls[1])
            self.ledger.outcomes("shop", [outcome], now_ms=self.now_ms)
        self.ledger.close(self.now_ms)

    @property
    def a(self) -> tuple[Health, Gate]:
        row = self.ledger.rows[A]
        return row.judgement.health, row.breaker.gate


def healthy(vantages: tuple[VantageId, ...] = FIVE) -> World:
    world = World(vantages)
    for _ in range(5):
        world.tick()
    assert world.a == (Health.HEALTHY, Gate.CLOSED)
    return world


def test_a_dead_line_is_out_after_three_ticks() -> None:
    world = healthy()
    seen = []
    for _ in range(3):
        world.tick(of_a=DEAD)
        seen.append(world.a)

    assert seen == [
        (Health.HEALTHY, Gate.CLOSED),
        (Health.DEGRADED, Gate.CLOSED),
        (Health.UNHEALTHY, Gate.OPEN),
    ]


def test_one_sick_vantage_of_five_moves_nothing() -> None:
    world = healthy()
    for _ in range(60):
        world.tick(of_a={FIVE[2]: DEAD})

        assert world.a == (Health.HEALTHY, Gate.CLOSED)


def test_a_lone_vantage_needs_six_ticks() -> None:
    world = healthy(FIVE[:1])
    ticks = 0
    while world.a[1] is Gate.CLOSED:
        world.tick(of_a=DEAD)
        ticks += 1

    assert ticks == 6


@pytest.mark.parametrize("seed", range(3))
def test_a_few_percent_of_loss_degrade_and_never_open(seed: int) -> None:
    world, rng = healthy(), Random(seed)
    seen = set()
    for _ in range(200):
        marred = {vantage: WELL._replace(fresh_marred=sum(rng.random() < 0.04 for _ in range(5))) for vantage in FIVE}
        world.tick(of_a=marred)
        seen.add(world.a)

    assert (Health.DEGRADED, Gate.CLOSED) in seen
    assert all(gate is Gate.CLOSED for _, gate in seen)


def test_faults_grow_faster_the_nearer_a_line_is_to_failed() -> None:
    mild, hard = healthy(), healthy()
    for _ in range(6):
        mild.tick(of_a=WELL._replace(fresh_slow=3))
        hard.tick(of_a=WELL._replace(fresh_slow=5, fresh_crawl=1))

    assert mild.ledger.rows[A].judgement.faults < hard.ledger.rows[A].judgement.faults <= 20 * FAULT
    assert mild.a == hard.a == (Health.DEGRADED, Gate.CLOSED)


def test_one_sick_vantage_makes_no_degraded_line_lose_weight_faster() -> None:
    world = healthy()
    slow = WELL._replace(fresh_slow=1)

    for _ in range(10):
        world.tick(of_a=dict.fromkeys(FIVE[1:], slow) | {FIVE[0]: DEAD})

    row = world.ledger.rows[A]
    assert world.a == (Health.DEGRADED, Gate.CLOSED)
    assert severity_milli(row.recent, (), QUESTIONS) < 500


def test_what_only_the_business_sees_counts() -> None:
    world = healthy()
    for _ in range(3):
        world.tick(calls=(70, 30))

    assert world.a == (Health.UNHEALTHY, Gate.OPEN)


def test_without_a_quorum_nothing_is_said() -> None:
    world = healthy()
    world.vantages = ()
    for _ in range(3):
        world.tick()
    world.vantages = FIVE[:2]
    for _ in range(10):
        world.tick(of_a=DEAD)

    assert world.a == (Health.HEALTHY, Gate.CLOSED)


def test_a_degraded_line_is_healthy_again_within_half_a_minute() -> None:
    world = healthy()
    for _ in range(2):
        world.tick(of_a=DEAD)
    assert world.a == (Health.DEGRADED, Gate.CLOSED)
    ticks = 0
    while world.a[0] is Health.DEGRADED:
        world.tick()
        ticks += 1

    assert ticks <= 15


def test_a_checkpoint_keeps_what_has_added_up() -> None:
    world, other = healthy(), healthy()
    for one in (world, other):
        one.tick(of_a=DEAD)
    frozen = other.ledger.freeze()
    other.ledger = Ledger.thaw(frozen)
    for one in (world, other):
        one.tick(of_a=DEAD)
        one.tick(of_a=DEAD)

    assert other.a == (Health.UNHEALTHY, Gate.OPEN)
    assert other.ledger.freeze() == world.ledger.freeze()


IDLE = WELL._replace(fresh_ok=0)
"""Between two rounds: the window is there, nothing is new."""


def staggered(tick: int, seen: Reading, *, every: int = 3) -> dict[VantageId, Reading]:
    """Each vantage has a round in one of three ticks, not all in the same."""
    return {one: seen if (tick + place) % every == 0 else IDLE for place, one in enumerate(FIVE)}


def test_rounds_that_are_rarer_than_ticks_keep_their_quorum() -> None:
    world = World()
    for tick in range(15):
        world.tick(of_a=staggered(tick, WELL))

    assert world.a == (Health.HEALTHY, Gate.CLOSED)
    for tick in range(6):
        world.tick(of_a=staggered(tick, DEAD))

    assert world.a == (Health.UNHEALTHY, Gate.OPEN)


def test_one_sick_vantage_that_asks_more_often_than_the_others_moves_nothing() -> None:
    world = healthy()
    for tick in range(90):
        world.tick(of_a=staggered(tick, WELL) | {FIVE[0]: DEAD})

        assert world.a == (Health.HEALTHY, Gate.CLOSED)


def test_a_vantage_is_not_left_out_for_what_it_says_for_the_first_time() -> None:
    world = healthy()
    world.tick(of_a=dict.fromkeys(FIVE, IDLE) | {FIVE[0]: DEAD})
    first = world.ledger.rows[A].asked.sums
    world.tick(of_a=dict.fromkeys(FIVE, IDLE) | {FIVE[0]: DEAD})

    assert any(first)
    assert world.ledger.rows[A].asked.sums == first, "from then on it is"


def test_a_vantage_whose_window_ran_dry_is_not_counted() -> None:
    world = healthy()
    dry = {vantage: Reading(WELL.kind) for vantage in FIVE[:3]}
    for _ in range(10):
        world.tick(of_a=dict.fromkeys(FIVE, DEAD) | dry)

    assert world.a == (Health.HEALTHY, Gate.CLOSED), "two of five are no quorum"
