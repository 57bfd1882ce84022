"""What lines that are well have to offer to those that fail, in sums: so most of them need no look where one wants to trip. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import sub
from typing import Final, NamedTuple

from reachline.core.weigh import MILLI
from reachline.model import Line, Role

__all__ = ["NOBODY", "Others", "Refuge", "is_lower", "others", "without"]

_LOWER: Final = (Role.BACKUP, Role.RESERVE)


class Refuge:
    """Healthy lines: how many, what they can carry, and of how many that is unknown (`vague`: or nothing)."""

    def __init__(self, lines: int = 0, capacity: int = 0, unknown: int = 0, vague: int = 0) -> None:
        self.lines, self.capacity, self.unknown, self.vague = lines, capacity, unknown, vague

    def count(self, capacity: int | None, sign: int) -> None:
        """One more of this capacity, or one less."""
        self.lines += sign
        if capacity:
            self.capacity += sign * capacity
            return
        self.unknown += sign * (capacity is None)
        self.vague += sign


class Others(NamedTuple):
    """Lines that are well in every respect and take traffic, in sums; `lower` are those of a tier that takes over from others."""

    lines: int = 0
    bases: int = 0
    capacity: int = 0
    unknown: int = 0
    vague: int = 0
    lower: tuple[int, ...] = (0, 0, 0, 0)
    """How many, their capacity, how many of unknown capacity, and of those or none."""

    @property
    def weight(self) -> int:
        """In 1/1000 point: no fault takes anything from them."""
        return self.bases * MILLI


NOBODY: Final = Others()


def is_lower(line: Line) -> bool:
    """Whether it is a backup, or in the reserve group."""
    return not line.roles.isdisjoint(_LOWER)


def others(lines: Iterable[Line], *, is_tiered: bool) -> Others:
    """These lines, were all of them well."""
    taking = [line for line in lines if line.base and not line.drained]
    lower = [line.capacity for line in taking if is_lower(line)] if is_tiered else ()
    found = _carried([line.capacity for line in taking])
    return Others(found[0], sum([line.base for line in taking]), *found[1:], _carried(lower))


def without(all_lines: Others, some: Others) -> Others:
    """What is left of them."""
    lines, bases, capacity, unknown, vague, lower = all_lines
    return Others(
        lines - some.lines,
        bases - some.bases,
        capacity - some.capacity,
        unknown - some.unknown,
        vague - some.vague,
        tuple(map(sub, lower, some.lower)),
    )


def _carried(capacities: Sequence[int | None]) -> tuple[int, int, int, int]:
    some = [each for each in capacities if each]
    return len(capacities), sum(some), capacities.count(None), len(capacities) - len(some)
