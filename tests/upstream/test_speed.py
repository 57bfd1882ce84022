"""Ratios of one run on one machine, so that they hold on any."""

from __future__ import annotations

import random
import time
import timeit
from itertools import accumulate

import pytest
from tests.measured import best_of

from reachline.model import LineId, Version
from reachline.upstream import Cluster, LineList, Listed
from reachline.upstream.listing import target

pytestmark = pytest.mark.alone


def cluster(count: int) -> Cluster:
    rows = tuple(Listed(LineId(f"payments/{n}"), target(f"tcp://10.0.0.1:{n + 1}"), 100, 100) for n in range(count))
    made = Cluster("payments", clock=time.monotonic, rng=random.Random(1))
    made.replace(LineList(cluster="payments", lines=rows, version=Version(1, 1)), source="center")
    made.wake()
    return made


def fastest(call: object, number: int = 5_000) -> float:
    """Seconds of our own processor for one call, in the best of many runs: what others on the machine took is not ours."""
    return min(timeit.repeat(call, timer=time.thread_time, number=number, repeat=30)) / number  # type: ignore[arg-type]


@pytest.mark.parametrize("lines", [3, 100])
def test_a_pick_is_faster_than_random_choices_with_prepared_weights(lines: int) -> None:
    names, sums, rng = list(range(lines)), list(accumulate([100] * lines)), random.Random(1)

    def measure() -> None:
        pick, choices = fastest(cluster(lines).pick), fastest(lambda: rng.choices(names, cum_weights=sums)[0])
        assert pick < choices / 1.5

    best_of(3, measure)


def test_an_attempt_costs_no_more_than_a_few_picks() -> None:
    made = cluster(3)

    def attempt() -> None:
        with made.attempt():
            pass

    def measure() -> None:
        # Two looks at the clock, a pick, a lock and a sum: eight picks' worth as measured, twice that as the bound.
        assert fastest(attempt) < 16 * fastest(made.pick)

    best_of(3, measure)
