"""Holes in whose word counts, and how much: votes, trust, and the business's own calls."""

from __future__ import annotations

from tests.core.holes.world import WELL, World

from reachline.core.trust import FULL, LEAST
from reachline.model import Gate, Health, Zone


def test_a_majority_of_those_configured_and_ties_are_mild_old_votes_count_for_nothing_and_one_alone_waits() -> None:
    tie = World(vantages=2)
    tie.tick(odd={0: "FHH"})
    assert tie.row().zone is Zone.H

    short = World(vantages=5)
    short.tick(odd={0: "FHH", 1: "FHH", 2: "---", 3: "---", 4: "---"}, times=3)
    assert (short.row().zone, short.gate()) == (Zone.N, Gate.CLOSED)

    old = World(vantages=3)
    old.tick(odd={0: "FHH", 1: "FHH"})
    old.now_ms += 2 * old.rules.tick_ms
    old.tick(odd={0: "---", 1: "---"})
    assert old.row().judgement.down == 1  # votes of 30 s ago are none

    lone = World(vantages=1)
    gates = []
    for _ in range(6):
        lone.tick("FHH")
        gates.append(lone.gate())
    assert gates == [Gate.CLOSED] * 5 + [Gate.OPEN]


def test_two_instances_of_one_vantage_have_one_vote() -> None:
    world = World()
    for _ in range(3):
        world.now_ms += world.rules.tick_ms
        for vantage, zones in zip((*world.vantages[:2], world.vantages[0]), ("FHH", "HHH", "FHH"), strict=True):
            world.say(vantage, zones)
        world.ledger.close(world.now_ms)

    assert (world.row().zone, world.gate()) == (Zone.H, Gate.CLOSED)


def test_trust_falls_by_differing_returns_by_agreeing_and_is_gone_for_a_minute_where_one_alone_sees_most_fail() -> None:
    def trusted(world: World) -> int:
        return world.ledger.poll.credit.of(world.vantages[0]).micro

    world = World(vantages=5)
    world.tick(times=3)
    world.now_ms += world.rules.tick_ms
    for vantage in world.vantages:
        world.hear({vantage: [WELL]}) if vantage != world.vantages[0] else world.say(vantage, "F")
    world.ledger.close(world.now_ms)
    assert trusted(world) == FULL * 8 // 10
    world.tick()
    assert trusted(world) == FULL * 82 // 100

    world.tick(odd={0: "FFH"})
    assert trusted(world) == LEAST
    world.tick(times=5)
    assert trusted(world) == LEAST
    world.tick(times=2)
    assert trusted(world) > LEAST


def test_the_business_needs_calls_and_callers_enough_a_fault_of_the_lines_own_and_three_ticks() -> None:
    def after(
        *, calls: tuple[int, int], clients: tuple[str, ...] = ("one", "two"), zones: str = "HHH", ticks: int = 5
    ) -> World:
        world = World()
        world.tick(times=3, calls={"b": (200, 0)}, clients=("one", "two"))
        for _ in range(ticks):
            world.tick(zones, calls={"a": calls, "b": (200, 0)}, clients=clients, late=True)
        return world

    assert after(calls=(160, 40), ticks=2).health() is Health.HEALTHY
    opened = after(calls=(160, 40))
    assert (opened.gate(), opened.standing().reason) == (Gate.OPEN, "business.timeout.failed")
    assert after(calls=(16, 4)).gate() is Gate.CLOSED  # 40 calls in ten seconds

    def called(**calls: dict[str, tuple[int, int]]) -> World:
        world = World()
        world.tick(times=3)
        for _ in range(5):
            world.now_ms += world.rules.tick_ms
            for vantage in world.vantages:
                world.say(vantage, "HHH")
            for client, made in calls.items():
                world.call(client, made, late=True)
            world.ledger.close(world.now_ms)
        return world

    assert called(one={"a": (150, 50)}, two={"a": (200, 0)}).gate() is Gate.CLOSED  # that caller's own fault
    assert called(one={"a": (150, 50)}, two={"b": (200, 0)}).gate() is Gate.CLOSED  # nobody seconds it

    assert after(calls=(200, 0), zones="FHH", ticks=3).gate() is Gate.CLOSED  # against the third failed tick
