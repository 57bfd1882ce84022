"""What a line's round trip usually is: learnt by the minute, kept by the hour, never from a fault."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.core.baseline import Heard, Known, heard, learnt, median, moved, pooled, raised, usual_us
from reachline.core.rules import BaselineRules, Limit
from reachline.model import VantageId
from reachline.testing import builders

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
MS = 1_000
RULES = BaselineRules(degraded_milli=2_500, failed_milli=5_000)
P95 = Limit("p95", 200 * MS, 160 * MS, 500 * MS, 400 * MS, 20)
JITTER = Limit("jitter", 150 * MS, 120 * MS, 400 * MS, 320 * MS, 20)


def taught(known: Known, hours: Iterable[int], p50_us: int, *, well: bool = True, clean: bool = True) -> Known:
    """The line at that median in all minutes of these hours."""
    for hour in hours:
        for minute in range(60):
            known = learnt(known, (p50_us, clean), is_well=well, now_ms=hour * HOUR + minute * MINUTE)
    return known


def test_nothing_is_usual_before_three_hours_of_it() -> None:
    known = taught(Known(), range(3), 80 * MS)

    assert usual_us(known, 3 * HOUR) is None, "the third hour is not over before a figure of the fourth"
    assert usual_us(taught(known, [3], 80 * MS), 3 * HOUR) == 80 * MS


def test_three_days_of_an_hour_stand_above_all_other_hours() -> None:
    known = Known()
    for day in range(4):
        known = taught(known, [24 * day], 300 * MS)
        known = taught(known, range(24 * day + 1, 24 * day + 24), 80 * MS)

    assert usual_us(known, 4 * DAY) == 300 * MS
    assert usual_us(known, 4 * DAY + HOUR) == 80 * MS


def test_an_hour_needs_a_quarter_of_its_minutes() -> None:
    known = Known()
    for hour in range(4):
        for minute in range(14):
            known = learnt(known, (80 * MS, True), is_well=True, now_ms=hour * HOUR + minute * MINUTE)

    assert usual_us(known, 4 * HOUR) is None


def test_one_figure_a_minute_counts_whatever_the_tick() -> None:
    known = Known()
    for tick in range(30):
        known = learnt(known, (80 * MS, True), is_well=True, now_ms=2_000 * tick)

    assert known.figures == (80 * MS,)


def test_what_is_older_than_a_week_is_forgotten() -> None:
    known = taught(Known(), range(6), 80 * MS)

    assert usual_us(known, 7 * DAY + HOUR) == 80 * MS
    assert usual_us(known, 7 * DAY + 4 * HOUR) is None


def test_a_fault_is_never_learnt_not_even_one_that_loses_nothing() -> None:
    known = taught(Known(), range(5), 80 * MS)
    taught_by_fault = taught(known, range(5, 30), 400 * MS, well=False)

    assert taught_by_fault == known


def test_a_fault_of_the_first_hour_is_not_learnt_where_the_line_was_healthy_before() -> None:
    known = learnt(Known(), (80 * MS, True), is_well=True, now_ms=0)

    assert taught(known, range(1, 30), 400 * MS, well=False) == known


def test_a_line_that_is_slow_by_nature_is_learnt_from_what_loses_nothing() -> None:
    slow = taught(Known(), range(4), 300 * MS, well=False)

    assert usual_us(slow, 4 * HOUR) == 300 * MS
    assert taught(Known(), range(4), 300 * MS, well=False, clean=False) == Known()


def test_a_line_that_stays_slow_for_more_than_a_week_is_learnt_anew() -> None:
    known = taught(Known(), range(5), 80 * MS)
    known = taught(known, range(5, 8 * 24), 400 * MS, well=False)

    assert usual_us(known, 8 * DAY) == 400 * MS


def test_the_median_of_the_fresh_vantages_counts_and_all_must_be_clean() -> None:
    said = {VantageId(f"v{number}"): Heard(us, True, 10_000) for number, us in enumerate((90, 80, 900))}
    said[VantageId("late")] = Heard(5, False, 0)

    assert pooled(said, 12_000, 5_000) == (90, True)
    assert pooled(said, 12_000, 20_000) == (80, False)
    assert pooled(said, 60_000, 5_000) is None


@pytest.mark.parametrize(
    ("ok", "refused", "lost", "clean"), [(100, 0, 0, True), (98, 2, 0, True), (97, 3, 0, False), (100, 0, 3, False)]
)
def test_a_reading_is_clean_up_to_two_percent(ok: int, refused: int, lost: int, clean: bool) -> None:
    told = heard(builders.reading(ok=ok, refused=refused)._replace(sent=100, lost=lost), 0)

    assert told is not None
    assert told.is_clean is clean


def test_void_readings_and_those_without_a_median_say_nothing() -> None:
    assert heard(builders.reading(ok=5)._replace(void=True), 0) is None
    assert heard(builders.reading(ok=5)._replace(p50_us=None), 0) is None


def test_limits_rise_to_the_multiples_and_never_fall_below_what_they_are() -> None:
    near, far = moved([P95, JITTER], 60 * MS, RULES), moved([P95, JITTER], 300 * MS, RULES)

    assert near == (P95, JITTER)
    assert far[0] == Limit("p95", 750 * MS, 600 * MS, 1_500 * MS, 1_200 * MS, 20)
    assert far[1] == Limit("jitter", 450 * MS, 360 * MS, 1_200 * MS, 960 * MS, 20)


def test_rates_and_limits_that_are_never_reached_stay_as_they_are() -> None:
    loss, never = Limit("loss", 10, 5, 50, 30, 25), Limit("ewma", None, None, None, None, 5)

    assert moved([loss, never], 300 * MS, RULES) == (loss, never)
    assert moved([P95], 300 * MS, BaselineRules()) == (P95,)
    assert moved([P95], None, RULES) == (P95,)
    assert raised(None, 300 * MS, 2_500) is None


@given(st.lists(st.integers(1, 10**9), min_size=1))
def test_the_median_is_one_of_the_values_with_no_more_than_half_on_either_side(values: list[int]) -> None:
    found = median(values)

    assert found in values
    assert 2 * sum(value < found for value in values) <= len(values)
    assert 2 * sum(value > found for value in values) <= len(values)
