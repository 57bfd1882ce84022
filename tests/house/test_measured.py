"""A measurement is repeated where it did not hold, and what never holds fails."""

from __future__ import annotations

import pytest
from tests.measured import best_of


def measuring(*values: int):
    """A measurement that finds these values one after the other and wants 5 at most."""
    left = iter(values)

    def measure() -> int:
        found = next(left)
        assert found <= 5, f"found {found}"
        return found

    return measure


def test_the_first_measurement_that_holds_is_taken() -> None:
    assert best_of(3, measuring(9, 4, 3)) == 4


def test_what_never_holds_fails_with_the_last_finding() -> None:
    with pytest.raises(AssertionError, match="found 7"):
        best_of(3, measuring(9, 8, 7, 1))


def test_an_error_is_no_measurement() -> None:
    with pytest.raises(StopIteration):
        best_of(3, measuring(9))


def test_no_measurement_at_all_is_our_own_mistake() -> None:
    with pytest.raises(ValueError, match="0 measurements"):
        best_of(0, measuring(1))
