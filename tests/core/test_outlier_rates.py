from __future__ import annotations

from fractions import Fraction
from statistics import fmean, median, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.outliers import World, ejections, told
from tests.wanted import shows

from reachline.core.outlier_events import Action, Saw
from reachline.core.outlier_rules import ENVOY, Detector, OutlierRules, Spread
from reachline.core.outlying import POINT, RATE, below, bucket, percent, percentile, rate

RULES = ENVOY._replace(
    max_ejection_percent=100, consecutive_5xx=0, consecutive_gateway_failure=0, success_rate_request_volume=10
)
FAILURES = RULES._replace(
    enforcing_success_rate=0, enforcing_failure_percentage=100, failure_percentage_request_volume=10
)


def judged(rates: tuple[tuple[int, int], ...], rules: OutlierRules) -> list[str]:
    world = World(len(rates), rules)
    world.calls(*rates)
    world.at(10)
    return world.out


def test_a_rate_below_the_mean_by_more_than_the_factor_times_the_deviation_ejects() -> None:
    world = World(5, RULES)

    world.calls((100, 0), (100, 0), (100, 0), (100, 0), (50, 50))
    world.at(10)

    assert told(world.events) == [(10, "l4", "EJECT", "success_rate")]
    bar = world.outliers.bars[Detector.SUCCESS_RATE]
    assert (percent(bar.centre), percent(bar.limit)) == (90, 52)


@shows("one exact count")
def test_the_test_is_strict_and_exact_so_that_five_lines_at_twice_the_deviation_never_eject() -> None:
    for bad in ((50, 50), (1, 2), (1, 6), (98, 1)):
        scaled = (bad[0] * 40, bad[1] * 40)

        assert judged(((99, 0),) * 4 + (scaled,), RULES._replace(success_rate_stdev_factor=2_000)) == []
        assert judged(((99, 0),) * 4 + (scaled,), RULES._replace(success_rate_stdev_factor=1_999)) == ["l4"]


def test_four_lines_cannot_have_an_outlier_by_the_usual_factor() -> None:
    assert judged(((100, 0),) * 3 + ((0, 100),), RULES._replace(success_rate_minimum_hosts=3)) == []


def test_two_equal_bad_lines_of_five_hide_each_other() -> None:
    assert judged(((100, 0),) * 3 + ((0, 100),) * 2, RULES) == []


def test_a_tiny_spread_ejects_too() -> None:
    world = World(10, RULES)

    world.calls(*((100, 0),) * 9, (99, 1))
    world.at(10)

    assert world.out == ["l9"]
    assert world.outliers.bars[Detector.SUCCESS_RATE].limit * 100 // POINT == 9_933


def test_a_client_error_is_a_success() -> None:
    world = World(5, RULES)

    for number in range(5):
        world.call(number, 404 if number == 4 else 200, times=20)
    world.at(10)

    assert world.out == []


def test_only_lines_with_calls_enough_take_part_and_there_must_be_enough_of_them() -> None:
    nine = ((10, 0),) * 4 + ((5, 4),)
    ten = ((10, 0),) * 4 + ((5, 5),)

    assert judged(nine, RULES) == []
    assert judged(ten, RULES) == ["l4"]
    assert judged(ten, RULES._replace(success_rate_minimum_hosts=6)) == []


def test_only_the_interval_that_ended_counts() -> None:
    world = World(5, RULES)

    world.calls((100, 0), (100, 0), (100, 0), (100, 0), (0, 9))
    world.at(10)
    world.calls((100, 0), (100, 0), (100, 0), (100, 0), (0, 9))
    world.at(40)

    assert world.events == []


def test_a_line_that_is_out_does_not_take_part_but_counts_as_one_of_the_cluster() -> None:
    world = World(6, RULES._replace(consecutive_5xx=3, base_ejection_ms=60_000))
    world.call(5, 500, times=3)

    world.calls((100, 0), (100, 0), (100, 0), (100, 0), (0, 2), (0, 100))
    for _ in range(20):
        world.call(4)
        world.call(4, 500)
    world.at(10)

    assert told(world.events) == [(0, "l5", "EJECT", "consecutive_5xx"), (10, "l4", "EJECT", "success_rate")]


@pytest.mark.parametrize(("minimum", "is_skipped"), [(5, False), (6, True)])
def test_a_cluster_with_fewer_lines_than_both_minimums_is_not_looked_at(minimum: int, is_skipped: bool) -> None:
    rules = FAILURES._replace(success_rate_minimum_hosts=6, failure_percentage_minimum_hosts=minimum)

    assert (judged(((10, 0),) * 4 + ((0, 10),), rules) == []) is is_skipped


@pytest.mark.parametrize(("failed", "is_out"), [(84, False), (85, True), (86, True)])
def test_a_failure_percentage_at_the_threshold_ejects(failed: int, is_out: bool) -> None:
    out = judged(((100, 0),) * 4 + ((100 - failed, failed),), FAILURES)

    assert out == (["l4"] if is_out else [])


def test_failure_percentages_need_lines_and_calls_enough() -> None:
    few, enough = ((10, 0),) * 4 + ((0, 9),), ((10, 0),) * 4 + ((0, 10),)

    assert judged(few, FAILURES) == []
    assert judged(enough, FAILURES) == ["l4"]
    assert judged(enough, FAILURES._replace(failure_percentage_minimum_hosts=6)) == []


def test_failure_percentage_is_detected_but_not_enforced_unless_asked_for() -> None:
    world = World(5, RULES._replace(enforcing_success_rate=0, failure_percentage_request_volume=10))

    world.calls(*((100, 0),) * 4, (0, 100))
    world.at(10)

    assert [(each.detector, each.enforced) for each in world.events] == [
        (Detector.SUCCESS_RATE, False),
        (Detector.FAILURE_PERCENTAGE, False),
    ]


