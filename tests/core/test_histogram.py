import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.core import histogram
from reachline.core.histogram import Histogram
from reachline.errors import RemoteProtocolError

RTTS = st.floats(min_value=1.0, max_value=60_000_000.0)
HISTOGRAMS = st.builds(
    lambda values, scale: histogram.of(values, scale=scale), st.lists(RTTS, max_size=60), st.integers(0, 8)
)


@given(values=st.lists(RTTS, min_size=1, max_size=80), scale=st.integers(0, 8))
def test_each_value_is_in_the_bucket_whose_bounds_hold_it(values: list[float], scale: int) -> None:
    for value in values:
        ((index, count),) = histogram.of([value], scale=scale).buckets

        low, high = 2 ** (index / 2**scale), 2 ** ((index + 1) / 2**scale)
        assert count == 1
        assert low * (1 - 1e-12) < value <= high * (1 + 1e-12)


@pytest.mark.parametrize("exponent", range(24))
def test_a_power_of_two_ends_its_bucket_exactly(exponent: int) -> None:
    assert histogram.of([2.0**exponent]).buckets == ((8 * exponent - 1, 1),)
    assert histogram.of([math.nextafter(2.0**exponent, math.inf)]).buckets == ((8 * exponent, 1),)


@given(left=st.lists(RTTS, max_size=60), right=st.lists(RTTS, max_size=60), scale=st.integers(0, 8))
def test_merging_equals_the_histogram_of_all_values(left: list[float], right: list[float], scale: int) -> None:
    merged = histogram.merged(histogram.of(left, scale=scale), histogram.of(right, scale=scale))

    assert merged.buckets == histogram.of(left + right, scale=scale).buckets


@given(values=st.lists(RTTS | st.integers(0, 80).map(float), max_size=60), scale=st.integers(0, 8))
def test_many_values_are_in_the_buckets_that_each_alone_would_be_in(values: list[float], scale: int) -> None:
    alone = Counter(histogram.of([value], scale=scale).buckets[0][0] for value in values)

    assert histogram.of(values, scale=scale).buckets == tuple(sorted(alone.items()))


@given(values=st.lists(RTTS, max_size=60), fine=st.integers(0, 8), steps=st.integers(0, 8))
def test_a_coarser_scale_is_what_the_values_would_have_given_there(values: list[float], fine: int, steps: int) -> None:
    coarse = max(0, fine - steps)

    assert histogram.coarsened(histogram.of(values, scale=fine), coarse) == histogram.of(values, scale=coarse)


@given(parts=st.lists(HISTOGRAMS, max_size=5))
def test_merging_knows_no_order_loses_nothing_and_takes_the_lowest_scale(parts: list[Histogram]) -> None:
    merged = histogram.merged(*parts)

    assert merged == histogram.merged(*reversed(parts))
    assert merged.total == sum(part.total for part in parts)
    assert merged.scale == min((part.scale for part in parts), default=histogram.LINE_SCALE)


@given(part=HISTOGRAMS)
def test_bytes_hold_the_histogram(part: Histogram) -> None:
    assert histogram.decode(histogram.encode(part)) == part


@given(values=st.lists(RTTS, min_size=20, max_size=80), share=st.floats(0.01, 1.0))
def test_a_quantile_is_within_half_a_bucket_of_the_value_of_its_rank(values: list[float], share: float) -> None:
    found = histogram.of(values).quantile(share)

    exact = sorted(values)[max(1, math.ceil(share * len(values))) - 1]
    assert found is not None
    assert exact / found == pytest.approx(1, abs=0.045)


def test_an_empty_histogram_has_no_quantile() -> None:
    assert histogram.merged().quantile(0.5) is None


def test_a_window_of_200_spread_over_a_decade_stays_below_a_hundred_bytes() -> None:
    assert len(histogram.encode(histogram.of(20_000 * 1.0116**step for step in range(200)))) < 100


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "scale is missing"),
        (b"\x09", "above 8"),
        (b"\x03\x85", "ends inside a number"),
        (b"\x03\x05", "without its count"),
        (b"\x03\x05\x00", "empty or repeated"),
        (b"\x03\x05\x01\x00\x01", "empty or repeated"),
        (b"\x03" + b"\xff" * 6 + b"\x01\x01", "beyond any latency"),
    ],
)
def test_foreign_bytes_are_refused_with_the_reason(data: bytes, why: str) -> None:
    with pytest.raises(RemoteProtocolError, match=why):
        histogram.decode(data)


@given(data=st.binary(max_size=40))
def test_any_bytes_are_a_histogram_or_a_protocol_error(data: bytes) -> None:
    try:
        found = histogram.decode(data)
    except RemoteProtocolError:
        return

    assert histogram.decode(histogram.encode(found)) == found


def test_refining_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be refined"):
        histogram.coarsened(histogram.of([5.0], scale=2), 3)
