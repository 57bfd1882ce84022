"""What a run comes to, in figures: how soon, how often falsely, how many calls it cost. A figure that never came is None.

Decisions of single clients count by their share of all clients; times of those are when half of them had decided.
"""

from __future__ import annotations

from reachline.simulate.counts import COUNTS
from reachline.simulate.named import named
from reachline.simulate.ran import Figure, Ran, faults_of
from reachline.simulate.spreads import SHARES
from reachline.simulate.times import TIMES

__all__ = ["figures"]


def figures(ran: Ran) -> dict[str, Figure]:
    """Every figure that this run has."""
    faults = faults_of(ran)
    found: dict[str, Figure] = {name: make(ran, faults) for name, make in TIMES.items()}
    found |= {name: make(ran) for name, make in COUNTS.items()}
    found |= {name: make(ran, faults) for name, make in SHARES.items()}
    found["line_hours"] = ran.hours
    found["false_trips"] = (
        found["false_trips_per_h"] * ran.hours if isinstance(found["false_trips_per_h"], float) else 0.0
    )
    found["calls"] = round(ran.seen.sums.wanted)
    found["bad_calls"] = ran.seen.sums.bad
    if ran.told is not None:
        found |= named(ran.run, ran.seen, ran.told, [(fault.line, fault.begin, fault.end) for fault in faults])
    return found
