"""From faults and gate to weight, in 1/1000 point. The curve falls fastest first; each fault costs the same factor."""

from __future__ import annotations

from typing import Final

from reachline.core.rules import ONE, FaultRules, power

__all__ = ["MILLI", "cost_milli", "raw_milli", "score", "wire"]

MILLI: Final = 1_000
"""One point of weight, in 1/1000."""


def factor(faults: int, rules: FaultRules) -> int:
    """exp(-lambda * faults) in units of 1/ONE."""
    return power(rules.cost, faults)


def cost_milli(points_milli: int, faults: int, rules: FaultRules) -> int:
    """What `faults` leave of a weight, to the nearest 1/1000 point."""
    return (points_milli * factor(faults, rules) + ONE // 2) // ONE


def raw_milli(base: int, faults: int, share: int, rules: FaultRules) -> int:
    """A line's own weight: base * exp(-lambda * faults) * share/1000, before any policy, in 1/1000 point."""
    return cost_milli(base * MILLI, faults, rules) * share // 1_000


def wire(raw: int) -> int:
    """The published weight: rounded up, for 0 must mean "refused" and never "rounded away"."""
    return -(-raw // MILLI)


def score(raw: int, full: int) -> int:
    """0…100 for people: what a line carries of what it would carry in health; 0 only where it carries nothing."""
    if raw <= 0 or full <= 0:
        return 0
    return min(100, max(1, (100 * raw + full // 2) // full))
