"""A factor to any whole power, in integers: tables of binary powers, computed once by a door and kept in the journal."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

__all__ = ["ONE", "power", "powers"]

ONE: Final = 10**12
"""The factor 1 in a table of powers: twelve digits keep an error of 25 roundings far below a fault's millionth."""


def powers(log_of_factor: float, *, highest: int) -> tuple[int, ...]:
    """factor ** (2 ** k) for k = 0…highest-1 in units of 1/ONE, from the natural logarithm of the factor of one unit.

    A place where floats make rules; a journal stores the result, so no replay ever computes it again.
    """
    return tuple(round(ONE * math.exp(log_of_factor * 2**k)) for k in range(highest))


@lru_cache(maxsize=1 << 14)  # a tick asks for the same few: of one elapsed time, and thrice of each line's faults
def power(table: tuple[int, ...], exponent: int) -> int:
    """factor ** exponent in units of 1/ONE, by squaring from the table; integers only. 0 past the table's end."""
    if exponent >> len(table):
        return 0
    result, bit = ONE, 0
    while exponent:
        if exponent & 1:
            result = result * table[bit] // ONE
        exponent >>= 1
        bit += 1
    return result
