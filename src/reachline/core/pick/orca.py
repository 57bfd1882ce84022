"""Client-side weighted round robin: weights from the load that endpoints report with their answers (ORCA; gRFC A58).

An endpoint weighs what it does per unit of utilisation. A weight counts once it has been known for a while and as long as it is
fresh; who has none weighs as the middle of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Final, NamedTuple, TypeVar

from reachline.core.pick.member import WEIGHT_MOST, Member

__all__ = ["Report", "Reported", "Weighing", "learned", "reweighed", "weight_of"]

T = TypeVar("T")


class Report(NamedTuple):
    """One load report of one endpoint; rates per second, utilisations 0…1 or above."""

    qps: float = 0.0
    eps: float = 0.0
    application: float = 0.0
    cpu: float = 0.0
    named: Mapping[str, float] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighing:
    """Settings of gRFC A58, and Envoy's order of utilisations."""

    blackout_ms: int = 10_000
    """A weight must have been known for so long: an endpoint's first reports are of a cold process."""
    expiry_ms: int = 180_000
    """A weight that old counts no more."""
    update_ms: int = 1_000
    """How often weights move, for whoever builds pickers."""
    penalty: float = 1.0
    """How much an error counts beside utilisation."""
    named: Sequence[str] = field(default_factory=tuple)
    """Metrics asked first, the greatest of them; then the application's utilisation, then the processor's."""


class Reported(NamedTuple):
    """What is known of one endpoint's weight."""

    weight: int
    since_ms: int
    """Since when there is one without a gap."""
    at_ms: int


_NONE: Final = 0.0


def weight_of(report: Report, weighing: Weighing) -> int | None:
    """What the report makes the endpoint weigh, 1…`WEIGHT_MOST`; None where it does not say, or says what cannot be."""
    usable = [value for name in weighing.named if (value := report.named.get(name, _NONE)) > 0]
    load = max(usable, default=_NONE) or max(report.application, _NONE) or report.cpu
    if not all(map(isfinite, (report.qps, report.eps, load))) or report.qps <= 0:
        return None
    load += weighing.penalty * max(report.eps, _NONE) / report.qps
    if load <= 0:
        return None
    return max(1, int(min(report.qps / load, WEIGHT_MOST)))


def learned(known: Reported | None, report: Report, now_ms: int, weighing: Weighing) -> Reported | None:
    """What is known after a report; a report that says nothing changes nothing."""
    weight = weight_of(report, weighing)
    if weight is None:
        return known
    is_new = known is None or now_ms - known.at_ms > weighing.expiry_ms
    return Reported(weight, now_ms if known is None or is_new else known.since_ms, now_ms)


def reweighed(
    members: Iterable[Member[T]], known: Mapping[str, Reported], now_ms: int, weighing: Weighing
) -> tuple[Member[T], ...]:
    """The members with the weights that count now; those without one get the median, and all 1 while nobody has any."""
    members = tuple(members)
    found = [_valid(known.get(member.key), now_ms, weighing) for member in members]
    some = sorted(weight for weight in found if weight is not None)
    middle = (some[(len(some) - 1) // 2] + some[len(some) // 2]) // 2 if some else 1
    weights = _fitting([middle if weight is None else weight for weight in found])
    return tuple(member._replace(weight=weight) for member, weight in zip(members, weights, strict=True))


def _fitting(weights: list[int]) -> list[int]:
    """The same ratios with a sum that a priority may have."""
    total = sum(weights)
    return (
        weights
        if total <= WEIGHT_MOST
        else [max(1, weight * (WEIGHT_MOST - len(weights)) // total) for weight in weights]
    )


def _valid(known: Reported | None, now_ms: int, weighing: Weighing) -> int | None:
    if known is None or now_ms - known.since_ms < weighing.blackout_ms or now_ms - known.at_ms > weighing.expiry_ms:
        return None
    return known.weight
