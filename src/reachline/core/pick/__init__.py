"""How one line is chosen from a snapshot. A picker is immutable: a new snapshot means a new picker."""

from __future__ import annotations

from typing import Any, Final

from reachline.core.pick.weighted import WeightedRandom

__all__ = ["TABLE", "WeightedRandom"]

TABLE: Final[dict[str, type[WeightedRandom[Any]]]] = {
    "weighted_random": WeightedRandom,
}
"""Each takes what may be chosen and the weights beside it, and has the `pick` of `abc.Picker`."""