def test_a_line_that_violates_both_is_ejected_once_in_a_sweep_and_the_gauge_does_not_leak() -> None:
    """Envoy 1.40 ejects it twice and its gauge never returns to 0."""
    rules = FAILURES._replace(enforcing_success_rate=100, interval_ms=1_000, base_ejection_ms=3_000)
    world = World(5, rules)

    world.calls(*((100, 0),) * 4, (0, 100))
    world.at(1)

    assert (world.count("active"), world.count("enforced_total"), world.out) == (1, 1, ["l4"])
    assert (world.count("detected_success_rate"), world.count("detected_failure_percentage")) == (1, 1)
    world.at(4)
    assert (world.count("active"), world.out) == (0, [])
    assert told(world.events[1:]) == [(4, "l4", "UNEJECT", "time")]


@shows("worst first")
def test_of_several_the_worst_goes_first_where_the_cap_has_room_for_one() -> None:
    rules = FAILURES._replace(max_ejection_percent=20)
    world = World(5, rules)

    world.calls((10, 90), (5, 95), (100, 0), (100, 0), (0, 100))
    world.at(10)

    assert told(world.events) == [
        (10, "l4", "EJECT", "failure_percentage"),
        (10, "l1", "HELD", "cap"),
        (10, "l0", "HELD", "cap"),
    ]
    assert world.count("overflow") == 2


def split(rules: OutlierRules) -> World:
    """Line 4 cannot be connected to three times of four, and answers well where it is."""
    world = World(5, rules._replace(split_external_local_origin_errors=True, consecutive_local_origin_failure=0))
    for number in range(5):
        for turn in range(100):
            bad = number == 4 and turn % 4
            world.see(number, Saw.UNCONNECTED if bad else Saw.CONNECTED)
            if not bad:
                world.call(number)
    world.at(10)
    return world


def test_split_the_local_rates_have_detectors_of_their_own() -> None:
    assert told(split(RULES).events) == [(10, "l4", "EJECT", "success_rate_local_origin")]
    assert told(split(RULES._replace(enforcing_local_origin_success_rate=0)).events) == [
        (10, "l4", "EJECT", "not_enforced")
    ]
    rules = FAILURES._replace(
        enforcing_local_origin_success_rate=0, enforcing_failure_percentage_local_origin=100,
        failure_percentage_threshold=75,
    )  # fmt: skip
    assert [each.detector for each in ejections(split(rules).events)] == [Detector.FAILURE_PERCENTAGE_LOCAL_ORIGIN]


def test_split_local_failures_are_no_part_of_the_external_rates() -> None:
    world = split(RULES)

    assert world.outliers.bars[Detector.SUCCESS_RATE].centre == RATE
    assert world.outliers.bars[Detector.SUCCESS_RATE_LOCAL_ORIGIN].centre == 85 * POINT


def test_nothing_is_shown_of_rates_where_no_line_was_heard_enough() -> None:
    world = World(5, RULES)
    world.at(10)

    assert world.outliers.bars == {}


counts = st.tuples(st.integers(0, 300), st.integers(0, 300)).filter(lambda pair: sum(pair) > 0)


@given(st.lists(counts, min_size=1, max_size=8), st.integers(0, 4_000))
def test_below_by_deviation_is_the_textbooks_formula(pairs: list[tuple[int, int]], factor: int) -> None:
    rates = [rate(ok, ok + failed) for ok, failed in pairs]
    mean = Fraction(sum(rates), len(rates))
    variance = sum((each - mean) ** 2 for each in rates) / len(rates)

    bar, marks = below(rates, factor=factor, spread=Spread.DEVIATION)

    exact = [mean > each and (mean - each) ** 2 > Fraction(factor, 1_000) ** 2 * variance for each in rates]
    assert marks == exact
    floating = fmean(rates) - factor / 1_000 * pstdev(rates)
    assert bar.limit == pytest.approx(floating, abs=POINT / 1_000)
    assert float(bar.centre) == pytest.approx(float(mean), abs=1.0)


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=9), st.integers(0, 6_000), st.integers(0, 10**6))
def test_below_by_mad_is_the_textbooks_formula(values: list[int], factor: int, gap: int) -> None:
    centre = Fraction(median(map(Fraction, values)))
    spread = Fraction(median([abs(each - centre) for each in values]))
    reach = Fraction(factor, 1_000) * Fraction(14_826, 10_000) * spread

    _, marks = below(values, factor=factor, gap=gap, spread=Spread.MAD)

    assert marks == [each < centre and centre - each > reach and centre - each >= gap for each in values]


@given(st.lists(st.integers(1, 10**8), min_size=1, max_size=60), st.integers(1, 100))
def test_a_percentile_is_the_nearest_rank_within_a_thirtysecond(values: list[int], share: int) -> None:
    counted: dict[int, int] = {}
    for value in values:
        counted[bucket(value)] = counted.get(bucket(value), 0) + 1
    exact = sorted(values)[max(1, -(-len(values) * share // 100)) - 1]

    assert percentile(counted, share) == pytest.approx(exact, rel=1 / 32, abs=1)


def test_percent_gives_back_what_division_lost_and_is_never_negative() -> None:
    assert percent(rate(1, 3) + rate(2, 3)) == 100
    assert percent(rate(999, 1_000)) == 99
    assert percent(-POINT) == 0


def test_a_held_event_says_that_it_was_not_done() -> None:
    world = World(5, FAILURES._replace(max_ejection_percent=10))
    world.calls(*((100, 0),) * 4, (0, 100))
    world.at(10)

    assert [(each.action, each.enforced) for each in world.events if each.detector is Detector.FAILURE_PERCENTAGE] == [
        (Action.HELD, False)
    ]
