"""Durations, shares and sizes: what people write, what it becomes, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from reachline.doors.units import duration, seconds, share, size, text_of_seconds, text_of_share, text_of_size


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5s", 5.0),
        ("100ms", 0.1),
        ("250us", 0.000_25),
        ("1m", 60.0),
        ("1m30s", 90.0),
        ("1.5h", 5_400.0),
        ("7d", 604_800.0),
        ("5 s", 5.0),
        (" 2s ", 2.0),
        ("0s", 0.0),
    ],
)
def test_a_duration_is_numbers_with_units(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize(
    "text", ["", "5", "s", "fast", "-1s", "5sec", "1e3s", "5s later", "1:30", "5,5s", "٣s", "1" * 13 + "s"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    assert seconds(text) is None
    with pytest.raises(PydanticCustomError, match="must be a duration"):
        duration(text)


@pytest.mark.parametrize("value", [5, 0.1, 100])
def test_a_number_without_unit_is_refused_and_both_units_are_offered(value: float) -> None:
    with pytest.raises(PydanticCustomError) as caught:
        duration(value)

    assert caught.value.context is not None
    assert caught.value.context["hint"] == f"did you mean {value:g}s or {value:g}ms?"


@given(st.integers(min_value=0, max_value=10**15))
def test_a_duration_written_is_read_back_to_the_microsecond(micros: int) -> None:
    value = micros / 1_000_000

    assert seconds(text_of_seconds(value)) == pytest.approx(value, abs=1e-7)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (60, "1m"),
        (90, "90s"),
        (3_600, "1h"),
        (604_800, "7d"),
        (0.1, "100ms"),
        (1.5, "1.5s"),
        (0.000_25, "250us"),
        (0, "0s"),
    ],
)
def test_a_duration_is_shown_in_the_unit_that_fits(value: float, expected: str) -> None:
    assert text_of_seconds(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [("1%", 0.01), ("0.5 %", 0.005), ("100%", 1.0), (0.05, 0.05), (1, 1), (0, 0)]
)
def test_a_share_is_a_number_or_a_percentage(value: object, expected: float) -> None:
    assert share(value) == expected


@pytest.mark.parametrize(
    ("value", "hint"), [(5, "did you mean 5%?"), (50.0, "did you mean 50%?"), ("half", "write 0.01 or 1%")]
)
def test_a_share_above_one_was_meant_as_percent(value: object, hint: str) -> None:
    with pytest.raises(PydanticCustomError) as caught:
        share(value)

    assert caught.value.context is not None
    assert caught.value.context["hint"] == hint


@given(st.integers(min_value=0, max_value=1_000_000))
def test_a_share_written_is_read_back_to_the_millionth(millionths: int) -> None:
    assert share(text_of_share(millionths / 1_000_000)) == millionths / 1_000_000


@pytest.mark.parametrize(("text", "expected"), [("2GB", 2 * 10**9), ("512MiB", 2**29), ("1.5kB", 1_500), ("7B", 7)])
def test_a_size_has_a_unit(text: str, expected: int) -> None:
    assert size(text) == expected


@given(st.integers(min_value=1, max_value=10**9))
def test_a_size_written_is_read_back_exactly(value: int) -> None:
    assert size(text_of_size(value)) == value


def test_a_size_without_unit_is_refused() -> None:
    with pytest.raises(PydanticCustomError, match="size with its unit"):
        size(500)
