"""Latency histograms that merge exactly: sparse, base 2, OpenTelemetry's exponential buckets. For people and reports.

Percentiles of several agents or hours cannot be averaged; counts in the same buckets can be added. A bucket `i` of scale
`s` holds values in (2**(i / 2**s), 2**((i + 1) / 2**s)]; scale 3 is 8 buckets an octave, at most 4.4 % off the middle.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from reachline.errors import RemoteProtocolError

__all__ = ["LINE_SCALE", "Histogram", "coarsened", "decode", "encode", "merged", "of"]

LINE_SCALE: Final = 3
"""Of one line on the wire: a window of 200 fills some dozen buckets, two bytes each."""
_FINEST: Final = 8
"""Scales above this split a microsecond at 100 ms more finely than any clock of ours."""
_LARGEST: Final = 64 << _FINEST
"""No index is beyond: 2**64 microseconds. What comes from a peer is held against it."""
_BOUNDS: Final = tuple(2.0 ** (step / (1 << _FINEST)) for step in range(1 << _FINEST))
"""Lower bounds of the buckets of the octave from 1 to 2 at the finest scale; a coarser one takes every n-th."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Counts by bucket, index ascending, none of them zero."""

    scale: int = LINE_SCALE
    buckets: tuple[tuple[int, int], ...] = ()

    @property
    def total(self) -> int:
        """How many values it holds."""
        return sum(count for _, count in self.buckets)

    def quantile(self, share: float) -> float | None:
        """The nearest-rank quantile as its bucket's geometric middle, in the values' unit; None while empty."""
        rank = max(1, math.ceil(share * self.total))
        seen = 0
        for index, count in self.buckets:
            seen += count
            if seen >= rank:
                return float(2 ** ((index + 0.5) / 2**self.scale))
        return None


def of(values: Iterable[float], *, scale: int = LINE_SCALE) -> Histogram:
    """The histogram of `values` (microseconds, say); anything below 1 counts as 1."""
    bounds, ordered = _BOUNDS[:: 1 << (_FINEST - scale)], sorted(values)
    buckets: list[tuple[int, int]] = []
    begin = 0
    while begin < len(ordered):  # a bucket at a time: there are a dozen of them, and two hundred values
        index, most = _bucket(max(ordered[begin], 1.0), scale, bounds)
        end = bisect_right(ordered, most, begin)
        buckets.append((index, end - begin))
        begin = end
    return Histogram(scale=scale, buckets=tuple(buckets))


def _bucket(value: float, scale: int, bounds: tuple[float, ...]) -> tuple[int, float]:
    """The bucket that holds the value, and the largest one it holds."""
    # frexp is exact, so a power of two is in the bucket that ends with it on every machine; log2 would not promise that.
    mantissa, exponent = math.frexp(value)
    step = bisect_left(bounds, 2 * mantissa)
    most = bounds[step] if step < len(bounds) else 2.0
    return ((exponent - 1) << scale) + step - 1, math.ldexp(most, exponent - 1)


def coarsened(histogram: Histogram, scale: int) -> Histogram:
    """The same values at a lower (or the same) scale: neighbours fall together, no count is lost."""
    steps = histogram.scale - scale
    if steps < 0:
        raise ValueError(f"a histogram of scale {histogram.scale} cannot be refined to {scale}")
    if not steps:
        return histogram
    counts: Counter[int] = Counter()
    for index, count in histogram.buckets:
        counts[index >> steps] += count
    return Histogram(scale=scale, buckets=tuple(sorted(counts.items())))


def merged(*histograms: Histogram) -> Histogram:
    """All of them as one, at the lowest scale among them; empty for none. The order does not matter."""
    scale = min((histogram.scale for histogram in histograms), default=LINE_SCALE)
    counts: Counter[int] = Counter()
    for histogram in histograms:
        counts.update(dict(coarsened(histogram, scale).buckets))
    return Histogram(scale=scale, buckets=tuple(sorted(counts.items())))


def encode(histogram: Histogram) -> bytes:
    """Compact bytes: scale, then per bucket the distance to the last one and the count, as variable-length integers."""
    out = bytearray((histogram.scale,))
    last = -1 << histogram.scale
    for index, count in histogram.buckets:
        _put(out, index - last)
        _put(out, count)
        last = index
    return bytes(out)


def decode(data: bytes) -> Histogram:
    """The histogram of `encode`; RemoteProtocolError where the bytes are none."""
    if not data or data[0] > _FINEST:
        raise RemoteProtocolError("histogram: the scale is missing or above 8")
    numbers = _numbers(data[1:])
    if len(numbers) % 2:
        raise RemoteProtocolError("histogram: a bucket without its count")
    index = -1 << data[0]
    buckets: list[tuple[int, int]] = []
    for distance, count in zip(numbers[::2], numbers[1::2], strict=True):
        if not count or (buckets and not distance):
            raise RemoteProtocolError("histogram: an empty or repeated bucket")
        index += distance
        buckets.append((index, count))
    if index > _LARGEST:
        raise RemoteProtocolError(f"histogram: bucket {index} is beyond any latency")
    return Histogram(scale=data[0], buckets=tuple(buckets))


def _put(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _numbers(data: bytes) -> list[int]:
    numbers, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte & 0x80:
            continue
        numbers.append(value)
        value = shift = 0
    if shift:
        raise RemoteProtocolError("histogram: it ends inside a number")
    return numbers
