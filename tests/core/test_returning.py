from __future__ import annotations

import threading

import pytest

from reachline.core.returning import Flight, Pace, calls_most
from reachline.core.rules import LocalRules


@pytest.mark.parametrize(("concurrency", "most"), [(0, 3), (19, 3), (20, 4), (200, 13)])
def test_a_line_on_trial_gets_three_calls_and_a_twentieth_of_what_was_in_flight(concurrency: int, most: int) -> None:
    assert calls_most(LocalRules(), concurrency) == most


def test_a_trial_without_any_call_would_never_end() -> None:
    assert calls_most(LocalRules(trial_calls=0, trial_calls_milli=0), 100) == 1


def test_a_call_that_ends_makes_room_for_another() -> None:
    flight = Flight()

    assert [flight.enter(2) for _ in range(3)] == [True, True, False]
    flight.leave()
    assert flight.enter(2)
    assert len(flight) == 2


def test_without_a_limit_calls_are_counted_all_the_same() -> None:
    flight = Flight()

    assert all(flight.enter(None) for _ in range(100))
    assert len(flight) == 100
    assert not flight.enter(100)


def test_an_end_without_a_beginning_is_nothing() -> None:
    flight = Flight()
    flight.leave()

    assert len(flight) == 0


def test_no_second_has_more_than_its_number_wherever_it_begins() -> None:
    pace = Pace(5, 0)

    taken = [now_ms for now_ms in range(0, 4_000, 7) if pace.take(now_ms)]

    assert len(taken) >= 4 * 5
    assert all(sum(now_ms <= each < now_ms + 1_000 for each in taken) <= 5 for now_ms in range(4_000))


def test_many_threads_get_no_more_than_one() -> None:
    pace, flight, found = Pace(50, 0), Flight(), []

    def use() -> None:
        found.extend([pace.take(1) for _ in range(200)])
        found.extend([flight.enter(7) for _ in range(200)])

    threads = [threading.Thread(target=use) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert len(flight) <= 7
    assert found.count(True) <= 50 + 7
    assert sum(pace.take(1) for _ in range(100)) + found.count(True) >= 50
