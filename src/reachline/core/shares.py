"""Which 1/n a share is, seen by sampling, and what numbers have in common: how a dead path among equal ones is named. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

__all__ = ["LEAST", "PARTS", "Finding", "Pattern", "is_beyond", "parts_of", "pattern_of", "wilson"]

PARTS: Final = 64
"""Equal paths at most: routers spread over 2 to 64 (wider groups exist, and one path in them is below what users notice)."""
LEAST: Final = 3
"""Dead ones before a share has a name: two may be a coincidence."""
_SURE: Final = 3.29
"""Standard deviations of the 99.9 % interval: four looks at one sample, and 1/8 is called by another name in 1 of 100 runs."""
_PLAIN: Final = 2.0
"""Times that what chance alone makes must lie below an interval, before a share is more than that."""
_BY_CHANCE: Final = 1e-4
"""A pattern is named where numbers without one would show it more seldom, all patterns looked for taken together."""


class Pattern(NamedTuple):
    """Dead ports p have (p >> shift) % parts == bucket, and no other has."""

    parts: int
    bucket: int
    shift: int = 0


class Finding(NamedTuple):
    """What is known of a line's paths."""

    dead: int
    """Ports of the survey that lead nowhere…"""
    tried: int
    """…of those whose end is known."""
    parts: int | None = None
    """One path of so many is dead; None: not known, or not yet."""
    pattern: Pattern | None = None
    """Where the dead ports show one."""


def wilson(part: int, whole: int, deviations: float = _SURE) -> tuple[float, float]:
    """The interval of a share of which `part` of `whole` were seen (Wilson's score); all of 0…1 where nothing was."""
    if not whole:
        return 0.0, 1.0
    share, squared = part / whole, deviations * deviations / whole
    middle = share + squared / 2
    reach = deviations * math.sqrt(share * (1 - share) / whole + squared / (4 * whole))
    return max(0.0, (middle - reach) / (1 + squared)), min(1.0, (middle + reach) / (1 + squared))


def is_beyond(part: int, whole: int, by_chance: float) -> bool:
    """Whether a share is plainly larger than the one that chance alone makes."""
    return wilson(part, whole)[0] > _PLAIN * by_chance


def parts_of(dead: int, tried: int) -> tuple[int | None, bool]:
    """(n, sure): the dead share is 1/n for the n that fits best, powers of two first where several fit; None: no n does.

    It is sure where nothing but one number fits, or nothing but one power of two.
    """
    if dead < LEAST:
        return None, False
    low, high = wilson(dead, tried)
    fits = [parts for parts in range(2, PARTS + 1) if low <= 1 / parts <= high]
    powers = [parts for parts in fits if parts.bit_count() == 1]
    best = min(powers or fits, key=lambda parts: abs(math.log(parts * dead / tried)), default=None)
    may_be_less = low <= 1 / (2 * PARTS)
    return best, len(fits) == 1 or (len(powers) == 1 and not may_be_less)


def pattern_of(dead: Collection[int], alive: Collection[int]) -> Pattern | None:
    """What all dead ports have in common and no living one has: a residue, or a pattern of bits; the coarsest there is."""
    if len(dead) < LEAST:
        return None
    for parts, shift in _PATTERNS:
        bucket, *others = {(port >> shift) % parts for port in dead}
        if others or len(_PATTERNS) * _chance(parts, len(dead), len(alive)) > _BY_CHANCE:
            continue
        if not any((port >> shift) % parts == bucket for port in alive):
            return Pattern(parts, bucket, shift)
    return None


def _patterns() -> Iterator[tuple[int, int]]:
    """Numbers of parts with where the bits begin: residues first, then bits further up."""
    yield from ((parts, 0) for parts in range(2, PARTS + 1))
    for bits in range(1, PARTS.bit_length()):
        yield from ((1 << bits, shift) for shift in range(1, 16 - bits + 1))


_PATTERNS: Final = tuple(_patterns())


def _chance(parts: int, dead: int, alive: int) -> float:
    """How likely ports without a pattern fall into one bucket if dead, and beside it if alive."""
    return (1 / parts) ** (dead - 1) * (1 - 1 / parts) ** alive
