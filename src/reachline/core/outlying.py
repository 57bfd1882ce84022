"""Who lies too far from the others: exact in integers, so that a line on the very threshold is judged alike everywhere.

Refuses to know what the numbers are; an outlier is always low, so latencies come in with their sign turned.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt
from typing import Final, NamedTuple

from reachline.core.outlier_rules import Spread

__all__ = ["POINT", "RATE", "Bar", "below", "bucket", "percent", "percentile", "rate"]

RATE: Final = 10**12
"""A success rate of 1. So fine that rates of up to a million calls differ wherever their fractions do."""
POINT: Final = RATE // 100
"""One percentage point."""
_MILLI: Final = 1_000
_NORMAL: Final = 14_826
"""Of a normal distribution the deviation is 1.4826 times the MAD, here in 1/10 000…"""
_WHOLE: Final = 10_000
"""…of this."""
_STEPS: Final = 16
"""Buckets of latencies an octave: a percentile is at most 3 % off."""
_BITS: Final = 4


class Bar(NamedTuple):
    """What values were held against, for people: rounded toward it by less than one unit; the test itself is exact."""

    centre: int
    limit: int


def rate(ok: int, total: int) -> int:
    """The share of `ok` in `total`, in 1/RATE."""
    return ok * RATE // total


def percent(value: int) -> int:
    """A rate in whole percent, cut as Envoy cuts it; never below 0. What division has lost is given back first."""
    return max(0, value + _MILLI) // POINT


def below(values: Sequence[int], *, factor: int, gap: int = 0, spread: Spread) -> tuple[Bar, list[bool]]:
    """The bar, and of each value whether it is lower than the centre by more than `factor`/1000 spreads and at least `gap`."""
    return _by_deviation(values, factor, gap) if spread is Spread.DEVIATION else _by_median(values, factor, gap)


def _by_deviation(values: Sequence[int], factor: int, gap: int) -> tuple[Bar, list[bool]]:
    """x < mean - f·s, multiplied by n and squared: no root, no division, no rounding."""
    count, total = len(values), sum(values)
    scatter = count * sum(value * value for value in values) - total * total  # n²·variance
    reach = factor * factor * scatter
    lows = [total - count * value for value in values]
    limit = total // count - factor * isqrt(scatter) // (_MILLI * count)
    found = [low > 0 and low * low * _MILLI**2 > reach and low >= gap * count for low in lows]
    return Bar(total // count, min(limit, total // count - gap)), found


def _by_median(values: Sequence[int], factor: int, gap: int) -> tuple[Bar, list[bool]]:
    """x < median - f·1.4826·MAD. Twice the median and twice the twofold MAD keep halves whole."""
    centre = _twice_median(values)
    spread = _twice_median([abs(2 * value - centre) for value in values])
    reach = factor * _NORMAL * spread
    found = [
        centre > 2 * value and (centre - 2 * value) * 2 * _MILLI * _WHOLE > reach and centre - 2 * value >= 2 * gap
        for value in values
    ]
    return Bar(centre // 2, centre // 2 - max(gap, reach // (4 * _MILLI * _WHOLE))), found


def _twice_median(values: Sequence[int]) -> int:
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]


def bucket(value: int) -> int:
    """The bucket of a latency: sixteen an octave, in integers."""
    value = max(1, value)
    octave = value.bit_length() - 1
    return octave * _STEPS + (((value << _BITS) >> octave) - _STEPS)


def percentile(counts: dict[int, int], share: int) -> int:
    """The nearest-rank percentile (1…100) of what was counted by bucket, as its bucket's middle. There must be something."""
    rank = -(-sum(counts.values()) * share // 100)
    for index in sorted(counts):
        rank -= counts[index]
        if rank <= 0:
            break
    octave, step = divmod(index, _STEPS)
    return ((2 * (_STEPS + step) + 1) << octave) // (2 * _STEPS)
