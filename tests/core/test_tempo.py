import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.core import tempo

PLACES = st.floats(0, 1, exclude_max=True)
INTERVALS = st.floats(0.1, 3_600)
NOWS = st.floats(0, 1e7)


def rng() -> random.Random:
    return random.Random(5)


def test_the_phase_of_a_line_is_the_same_everywhere_and_fills_the_interval_evenly() -> None:
    phases = sorted(tempo.phase(f"payments/{number}") for number in range(1_000))

    assert tempo.phase("payments/az2-dedicated") == tempo.phase("payments/az2-dedicated")
    gaps = [late - early for early, late in itertools.pairwise(phases)]
    assert phases[0] < 0.01
    assert phases[-1] > 0.99
    assert max(gaps) < 0.01


@given(place=PLACES, every=INTERVALS, now=NOWS)
def test_the_first_round_is_within_an_interval_on_the_grid(place: float, every: float, now: float) -> None:
    due = tempo.next_due(place, every, None, now, rng())

    assert now - 1e-3 * every <= due.grid <= now + 1.001 * every
    steps = due.grid / every - place
    assert steps == pytest.approx(round(steps), abs=1e-3)
    assert not due.skipped


@given(place=PLACES, every=INTERVALS, now=st.floats(0, 1e6), rounds=st.integers(1, 50))
def test_jitter_moves_a_start_by_a_tenth_at_most_and_never_adds_up(
    place: float, every: float, now: float, rounds: int
) -> None:
    chance = rng()
    first = due = tempo.next_due(place, every, None, now, chance)

    for _ in range(rounds):
        due = tempo.next_due(place, every, due.grid, due.at, chance)
        assert abs(due.at - due.grid) <= tempo.JITTER * every * (1 + 1e-9) + 1e-6

    assert due.grid - first.grid == pytest.approx(rounds * every, rel=1e-6)
    assert not due.skipped


@given(place=PLACES, every=INTERVALS, late=st.floats(0, 20))
def test_a_round_more_than_an_interval_late_is_skipped_and_counted(place: float, every: float, late: float) -> None:
    last = (place + 100) * every
    now = last + (1 + late) * every

    due = tempo.next_due(place, every, last, now, rng())

    assert due.skipped == pytest.approx(late, abs=1) if late > 1 else due.skipped in (0, 1)
    assert due.grid == pytest.approx(last + (1 + due.skipped) * every)
    assert now - due.grid <= every * (1 + 1e-6)


def test_a_round_less_than_an_interval_late_is_due_at_once_and_nothing_is_skipped() -> None:
    due = tempo.next_due(0.0, 5.0, 100.0, 109.0, rng())

    assert due.grid == 105.0
    assert due.at < 109.0
    assert due.skipped == 0


@given(place=PLACES, now=st.floats(0, 1e5))
def test_a_line_that_turns_suspect_is_due_at_the_next_point_of_the_finer_grid(place: float, now: float) -> None:
    last = tempo.next_due(place, 5.0, None, now, rng()).grid

    due = tempo.next_due(place, 2.0, last, last + 0.1, rng())

    assert last < due.grid <= last + 2.0 + 1e-6
    steps = due.grid / 2.0 - place
    assert steps == pytest.approx(round(steps), abs=1e-3)


@pytest.mark.parametrize(
    ("failing", "doubted", "dead", "every"),
    [
        (False, False, False, 5.0),
        (True, False, False, 2.0),
        (False, True, False, 2.0),
        (True, True, False, 2.0),
        (False, False, True, 10.0),
        (True, False, True, 4.0),
    ],
)
def test_a_failing_or_doubted_line_is_asked_more_often_and_a_dead_one_half_as_often(
    failing: bool, doubted: bool, dead: bool, every: float
) -> None:
    assert tempo.interval(5.0, 2.0, failing=failing, doubted=doubted, dead=dead) == every
    assert tempo.interval(5.0, 2.0, failing=failing, doubted=doubted, dead=dead, factor=1.5) == 1.5 * every


def test_a_seldom_kind_is_asked_four_times_as_often_in_doubt_at_most() -> None:
    assert tempo.interval(30.0, 2.0, failing=False, doubted=True) == 7.5
    assert tempo.interval(30.0, 2.0, failing=True, doubted=True) == 2.0
    assert tempo.interval(1.0, 2.0, failing=False, doubted=True) == 1.0


def test_a_suspect_interval_never_slows_a_line_down() -> None:
    assert tempo.interval(1.0, 2.0, failing=True) == 1.0


@given(every=INTERVALS, burst=st.integers(1, 100))
def test_a_round_is_spread_over_less_than_its_jitter_and_so_ends_before_the_next_begins(
    every: float, burst: int
) -> None:
    last = (burst - 1) * tempo.gap(every, burst)

    assert 0 <= last < tempo.JITTER * every * (1 + 1e-9)


@pytest.mark.parametrize(
    ("wait", "every", "most"), [(4.0, 2.0, 3), (4.0, 5.0, 2), (4.0, 1.0, 5), (4.0, 0.1, 8), (0.1, 60.0, 2)]
)
def test_rounds_in_flight_are_those_a_wait_holds_and_one(wait: float, every: float, most: int) -> None:
    assert tempo.overlap(wait, every) == most


@given(rates=st.lists(st.floats(0.01, 100), max_size=50), cap=st.floats(1, 1_000))
def test_stretched_rates_never_exceed_the_cap_and_are_not_stretched_without_need(
    rates: list[float], cap: float
) -> None:
    factor = tempo.stretch(rates, cap)

    assert sum(rates) / factor <= cap * (1 + 1e-9)
    assert factor >= 1
    assert factor == 1 or sum(rates) > cap * (1 - 1e-9)
