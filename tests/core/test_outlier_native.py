from __future__ import annotations

import pytest
from tests.core.outliers import World, told

from reachline.core.outlier_events import Saw
from reachline.core.outlier_rules import ENVOY, Detector, OutlierRules, Spread, checked
from reachline.errors import ConfigError

RATES = ENVOY._replace(
    max_ejection_percent=100, consecutive_5xx=0, consecutive_gateway_failure=0, success_rate_request_volume=10
)
SLOW = RATES._replace(latency=True, latency_request_volume=10)


def timed(rules: OutlierRules, *times_ms: int, calls: int = 10) -> World:
    world = World(len(times_ms), rules)
    for number, each in enumerate(times_ms):
        world.see(number, Saw.ANSWERED, code=200, took_us=each * 1_000, times=calls)
    world.at(10)
    return world


def test_a_line_that_answers_far_more_slowly_than_the_others_is_ejected() -> None:
    world = timed(SLOW, 10, 11, 12, 13, 400)

    assert told(world.events) == [(10, "l4", "EJECT", "latency")]
    assert world.count("enforced_latency") == 1


def test_a_fast_one_is_not() -> None:
    assert timed(SLOW, 100, 110, 120, 130, 1).events == []


def test_slowness_within_the_minimum_gap_is_none_however_alike_the_others_are() -> None:
    assert timed(SLOW, 10, 10, 10, 10, 50).events == []
    assert timed(SLOW._replace(latency_minimum_gap_us=30_000), 10, 10, 10, 10, 50).out == ["l4"]


def test_latency_needs_lines_and_successes_enough_and_to_be_asked_for() -> None:
    assert timed(SLOW, 10, 11, 12, 400).events == []
    assert timed(SLOW, 10, 11, 12, 13, 400, calls=9).events == []
    assert timed(SLOW._replace(latency=False), 10, 11, 12, 13, 400).events == []


def test_a_line_that_is_out_is_not_timed_against_the_others() -> None:
    world = World(6, SLOW._replace(consecutive_5xx=3, base_ejection_ms=60_000))
    for number in range(6):
        world.see(number, Saw.ANSWERED, took_us=900_000 if number == 5 else 10_000, times=20)
    world.call(5, 500, times=3)
    world.at(10)

    assert (world.out, world.count("detected_latency")) == (["l5"], 0)


def test_only_successes_are_timed_so_that_fast_failures_make_nobody_fast() -> None:
    world = World(5, SLOW)
    for number in range(5):
        world.see(number, Saw.FAILED, code=500, took_us=10**6 if number == 4 else 1, times=20)
    world.at(10)

    assert [each for each in world.events if each.detector is Detector.LATENCY] == []


def test_the_percentile_says_which_slowness_counts() -> None:
    def half_slow(percentile: int) -> list[str]:
        world = World(5, SLOW._replace(latency_percentile=percentile))
        for number in range(5):
            world.see(number, Saw.ANSWERED, took_us=10_000 + number, times=15)
            world.see(number, Saw.ANSWERED, took_us=500_000 if number == 4 else 10_000, times=5)
        world.at(10)
        return world.out

    assert half_slow(50) == []
    assert half_slow(90) == ["l4"]


def test_two_bad_lines_of_seven_do_not_hide_each_other_by_median_and_mad() -> None:
    def judged(spread: Spread) -> list[str]:
        world = World(7, RATES._replace(spread=spread))
        world.calls((99, 1), (98, 2), (97, 3), (99, 1), (98, 2), (20, 80), (21, 79))
        world.at(10)
        return world.out

    assert judged(Spread.DEVIATION) == []
    assert judged(Spread.MAD) == ["l5", "l6"]


def test_a_minimum_gap_keeps_a_line_that_is_hardly_worse() -> None:
    def judged(gap: int, bad: tuple[int, int]) -> list[str]:
        world = World(10, RATES._replace(success_rate_minimum_gap=gap))
        world.calls(*((100, 0),) * 9, bad)
        world.at(10)
        return world.out

    assert judged(0, (99, 1)) == ["l9"]
    assert judged(5, (99, 1)) == []
    assert judged(9, (90, 10)) == ["l9"]
    assert judged(10, (90, 10)) == []


BOTH = RATES._replace(
    enforcing_failure_percentage=100,
    failure_percentage_request_volume=10,
    failure_percentage_threshold=50,
    together=(Detector.SUCCESS_RATE, Detector.FAILURE_PERCENTAGE),
)


@pytest.mark.parametrize(
    ("failed", "found"),
    [
        (40, [(10, "l4", "HELD", "alone")]),
        (60, [(10, "l4", "EJECT", "success_rate")]),
    ],
)
def test_detectors_that_belong_together_eject_only_together(
    failed: int, found: list[tuple[float, str, str, str]]
) -> None:
    world = World(5, BOTH)
    world.calls(*((100, 0),) * 4, (100 - failed, failed))
    world.at(10)

    assert told(world.events) == found
    assert world.count("overflow") == 0


def test_detectors_outside_the_group_eject_alone() -> None:
    world = World(5, BOTH._replace(consecutive_5xx=3))
    world.call(0, 500, times=3)

    assert world.out == ["l0"]


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (RATES._replace(together=(Detector.SUCCESS_RATE,)), "at least two different of"),
        (RATES._replace(together=(Detector.SUCCESS_RATE, Detector.CONSECUTIVE_5XX)), "at least two different of"),
        (RATES._replace(together=(Detector.SUCCESS_RATE, Detector.LATENCY)), "set latency"),
    ],
)
def test_groups_that_could_never_eject_are_refused(rules: OutlierRules, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        checked(rules)
