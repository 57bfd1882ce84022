from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.core.shares import PARTS, Pattern, is_beyond, parts_of, pattern_of, wilson

PORTS = range(32_768, 61_000)


@pytest.mark.parametrize(
    ("part", "whole", "low", "high"), [(0, 100, 0.0, 0.0370), (10, 100, 0.0552, 0.1744), (5, 5, 0.5655, 1.0)]
)
def test_the_interval_is_wilsons(part: int, whole: int, low: float, high: float) -> None:
    assert wilson(part, whole, 1.96) == pytest.approx((low, high), abs=1e-4)


def test_nothing_seen_may_be_anything() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("dead", "tried", "parts", "sure"),
    [
        (2, 16, None, False),
        (64, 512, 8, True),
        (32, 512, 16, True),
        (256, 512, 2, True),
        (171, 512, 3, True),
        (8, 64, 8, False),
        (8, 512, 64, False),
        (500, 512, None, False),
    ],
)
def test_a_share_is_named_once_one_number_fits_and_powers_of_two_come_first(
    dead: int, tried: int, parts: int | None, sure: bool
) -> None:
    assert parts_of(dead, tried) == (parts, sure)


@given(dead=st.integers(0, 512), tried=st.integers(1, 512))
def test_a_named_share_lies_in_the_interval(dead: int, tried: int) -> None:
    dead = min(dead, tried)

    parts, sure = parts_of(dead, tried)

    low, high = wilson(dead, tried)
    assert parts is None or (2 <= parts <= PARTS and low <= 1 / parts <= high)
    assert parts is not None or not sure


@given(parts=st.integers(2, 32), bucket=st.integers(0, 31), seed=st.integers(0, 1_000))
def test_a_residue_of_dead_ports_is_found_and_never_a_finer_one(parts: int, bucket: int, seed: int) -> None:
    bucket %= parts
    drawn = random.Random(seed).sample(PORTS, 512)

    found = pattern_of([p for p in drawn if p % parts == bucket], [p for p in drawn if p % parts != bucket])

    assert found == Pattern(parts, bucket)


def test_bits_further_up_are_found_too() -> None:
    drawn = random.Random(1).sample(PORTS, 256)

    found = pattern_of([p for p in drawn if (p >> 4) % 8 == 3], [p for p in drawn if (p >> 4) % 8 != 3])

    assert found == Pattern(8, 3, shift=4)


@given(seed=st.integers(0, 10_000), dead=st.integers(3, 60))
def test_ports_without_a_pattern_show_none(seed: int, dead: int) -> None:
    drawn = random.Random(seed).sample(PORTS, 512)

    assert pattern_of(drawn[:dead], drawn[dead:]) is None


@pytest.mark.parametrize(
    ("part", "whole", "by_chance", "beyond"),
    [
        (0, 512, 0.0, False),
        (64, 512, 0.0, True),
        (64, 512, 0.027, True),
        (64, 512, 0.064, False),
        (3, 512, 0.001, False),
    ],
)
def test_a_share_is_plainly_more_than_chance_or_it_is_not(
    part: int, whole: int, by_chance: float, beyond: bool
) -> None:
    assert is_beyond(part, whole, by_chance) is beyond
