"""One cluster's part in the plan across regions, and what it makes of weights. Pure integers; knows no ledger and no document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

__all__ = ["FULL", "SHED", "SPENT", "WHOLE", "Steer", "steered", "thawed", "told"]

SHED: Final = "priority.shed"
"""The rule by which a cluster is refused what clusters of its own or a higher priority need…"""
SPENT: Final = "lines.full"
"""…or what its own lines cannot carry, whatever others have…"""
FULL: Final = "region.full"
"""…and by which its calls go elsewhere, whole."""
WHOLE: Final = 1_000_000
"""All of it, in millionths."""
_FINE: Final = 1_000
"""Weights are multiplied by this, so that a line of a small share keeps one."""


class Steer(NamedTuple):
    """What the plan says of one cluster: calls a second it asks for, how many are carried in which region (by name), and why."""

    calls: int
    placed: tuple[tuple[str, int], ...]
    reason: str
    priority: int = 0

    @property
    def carried(self) -> int:
        """Calls a second."""
        return sum(calls for _, calls in self.placed)

    @property
    def admitted(self) -> int:
        """The share of its calls that is carried, in millionths, rounded down."""
        return WHOLE * self.carried // self.calls if self.calls else WHOLE

    @property
    def shares(self) -> dict[str, int]:
        """Of what is carried, each region's share in millionths, rounded down; empty where nothing is."""
        carried = self.carried
        return {region: WHOLE * calls // carried for region, calls in self.placed} if carried else {}


def told(steer: Steer) -> str:
    """A cluster's part in words."""
    where = ", ".join(f"{region or 'no region'} {calls}" for region, calls in steer.placed) or "nowhere"
    why = {
        SHED: "regions carry no more, and what is of higher priority goes first",
        SPENT: "its own lines carry no more",
        FULL: "where its weights put it there is no room",
    }.get(steer.reason, steer.reason)
    share = 100 * steer.admitted / WHOLE
    return f"{steer.reason}: {share:.3g} % of {steer.calls} calls/s are carried ({where}); {why} (priority {steer.priority})"


def thawed(record: Sequence[Any] | None) -> Steer | None:
    """The steer of a checkpoint."""
    if record is None:
        return None
    calls, placed, *rest = record
    return Steer(calls, tuple((region, carried) for region, carried in placed), *rest)


def steered(weights: Sequence[int], regions: Sequence[str], shares: Mapping[str, int]) -> list[int]:
    """Weights by which each region gets its share (in millionths), and lines within a region as their weights say.

    A region that has a share and no line with weight leaves it to the others; where none has any, weights stay as they are.
    """
    totals: dict[str, int] = {}
    for weight, region in zip(weights, regions, strict=True):
        totals[region] = totals.get(region, 0) + weight
    if not any(shares.get(region, 0) for region, total in totals.items() if total):
        return list(weights)
    return [
        max(1, weight * share * _FINE // totals[region]) if weight and (share := shares.get(region, 0)) else 0
        for weight, region in zip(weights, regions, strict=True)
    ]
