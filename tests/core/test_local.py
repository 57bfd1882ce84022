from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.core.local import (
    UNTRIED,
    LocalBreaker,
    abandoned,
    claim,
    deadline,
    failed,
    is_blocked,
    is_forgotten,
    is_ready,
    may_trip,
    succeeded,
    wait_ms,
)
from reachline.core.rules import LocalRules
from reachline.model import Gate, LineId

RULES = LocalRules()


def tripped(now_ms: int = 0) -> LocalBreaker:
    return failed(failed(UNTRIED, now_ms, RULES, may_trip=True), now_ms, RULES, may_trip=True)


def test_two_failures_in_a_row_open_for_five_seconds() -> None:
    once = failed(UNTRIED, 1_000, RULES, may_trip=True)
    twice = failed(once, 1_200, RULES, may_trip=True)

    assert once.gate is Gate.CLOSED
    assert (twice.gate, twice.until_ms) == (Gate.OPEN, 6_200)


def test_a_success_between_two_failures_keeps_the_line_in() -> None:
    row = failed(UNTRIED, 0, RULES, may_trip=True)
    row = succeeded(row, 1, RULES)
    row = failed(row, 2, RULES, may_trip=True)

    assert row.gate is Gate.CLOSED


def test_failures_that_may_not_trip_are_counted_and_the_next_one_asks_again() -> None:
    row = UNTRIED
    for now_ms in range(5):
        row = failed(row, now_ms, RULES, may_trip=False)

    assert (row.gate, row.failures) == (Gate.CLOSED, 5)
    assert failed(row, 5, RULES, may_trip=True).gate is Gate.OPEN


@pytest.mark.parametrize(
    ("trips", "wait"),
    [(1, 5_000), (2, 10_000), (3, 20_000), (4, 40_000), (5, 60_000), (6, 60_000), (10_000, 60_000)],
)
def test_the_wait_doubles_up_to_a_minute(trips: int, wait: int) -> None:
    assert wait_ms(trips, RULES) == wait


def test_failing_trials_double_the_wait() -> None:
    row, waits, now_ms = tripped(), [], 0
    for _ in range(6):
        waits.append(row.until_ms - now_ms)
        now_ms = row.until_ms
        row = failed(claim(row, now_ms, RULES), now_ms, RULES, may_trip=True)

    assert waits == [5_000, 10_000, 20_000, 40_000, 60_000, 60_000]


def test_a_trial_that_passes_closes() -> None:
    row = succeeded(claim(tripped(), 5_000, RULES), 5_050, RULES)

    assert row.gate is Gate.CLOSED
    assert not is_blocked(row, 5_050)


def test_a_relapse_within_the_last_wait_goes_on_doubling_and_a_later_one_starts_anew() -> None:
    back = succeeded(claim(tripped(), 5_000, RULES), 5_000, RULES)

    soon = failed(failed(back, 9_998, RULES, may_trip=True), 9_999, RULES, may_trip=True)
    late = failed(failed(back, 9_999, RULES, may_trip=True), 10_000, RULES, may_trip=True)

    assert soon.until_ms - 9_999 == 10_000
    assert late.until_ms - 10_000 == 5_000


def test_one_trial_at_a_time_and_a_lost_one_frees_the_next_after_the_longest_wait() -> None:
    row = claim(tripped(), 5_000, RULES)

    assert is_blocked(row, 5_001)
    assert is_blocked(row, 64_999)
    assert is_ready(row, 65_000)


def test_a_trial_that_proved_nothing_frees_the_next_at_once() -> None:
    row = abandoned(claim(tripped(), 5_000, RULES), 5_500)

    assert is_ready(row, 5_500)
    assert abandoned(UNTRIED, 0) is UNTRIED


def test_results_that_arrive_while_open_change_nothing() -> None:
    row = tripped()

    assert failed(row, 1_000, RULES, may_trip=True) is row
    assert succeeded(row, 1_000, RULES) is row


def test_a_row_is_forgotten_once_it_can_change_nothing() -> None:
    back = succeeded(claim(tripped(), 5_000, RULES), 5_000, RULES)

    assert is_forgotten(UNTRIED, 0)
    assert not is_forgotten(back, 9_999)
    assert is_forgotten(back, 10_000)
    assert not is_forgotten(failed(UNTRIED, 0, RULES, may_trip=True), 10**9)
    assert not is_forgotten(tripped(), 10**9)


def test_the_deadline_is_the_first_moment_after_the_last_look() -> None:
    rows = [tripped(0), tripped(1_000), UNTRIED]

    assert deadline(rows, 0) == 5_000
    assert deadline(rows, 5_000) == 6_000
    assert deadline(rows, 6_000) is None


def ids(*names: str) -> list[LineId]:
    return [LineId(f"payments/{name}") for name in names]


@pytest.mark.parametrize(
    ("weights", "out", "allowed"),
    [
        ([100], 0, False),
        ([100, 100], 0, True),
        ([100, 100], 1, False),
        ([100, 100, 100], 1, False),
        ([100, 100, 100, 100], 1, True),
        ([100, 100, 100, 100], 2, False),
        ([100, 0], 0, False),
        ([100, 0, 0, 0], 0, False),
        ([100, 5, 0], 0, True),
    ],
)
def test_at_most_half_of_the_lines_and_never_the_last(weights: list[int], out: int, allowed: bool) -> None:
    lines = ids(*map(str, range(len(weights))))
    rows = {line: tripped() for line in lines[1 : 1 + out]}

    assert may_trip(lines[0], dict(zip(lines, weights, strict=True)), rows, RULES) is allowed


def test_a_line_that_carries_nothing_may_always_go_out_again() -> None:
    one, other = ids("a", "b")

    assert may_trip(one, {one: 0, other: 100}, {other: tripped()}, RULES)


Event = tuple[int, bool, int]


@given(
    weights=st.lists(st.integers(0, 2), min_size=1, max_size=6),
    events=st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.integers(0, 20_000)), max_size=60),
)
def test_whatever_happens_a_line_with_weight_stays_in(weights: list[int], events: list[Event]) -> None:
    lines = ids(*map(str, range(len(weights))))
    published = dict(zip(lines, weights, strict=True))
    rows: dict[LineId, LocalBreaker] = {}
    now_ms = 0
    for place, is_ok, later in events:
        now_ms += later
        line = lines[place % len(lines)]
        row = rows.get(line, UNTRIED)
        if is_ready(row, now_ms):
            row = claim(row, now_ms, RULES)
        free = may_trip(line, published, rows, RULES)
        rows[line] = succeeded(row, now_ms, RULES) if is_ok else failed(row, now_ms, RULES, may_trip=free)

        carrying = [each for each in lines if published[each]]
        out = [each for each in carrying if rows.get(each, UNTRIED).gate is not Gate.CLOSED]
        assert len(out) <= len(lines) // 2
        assert not carrying or len(out) < len(carrying)
