"""What is different in two lists that are nearly the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["alike", "apart", "differing"]

_STRIDE: Final = 64
"""Items that are compared at once: nearly all are as they were."""


def differing(one: Sequence[str], other: Sequence[str], most: int) -> tuple[list[str], list[str]] | None:
    """What of two sorted lists is in the first alone, and in the second alone; None where that is too much."""
    alone, added, at, to = list[str](), list[str](), 0, 0
    while at < len(one) or to < len(other):
        if one[at : at + _STRIDE] == other[to : to + _STRIDE]:
            at, to = at + _STRIDE, to + _STRIDE
        elif to >= len(other) or (at < len(one) and one[at] < other[to]):
            alone.append(one[at])
            at += 1
        elif at >= len(one) or one[at] != other[to]:
            added.append(other[to])
            to += 1
        else:
            at, to = at + 1, to + 1
        if len(alone) + len(added) > most:
            return None
    return alone, added


def alike(one: Sequence[int], other: Sequence[int]) -> int:
    """Of how many numbers both begin alike."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def apart(one: Sequence[int], other: Sequence[int]) -> int:
    """How many numbers are not in what both begin with."""
    return len(one) + len(other) - 2 * alike(one, other)
