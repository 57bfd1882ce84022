"""How much of the calls each priority gets, from the health of each: integers in percent, as Envoy computes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

__all__ = ["ALL", "Census", "Loads", "loads", "percent"]

ALL: Final = 100
"""Percent."""


class Census(NamedTuple):
    """Endpoints of one priority. `carried` are counts again, or weights where health is weighed: healthy, degraded, of."""

    total: int = 0
    healthy: int = 0
    degraded: int = 0
    excluded: int = 0
    carried: tuple[int, int, int] | None = None

    @property
    def usable(self) -> int:
        """Those that count: not excluded."""
        return self.total - self.excluded


class Loads(NamedTuple):
    """Percent of the calls by priority, for its healthy and its degraded endpoints, 100 together; and who panics."""

    healthy: tuple[int, ...]
    degraded: tuple[int, ...]
    panic: tuple[bool, ...]
    """In panic a priority's share goes to all of its endpoints, whatever their health."""


def percent(part: int, of: int, overprovision: int) -> int:
    """What a part that is well counts for, 0…100: `overprovision` percent of it."""
    return min(ALL, overprovision * part // of) if of else 0


def loads(priorities: Sequence[Census], *, overprovision: int = 140, panic: int = 50) -> Loads:
    """The loads of all priorities, the first first.

    Each takes what its healthy endpoints carry, overprovisioned; what is left goes to degraded ones in the same order; what
    rounding leaves goes to the first that carries anything. Where all panic, load follows the number of endpoints.
    """
    known = [each.carried or (each.healthy, each.degraded, each.usable) for each in priorities]
    healthy = [percent(well, of, overprovision) for well, _, of in known]
    degraded = [percent(half, of, overprovision) for _, half, of in known]
    total = min(ALL, sum(healthy) + sum(degraded))
    panics = tuple(total < ALL and _panics(each, panic) for each in priorities)
    if panics and all(panics):
        return Loads(_by_number(priorities), (0,) * len(panics), panics)
    if total == 0:
        # Nobody is well and panic is off: the first priority gets all, and has nobody to give it to.
        return Loads(tuple(ALL if place == 0 else 0 for place in range(len(panics))), (0,) * len(panics), panics)
    first, left = _shared(healthy, ALL, total)
    second, left = _shared(degraded, left, total)
    for shares, able in ((first, healthy), (second, degraded)):
        if left and any(able):
            shares[next(place for place, each in enumerate(able) if each)] += left
            left = 0
    return Loads(tuple(first), tuple(second), panics)


def _panics(census: Census, threshold: int) -> bool:
    """Whether the part that is usable at all lies under the threshold; a priority without endpoints panics."""
    if not census.usable:
        return threshold > 0
    return ALL * (census.healthy + census.degraded) < threshold * census.usable


def _shared(able: Sequence[int], left: int, total: int) -> tuple[list[int], int]:
    shares = []
    for each in able:
        shares.append(min(left, each * ALL // total))
        left -= shares[-1]
    return shares, left


def _by_number(priorities: Sequence[Census]) -> tuple[int, ...]:
    total = sum(each.total for each in priorities)
    if not total:
        return tuple(ALL if place == 0 else 0 for place in range(len(priorities)))
    shares = [ALL * each.total // total for each in priorities]
    shares[next(place for place, each in enumerate(priorities) if each.total)] += ALL - sum(shares)
    return tuple(shares)
