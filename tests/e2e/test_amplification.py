"""What retries do to the far side, counted there: the small edition of `benchmarks/retries.py`."""

from __future__ import annotations

import pytest
from benchmarks.retries import measure

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("breaker", [True, False], ids=["breaker", "budget"])
def test_one_ill_line_costs_the_others_a_fifth_more_at_most_and_the_callers_nothing(breaker: bool) -> None:
    found = measure(processes=4, rate=200, seconds=2.5, breaker=breaker)

    assert found.unanswered > 0
    assert sum(found.reached.values()) > found.calls  # there were retries
    assert found.amplification <= 1.2
    assert found.failed <= found.calls / 100
