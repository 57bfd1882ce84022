"""How often a line is asked, by what is known of it: pure, with times of our own."""

from __future__ import annotations

import pytest
from tests.agent.peer import line

from reachline.agent.probed import Probed
from reachline.core import tempo
from reachline.core.ring import Columns
from reachline.core.window import Window, max_age
from reachline.model import Failure, Kind, Zone
from reachline.wire.frame import ProbePlan

NOW = 1_000.0


def probed(kind: Kind = Kind.TCP, *, every: float = 5.0, burst: int = 5) -> Probed:
    plan = ProbePlan(
        kind=kind, interval_ms=round(1_000 * every), suspect_interval_ms=2_000, burst=burst, max_age_ms=120_000
    )
    window = Window(Columns(), kind, size=plan.window, age=max_age(every, 120.0))
    return Probed(line("l", "tcp://10.0.0.1:443", plan), plan, window, base=0)


def round_of(one: Probed, now: float, *, ok: bool, lost: int = 0) -> None:
    """A whole round, told as the prober tells it."""
    number = one.number = one.number + 1
    for _ in range(one.plan.burst):
        failure = None if ok else Failure.TIMEOUT
        one.window.record(now, failure, 1_000 if ok else None, number=number, burst=one.plan.burst, sent=1, lost=lost)
        one.learn(now, answered=ok, lost=lost > 0)


def test_a_line_that_is_well_is_asked_at_its_usual_interval_and_one_unknown_or_failing_at_the_suspect_one() -> None:
    one = probed()

    assert one.every(1.0, NOW) == 2.0, "nothing is known yet"
    round_of(one, NOW, ok=True)
    assert one.every(1.0, NOW) == 5.0
    round_of(one, NOW, ok=False)
    assert one.every(1.0, NOW) == 2.0
    assert one.every(1.5, NOW) == 3.0


def test_a_lost_packet_of_an_answered_connect_makes_a_line_doubtful_for_a_minute() -> None:
    one = probed()
    round_of(one, NOW, ok=True, lost=1)
    round_of(one, NOW + 1, ok=True)

    assert one.every(1.0, NOW + tempo.DOUBT - 0.1) == 2.0
    assert one.every(1.0, NOW + tempo.DOUBT + 0.1) == 5.0


def test_a_turn_of_our_own_opinion_makes_a_line_doubtful_and_its_first_opinion_does_not() -> None:
    one = probed()
    round_of(one, NOW, ok=True)

    one.turn(Zone.H, NOW)
    assert one.every(1.0, NOW) == 5.0
    one.turn(Zone.F, NOW)
    assert one.every(1.0, NOW) == 2.0


def test_a_line_out_of_traffic_keeps_its_usual_interval_in_doubt_too() -> None:
    one = probed()
    one.turn(Zone.H, NOW)
    one.turn(Zone.F, NOW)
    round_of(one, NOW, ok=False)

    one.window.is_out = True

    assert one.every(1.0, NOW) == 5.0


def test_a_line_dead_for_ten_minutes_is_asked_half_as_often_until_one_round_gets_through() -> None:
    one = probed()
    round_of(one, NOW, ok=True)
    round_of(one, NOW + 5, ok=False)
    dead = NOW + 5 + tempo.DEAD

    assert one.every(1.0, dead - 1) == 2.0
    assert one.every(1.0, dead) == 4.0
    one.window.is_out = True
    assert one.every(1.0, dead) == 10.0
    round_of(one, dead, ok=True)
    assert one.every(1.0, dead) == 5.0


@pytest.mark.parametrize(("every", "burst", "slower"), [(30.0, 1, 30.0), (30.0, 5, 60.0), (5.0, 1, 10.0)])
def test_no_line_is_asked_so_seldom_that_its_window_runs_dry(every: float, burst: int, slower: float) -> None:
    one = probed(Kind.HTTP, every=every, burst=burst)
    round_of(one, NOW, ok=False)
    one.window.is_out = True

    assert one.every(1.0, NOW + tempo.DEAD) == slower


def test_what_a_line_knows_of_itself_outlives_its_plan() -> None:
    before, after = probed(), probed()
    round_of(before, NOW, ok=False)
    before.turn(Zone.H, NOW)
    before.turn(Zone.F, NOW)

    after.inherit(before)

    assert (after.number, after.zone, after.failing, after.doubted) == (1, Zone.F, NOW, NOW + tempo.DOUBT)


def test_two_answers_above_the_plans_limit_make_a_line_doubtful_and_one_does_not() -> None:
    one = probed()
    one.window.slow_us = 100_000
    round_of(one, NOW, ok=True)
    for answered, every in ((1, 5.0), (2, 2.0)):
        one.window.record(NOW, None, 150_000, number=2, burst=5)
        one.learn(NOW, answered=True, lost=False)

        assert one.every(1.0, NOW + 1) == every, answered
