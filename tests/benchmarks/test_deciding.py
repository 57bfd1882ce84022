"""What the page of `benchmarks/decide.py` says falls short."""

from __future__ import annotations

import pytest

from benchmarks import decide
from reachline.testing.bench import Figure


@pytest.mark.parametrize(
    ("measured", "bound", "short"),
    [
        (40.0, "≤ 40, goal 20", False),
        (40.1, "≤ 40, goal 20", True),
        (50_000.0, "≥ 50 000, goal 200 000", False),
        (49_999.0, "≥ 50 000, goal 200 000", True),
        (9.0, "", False),
    ],
)
def test_a_figure_beyond_its_bound_falls_short_and_one_beyond_its_goal_does_not(
    measured: float, bound: str, short: bool
) -> None:
    found = decide.is_short(Figure("tick", "ms", measured, measured, measured, 1, bound))

    assert found is short
