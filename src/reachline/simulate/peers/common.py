"""What several peers need: tiers of a policy, outcomes one by one, weights with a number, and trials of so many calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from reachline.simulate.contender import STEP_MS, Called, Choice, Run, RunLine

__all__ = ["Pace", "Ration", "Spread", "ended", "failures", "tiers"]

_PACE: Final = 0.05
"""Weight of the newest step in a client's pace: two seconds of memory."""


def tiers(run: Run) -> tuple[tuple[RunLine, ...], ...]:
    """Lines that carry traffic together; a later tier only where the ones before it cannot.

    Groups (`ab_groups`) are tiers everywhere; primary and backup share by their weights, as the scenario's bases say.
    """
    if run.policy != "ab_groups":
        return (run.lines,)
    reserve = tuple(line for line in run.lines if line.role == "reserve")
    traffic = tuple(line for line in run.lines if line.role != "reserve")
    return tuple(tier for tier in (traffic, reserve) if tier)


def ended(called: Called) -> int:
    """Calls that ended, however they did."""
    return called.ok + called.failed + called.late + called.errors


def failures(called: Called) -> Iterator[bool]:
    """The calls one after the other: True where one did not end well. A sample of many stands for all of them."""
    bad = called.failed + called.late + called.errors
    if not bad or not called.ok:
        yield from (bool(bad) for _ in range(ended(called)))
    else:
        yield from (failure is not None for failure in called.order)


class Spread:
    """One client's choice: the number grows with each other set of weights."""

    def __init__(self) -> None:
        self.choice = Choice(0, {})

    def put(self, weights: Mapping[str, float], trials: frozenset[str] = frozenset()) -> None:
        """The weights from now on, and the lines that get one call only."""
        if (weights, trials) != (self.choice.weights, self.choice.trials):
            self.choice = Choice(self.choice.number + 1, dict(weights), trials)


class Pace:
    """Calls of one client in a step, lately."""

    def __init__(self) -> None:
        self.per_step = 0.0

    def saw(self, calls: Iterable[Called]) -> None:
        """The calls of one step; to be told of quiet steps too."""
        self.per_step += _PACE * (sum(map(ended, calls)) - self.per_step)


class Ration:
    """A trial of so many calls. A contender only says shares, so the share is one that lets about as many through; then it
    waits for how they end, and asks again where none was drawn.
    """

    def __init__(self, calls: int, timeout_ms: int) -> None:
        self._wanted, self._timeout_ms = calls, timeout_ms
        self._left = float(calls)
        self._seen = 0
        self._again_ms: int | None = None

    def saw(self, calls: int) -> None:
        """So many of its calls ended well."""
        self._seen += calls

    def share(self, now_ms: int, expected: float) -> float:
        """The part of its ordinary share, 0…1, for the step from `now_ms`; `expected`: calls in a step at all of it."""
        if self._again_ms is not None:
            if now_ms < self._again_ms:
                return 0.0
            self._again_ms, self._left = None, float(max(1, self._wanted - self._seen))
        share = 1.0 if expected <= self._left else self._left / expected
        self._left -= max(share * expected, 1e-9)
        if self._left <= 1e-6:
            self._again_ms = now_ms + self._timeout_ms + 2 * STEP_MS
        return share
