"""Holes in how a zone becomes a health, faults and weight."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.core.holes.world import World

from reachline.core.judge import Judgement
from reachline.core.rules import FAULT
from reachline.model import Gate, Health


def after(zones: str, world: World | None = None) -> World:
    """A world after these zones of line a, tick by tick; lines b and c are well."""
    world = world or World("circuit_breaker: {cooldown_jitter: 0}")
    for zone in zones:
        world.tick(f"{zone}HH")
    return world


def test_weights_are_rounded_up() -> None:
    world = after("HDD")

    assert (world.standing().raw_milli, world.weight()) == (86_071, 87)


def test_a_period_is_three_heartbeats_and_each_bad_one_is_a_fault() -> None:
    world, seen = World(), []
    for zones in ("HDD", "DDD", "FFF"):
        after(zones, world)
        seen.append((world.weight(), world.row().judgement.faults))

    assert seen == [(87, FAULT), (55, 4 * FAULT), (0, 7 * FAULT)]


def test_the_first_fault_costs_most_and_each_one_the_same_factor() -> None:
    world, raw = World(), []
    for zone in "HDDDDDD":
        after(zone, world)
        raw.append(world.standing().raw_milli)

    steps = [before - now for before, now in pairwise(raw[1:])]
    assert steps == sorted(steps, reverse=True)
    assert len(set(steps)) == len(steps) == 5
    assert {round(100 * now / before) for before, now in pairwise(raw[1:])} == {86}


def test_a_fault_is_ten_seconds_of_bad_whatever_the_tick_is() -> None:
    halves = World("judge: {tick: 5s, heartbeat: 5s}")

    after("HDD" + 8 * "D", halves)

    assert halves.row().judgement.faults == 5 * FAULT == after("HDD" + 4 * "D").row().judgement.faults


def test_two_heartbeats_of_one_period_are_enough_to_degrade() -> None:
    assert after("HD").health() is not Health.DEGRADED
    assert after("HDD").health() is Health.DEGRADED


def test_three_good_ticks_lead_back_to_healthy() -> None:
    world = after("HHHDD")

    assert after("HH", world).health() is Health.DEGRADED
    assert after("H", world).health() is Health.HEALTHY


def test_only_failed_ticks_in_a_row_open() -> None:
    world = World()
    gates = [after(zone, world).gate() for zone in "DFDFFF"]

    assert gates == [Gate.CLOSED] * 5 + [Gate.OPEN]


def test_a_failed_tick_counts_toward_degraded_too() -> None:
    assert after("HHHFF").health() is Health.DEGRADED


def test_what_the_breaker_took_out_is_given_no_weight_by_milder_zones() -> None:
    world = after("FFF")

    seen = {(after(zone, world).health(), world.weight()) for zone in "DDDHH"}

    assert seen == {(Health.UNHEALTHY, 0)}


def test_while_open_further_failures_do_not_put_off_the_trial() -> None:
    world = after("FFF")
    until = world.row().breaker.until_ms

    after("FFFF", world)

    assert (world.row().breaker.until_ms, world.row().breaker.reopens) == (until, 0)


def test_each_zone_resets_the_counters_that_it_contradicts() -> None:
    def counted(zones: str) -> tuple[int, int]:
        judged = after(zones).row().judgement
        return judged.bad, judged.down

    assert [counted(zones) for zones in ("FD", "DF", "FFH", "FFDF")] == [(2, 0), (2, 1), (0, 0), (4, 1)]


def test_a_missing_heartbeat_is_no_vote_and_nobody_for_a_minute_makes_a_line_blind() -> None:
    world = after("HHHHHDD")

    def hear_one() -> Judgement:
        world.now_ms += world.rules.tick_ms
        world.say(world.vantages[0], "FHH")
        world.ledger.close(world.now_ms)
        return world.row().judgement

    degraded = hear_one()  # the others' votes are still fresh; then they have fallen silent, and one is no quorum
    assert hear_one() == degraded
    for _ in range(6):
        assert not world.row().blind
        world.wait()
    assert (world.row().blind, world.row().judgement) == (True, degraded)


def test_faults_are_capped_fade_are_forgotten_stand_still_while_open_and_are_gone_at_the_trial() -> None:
    assert after("HDD" + 30 * "D").row().judgement.faults == 20 * FAULT

    world = after("HDDHHH")
    assert world.row().judgement.faults == pytest.approx(FAULT / 2, abs=1)
    after(10 * "H", world)
    assert world.row().judgement.faults == 0

    world = after("HDDDFFF")
    faults = world.row().judgement.faults
    after("FFFFF", world)
    assert world.row().judgement.faults == faults == 5 * FAULT
    after("H", world)
    assert (world.gate(), world.row().judgement.faults) == (Gate.HALF_OPEN, 0)


def test_a_line_that_is_only_degraded_keeps_a_twentieth() -> None:
    assert after("HDD" + 60 * "D").weight() == 5
