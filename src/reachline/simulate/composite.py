"""One figure for a whole run: 100 less what was lost, each part of it held against what doing nothing would have cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from reachline.simulate.ran import Figure

__all__ = ["composite"]

_SCALE: Final = {
    "bad_requests": 40,
    "false_trips_per_h": 20,
    "t_restore_full": 15,
    "overload_s": 15,
    "needless_shift": 10,
}
"""Points of each part."""
_FALSE_TRIPS: Final = 1.0
"""Per line-hour, in the place of what doing nothing costs: it never trips…"""
_SHIFT: Final = 0.1
"""…nor moves traffic: a tenth of all that is called…"""
_BAD: Final = 0.01
"""…and where no line ever fails it loses no call: the hundredth of all calls that scenarios allow at most. Chance alone makes a few in a
million differ from the oracle's."""
_NOTHING: Final = 1e-9
"""Shares are sums of parts, and miss what they should be by less than that: no cost."""


def composite(found: Mapping[str, Figure], worst: Mapping[str, Figure], *, run: float, has_truth: bool) -> float:
    """100 for one who loses nothing that doing nothing loses; what that cannot lose has a scale of its own.

    `worst` are the figures of `none` under the same seed, `run` the run's seconds, `has_truth` whether a line ever failed.
    """
    alone = {
        "bad_requests": _BAD,
        "false_trips_per_h": _FALSE_TRIPS,
        "t_restore_full": run,
        "overload_s": run,
        "needless_shift": _SHIFT,
    }
    never = run if has_truth else 0.0
    total = 100.0
    for name, points in _SCALE.items():
        figure, cost = found.get(name), worst.get(name)
        lost = never if figure is None else float(figure) if isinstance(figure, int | float) else 0.0
        against = float(cost) if isinstance(cost, int | float) and cost > _NOTHING else alone[name]
        total -= points * min(1.0, lost / against)
    return round(total, 2)
