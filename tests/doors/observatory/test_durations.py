"""Durations as Go parses them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.doors.observatory.durations import nanoseconds, text_of


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("10s", 10_000_000_000),
        ("2h45m", 9_900_000_000_000),
        ("100ms", 100_000_000),
        ("1.5h", 5_400_000_000_000),
        (".5s", 500_000_000),
        ("1.s", 1_000_000_000),
        ("1us", 1_000),
        ("1µs", 1_000),
        ("1.9ns", 1),
        ("-5s", -5_000_000_000),
        ("+5s", 5_000_000_000),
        ("0", 0),
        ("-0", 0),
        ("1m1m", 120_000_000_000),
    ],
)
def test_what_go_reads(text: str, nanos: int) -> None:
    assert nanoseconds(text) == nanos


@pytest.mark.parametrize(
    "text", ["", "10", "s", ".s", "10 s", "1d", "1S", "--1s", "1e3s", "9223372037s", "1" * 70 + "s", "1s ", "00"]
)
def test_what_go_refuses(text: str) -> None:
    assert nanoseconds(text) is None


@given(st.integers(0, 10**17))
def test_a_duration_written_is_read_back(nanos: int) -> None:
    assert nanoseconds(text_of(nanos)) == nanos
