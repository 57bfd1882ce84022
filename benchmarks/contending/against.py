"""Reachline beside each other contender, scenario by scenario: who has fewer bad calls, who trips falsely less, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from statistics import fmean
from typing import Final, NamedTuple

from benchmarks.contending.paired import Difference, difference
from benchmarks.contending.shown import PER, bad_rates
from benchmarks.contending.stored import Key, Stored

__all__ = ["OURS", "Against", "Verdict", "against"]

OURS: Final = "reachline"
NOBODY: Final = 1.0
"""Bad calls of 10 000 beyond the oracle's that count as none: as many as chance alone makes of a million calls."""


class Verdict(Enum):
    """What was asked of Reachline beside this contender, and what came of it."""

    BETTER = "fewer"
    EQUAL = "equal: nobody has any"
    OPEN = "not settled"
    WORSE = "**more**"


class Against(NamedTuple):
    """One comparison over the seeds that both have."""

    scenario: str
    contender: str
    bad: Difference
    """Bad calls of 10 000."""
    trips: Difference
    """False trips per line-hour."""
    has_any: bool
    """Whether one of the two has bad calls that the oracle has not."""

    @property
    def of_calls(self) -> Verdict:
        """Fewer are asked, or equal where nobody has any; the oracle cannot be beaten."""
        if self.bad.is_less:
            return Verdict.BETTER
        if not self.has_any:
            return Verdict.EQUAL
        return Verdict.WORSE if self.bad.is_more else Verdict.OPEN

    @property
    def trips_no_more(self) -> bool:
        """No more are asked: on average, or by no more than chance."""
        return self.trips.mean <= 0.0 or not self.trips.is_more

    @property
    def ok(self) -> bool:
        """As asked."""
        return self.of_calls in {Verdict.BETTER, Verdict.EQUAL} and self.trips_no_more


def against(scenario: str, contender: str, runs: Mapping[Key, Stored]) -> Against:
    """Over the seeds under which both ran."""
    seeds = sorted(
        seed for one, name, seed in runs if one == scenario and name == OURS and (one, contender, seed) in runs
    )
    ours, theirs = ([runs[scenario, name, seed] for seed in seeds] for name in (OURS, contender))
    return Against(
        scenario,
        contender,
        difference(bad_rates(ours), bad_rates(theirs)),
        difference(_trips(ours), _trips(theirs)),
        any(_beyond(runs_of) > NOBODY for runs_of in (ours, theirs)),
    )


def _beyond(runs: Sequence[Stored]) -> float:
    """Bad calls of 10 000 beyond the oracle's, on average."""
    figures = [run.metrics["bad_requests"] for run in runs]
    return PER * fmean(float(each) if isinstance(each, int | float) else 0.0 for each in figures) if figures else 0.0


def _trips(runs: Sequence[Stored]) -> list[float]:
    figures = (run.metrics["false_trips_per_h"] for run in runs)
    return [float(each) if isinstance(each, int | float) else 0.0 for each in figures]
