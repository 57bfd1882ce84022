from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.core.pick import WeightedRandom
from reachline.core.pick.weighted import WEIGHTS_MOST

CHI_SQUARE_999 = {1: 10.83, 2: 13.82, 3: 16.27, 4: 18.47, 5: 20.52, 9: 27.88}
"""The 99.9 % point by degrees of freedom, from any table of the distribution."""


def chi_square(seen: Counter[str], weights: dict[str, int], picks: int) -> float:
    total = sum(weights.values())
    expected = {name: picks * weight / total for name, weight in weights.items()}
    return sum((seen[name] - count) ** 2 / count for name, count in expected.items())


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    "weights",
    [
        {"a": 50, "b": 50},
        {"a": 95, "b": 5},
        {"a": 99, "b": 1},
        {"a": 87, "b": 100, "c": 23},
        {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 1_000_000},
        {f"{number}": 1 + number for number in range(10)},
    ],
    ids=str,
)
def test_shares_of_100_000_picks_follow_the_weights(seed: int, weights: dict[str, int]) -> None:
    picks, chance = 100_000, random.Random(seed)
    made = WeightedRandom(list(weights), list(weights.values()))

    seen = Counter(str(made.pick(chance)) for _ in range(picks))

    assert chi_square(seen, weights, picks) < CHI_SQUARE_999[len(weights) - 1]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=20), st.integers(0, 2**32))
def test_an_item_without_weight_is_never_picked(weights: list[int], seed: int) -> None:
    picker, chance = WeightedRandom(range(len(weights)), weights), random.Random(seed)

    picked = {picker.pick(chance) for _ in range(50)}

    assert all(item is None or weights[item] for item in picked)
    assert (None in picked) is not any(weights)
    assert len(picker) == sum(weight > 0 for weight in weights)


class Highest(random.Random):
    """The largest number that `random` can return."""

    def random(self) -> float:
        return 1 - 2**-53


class Lowest(random.Random):
    def random(self) -> float:
        return 0.0


@given(st.lists(st.integers(1, WEIGHTS_MOST // 10), min_size=1, max_size=10))
def test_the_ends_of_chance_are_the_first_and_the_last_item(weights: list[int]) -> None:
    picker = WeightedRandom(range(len(weights)), weights)

    assert picker.pick(Lowest()) == 0
    assert picker.pick(Highest()) == len(weights) - 1


def test_an_item_of_weight_zero_in_front_is_not_met_at_the_lower_end() -> None:
    assert WeightedRandom("abc", [0, 1, 0]).pick(Lowest()) == "b"
    assert WeightedRandom("abc", [0, 1, 0]).pick(Highest()) == "b"


@pytest.mark.parametrize("weights", [[], [0], [0, 0, 0]])
def test_nothing_to_choose_from_is_none(weights: list[int]) -> None:
    assert WeightedRandom("abc"[: len(weights)], weights).pick(random.Random(1)) is None


@pytest.mark.parametrize("weights", [[1, -1], [WEIGHTS_MOST, 1], [1]])
def test_weights_that_cannot_be_are_refused(weights: list[int]) -> None:
    with pytest.raises(ValueError, match=r"negative|at most|shorter"):
        WeightedRandom("ab", weights)


def test_the_same_seed_makes_the_same_choices() -> None:
    picker = WeightedRandom("abc", [5, 3, 2])

    runs = [[picker.pick(chance) for _ in range(100)] for chance in (random.Random(7), random.Random(7))]

    assert runs[0] == runs[1]
