from __future__ import annotations

import pytest

from reachline.core.budget import FIRST_US, FLOOR, MOST_US, Budget, back_off_us


def earned(calls: int, now_ms: int = 0) -> Budget:
    budget = Budget()
    for _ in range(calls):
        budget.earn(now_ms)
    return budget


def spent(budget: Budget, now_ms: int, most: int = 10_000) -> int:
    """How many tries the budget pays for at one moment."""
    return next(count for count in range(most) if not budget.spend(now_ms))


@pytest.mark.parametrize("now_ms", [0, 999])
def test_a_process_that_never_calls_may_still_retry_ten_times_a_second(now_ms: int) -> None:
    assert spent(Budget(), now_ms) == FLOOR


def test_what_a_second_leaves_of_its_ten_is_gone() -> None:
    budget = Budget()

    assert [spent(budget, second * 1_000) for second in (5, 6, 60)] == [FLOOR] * 3


@pytest.mark.parametrize(("calls", "retries"), [(4, 0), (5, 1), (9, 1), (1_000, 200)])
def test_five_calls_earn_one_retry(calls: int, retries: int) -> None:
    assert spent(earned(calls), 0) == FLOOR + retries


@pytest.mark.parametrize(("later_ms", "retries"), [(9_999, 20), (10_000, 0), (3_600_000, 0)])
def test_calls_earn_retries_for_ten_seconds(later_ms: int, retries: int) -> None:
    assert spent(earned(100), later_ms) == FLOOR + retries


def test_what_would_be_lost_first_is_spent_first() -> None:
    budget = earned(10)
    for _ in range(10):
        budget.earn(5_000)
    assert all(budget.spend(5_000) for _ in range(FLOOR + 2))

    # The two of second 0 paid; those of second 5 are good for five seconds more.
    assert spent(budget, 12_000) == FLOOR + 2


def test_a_retry_is_paid_from_several_seconds() -> None:
    budget = Budget()
    for second in range(5):
        budget.earn(second * 1_000)
    assert all(budget.spend(4_000) for _ in range(FLOOR))

    assert budget.left(4_000) == 1
    assert budget.spend(4_000)
    assert not budget.spend(4_000)


def test_whatever_fails_no_second_sees_more_than_a_fifth_and_ten() -> None:
    budget, calls_a_second, tries = Budget(), 100, []
    for second in range(60):
        now_ms = second * 1_000
        for _ in range(calls_a_second):
            budget.earn(now_ms)
        tries.append(spent(budget, now_ms))

    assert set(tries) == {FLOOR + calls_a_second // 5}


def test_time_that_goes_back_earns_nothing_twice() -> None:
    budget = earned(10, now_ms=50_000)

    assert spent(budget, 40_000) == FLOOR + 2
    assert not budget.spend(49_000)


@pytest.mark.parametrize(
    ("retries", "most"), [(0, FIRST_US), (1, 2 * FIRST_US), (3, 8 * FIRST_US), (4, MOST_US), (1_000, MOST_US)]
)
def test_waits_double_up_to_a_quarter_of_a_second_and_chance_spreads_them_from_nothing(retries: int, most: int) -> None:
    assert back_off_us(retries, 0) == 0
    assert back_off_us(retries, 500_000) == most // 2
    assert most - back_off_us(retries, 999_999) <= 1
