from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.core.bucket import SPARE, Buckets, Claim

FOREVER = 1e9


def claim(key: str = "a", rate: float = 100.0, attempts: float = 5) -> Claim:
    return Claim(key, rate, attempts)


def test_what_was_saved_up_starts_at_once_and_the_rest_in_turn():
    buckets = Buckets()

    starts = [buckets.take([claim()], 10.0, FOREVER) for _ in range(5)]

    # Ten attempts are saved up in a tenth of a second, and the round that uses them up may begin.
    assert starts == pytest.approx([10.0, 10.0, 10.0, 10.05, 10.1])


@given(
    rate=st.floats(1, 1_000),
    rounds=st.lists(st.tuples(st.floats(0, 2), st.integers(1, 20)), min_size=1, max_size=80),
)
def test_no_second_has_more_than_the_rate_and_what_was_saved_up(rate: float, rounds: list[tuple[float, int]]) -> None:
    buckets, now, started = Buckets(), 0.0, []

    for gap, attempts in rounds:
        now += gap
        start = buckets.take([claim(rate=rate, attempts=attempts)], now, FOREVER)
        assert isinstance(start, float)
        assert start >= now
        started.append((start, attempts))

    for begin, _ in started:
        within = [attempts for start, attempts in started if begin <= start < begin + 1.0]
        # The round that begins last in this second may reach beyond it: it is started as a whole.
        assert sum(within[:-1]) <= rate * (1.0 + SPARE) + 1e-6


def test_a_round_that_would_start_too_late_is_refused_by_name_and_takes_nothing():
    buckets = Buckets()
    for _ in range(10):
        buckets.take([claim("full", rate=10, attempts=1)], 0.0, FOREVER)

    refused = buckets.take([claim("wide"), claim("full", rate=10, attempts=1)], 0.0, 0.5)
    wide = [buckets.take([claim("wide")], 0.0, FOREVER) for _ in range(3)]

    assert refused == "full"
    assert wide == [0.0, 0.0, 0.0], "the refused round took nothing from the other bucket"


def test_a_round_starts_when_the_slowest_of_its_buckets_lets_it():
    buckets = Buckets()
    for _ in range(3):
        buckets.take([claim("slow", rate=10, attempts=1)], 0.0, FOREVER)

    start = buckets.take([claim("fast"), claim("slow", rate=10, attempts=1)], 0.0, FOREVER)

    assert start == pytest.approx(0.2), "three had 0.0, 0.0 and 0.1"


def test_buckets_that_have_nothing_to_say_are_forgotten():
    buckets = Buckets()

    for number in range(10_000):
        buckets.take([claim(f"10.0.{number}.0/24")], number / 10, FOREVER)

    assert len(buckets) <= 1_025
    assert buckets.take([claim("10.0.1.0/24")], 1_001.0, FOREVER) == 1_001.0
