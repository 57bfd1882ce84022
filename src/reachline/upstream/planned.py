"""The plan across regions in one client: calls by region as it says, and no more of them than it carries. No clock, no lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from reachline.core.pick import WeightedRandom
from reachline.core.steer import steered
from reachline.errors import Shed
from reachline.upstream.listing import Admitted, LineList, Pick

__all__ = ["Admitting", "admitted", "spread"]


class Admitting:
    """A picker that lets a share of all calls through and refuses the others, each by chance of its own: all callers of a
    cluster are refused alike, whatever they did before.
    """

    __slots__ = ("_cluster", "_picker", "_plan", "_shed")

    def __init__(self, picker: WeightedRandom[Pick], cluster: str, plan: Admitted, shed: Callable[[], None]) -> None:
        self._picker: Final = picker
        self._cluster: Final = cluster
        self._plan: Final = plan
        self._shed: Final = shed

    def __len__(self) -> int:
        """How many lines can be chosen."""
        return len(self._picker)

    def shares(self) -> tuple[tuple[Pick, float], ...]:
        """Each line with the chance that the next admitted call goes there."""
        return self._picker.shares()

    def pick(self, rng: Random, key: int | None = None) -> Pick | None:
        """One line; Shed where the plan does not carry this call."""
        if rng.random() < self._plan.share:
            return self._picker.pick(rng, key)
        self._shed()
        raise Shed(self._cluster, self._plan.priority, self._plan.share)


def admitted(
    picker: WeightedRandom[Pick], lines: LineList, shed: Callable[[], None]
) -> WeightedRandom[Pick] | Admitting:
    """The picker, as it is where the plan carries every call, or where there is no line to offer."""
    plan = lines.plan
    if plan is None or plan.share >= 1 or not len(picker):
        return picker
    return Admitting(picker, lines.cluster, plan, shed)


def spread(lines: LineList, weights: Sequence[int]) -> Sequence[int]:
    """The weights by which each region gets the share that the plan says; without a plan, as they are."""
    if lines.plan is None:
        return weights
    return steered(weights, [each.region for each in lines.lines], lines.plan.regions)
