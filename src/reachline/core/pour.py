"""Traffic poured over lines by weight: what a line cannot carry goes to the others, and nothing is dropped. Pure integers.

Loads are in 1/1000 call a second, weights in 1/1000 point, capacities in calls a second. Knows no line by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

__all__ = ["Vessel", "Will", "is_enough", "poured"]

_PER_CALL: Final = 1_000


class Will(Enum):
    """What a line takes of others' traffic."""

    TAKES = 0
    """As much as it can carry."""
    YIELDS = 1
    """Degraded: what healthy lines cannot carry is its own first, beyond the headroom too."""
    BOUND = 2
    """Nothing: its share was set by its breaker or by the guard."""


class Vessel(NamedTuple):
    """One line: its weight so far, what it carries (None: nobody knows), and what it takes."""

    weight: int
    capacity: int | None = None
    will: Will = Will.TAKES


def is_enough(vessels: Sequence[Vessel], offered: int) -> bool:
    """Whether the capacities are known, and carry all that is offered."""
    if not vessels or not offered or any(vessel.capacity is None for vessel in vessels):
        return False
    return offered <= _PER_CALL * sum(vessel.capacity or 0 for vessel in vessels)


def poured(vessels: Sequence[Vessel], offered: int, fill_milli: int) -> list[int]:
    """The weights by which no line gets more than `fill_milli` of its capacity while another has room; their sum stays.

    Where all are that full, degraded lines take what is left up to their capacity, then healthy ones, then all by capacity.
    """
    weights = [vessel.weight for vessel in vessels]
    total = sum(weights)
    if not total or not offered:
        return weights
    filled = [_room(vessel.capacity, fill_milli) for vessel in vessels]
    loads = [offered * weight // total for weight in weights]
    if not any(room is not None and load > room for load, room in zip(loads, filled, strict=True)):
        return weights
    return [
        max(1, load * total // offered) if weight else 0
        for load, weight in zip(_loads(vessels, loads, filled, offered), weights, strict=True)
    ]


def _loads(vessels: Sequence[Vessel], loads: Sequence[int], filled: Sequence[int | None], offered: int) -> list[int]:
    """What each line carries once all that is offered is placed."""
    bound = {place for place, vessel in enumerate(vessels) if vessel.will is Will.BOUND or not vessel.weight}
    found = [
        (load if room is None else min(load, room)) if place in bound else 0
        for place, (load, room) in enumerate(zip(loads, filled, strict=True))
    ]
    left = offered - sum(found)
    free = {place: vessel.weight for place, vessel in enumerate(vessels) if place not in bound}
    left = _fill(found, left, free, filled)
    full = [_room(vessel.capacity, _PER_CALL) for vessel in vessels]
    for will in (Will.YIELDS, Will.TAKES):
        left = _fill(found, left, {place: free[place] for place in free if vessels[place].will is will}, full)
    # Nobody has room: more than everything is offered. All share the excess as they share the load.
    capacities = {place: vessels[place].capacity or 1 for place in free}
    _fill(found, left, capacities or {place: load for place, load in enumerate(loads) if load}, [None] * len(vessels))
    return found


def _fill(found: list[int], left: int, parts: Mapping[int, int], rooms: Sequence[int | None]) -> int:
    """Pour `left` into `found` by these parts until each is at its room; what nobody took."""
    open_parts = dict(parts)
    while left > 0 and open_parts:
        whole = sum(open_parts.values())
        wanted = {place: left * part // whole for place, part in open_parts.items()}
        over = {
            place: room - found[place]
            for place in open_parts
            if (room := rooms[place]) is not None and found[place] + wanted[place] >= room
        }
        for place, more in (over or wanted).items():
            found[place] += max(0, more)
        if not over:
            return 0
        left -= sum(max(0, more) for more in over.values())
        open_parts = {place: part for place, part in open_parts.items() if place not in over}
    return left


def _room(capacity: int | None, share_milli: int) -> int | None:
    return None if capacity is None else capacity * share_milli
