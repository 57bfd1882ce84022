"""What is seen of a run, for the scoring: shares and loads each second, every decision, sums of calls. Judges nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from reachline.simulate.contender import Called, Choice, Event, What
from reachline.simulate.fleet import Sums
from reachline.simulate.load import Loads
from reachline.simulate.scenarios import Scenario
from reachline.simulate.timeline import Timeline

__all__ = ["Observer", "Second"]


class Second(NamedTuple):
    """The world at one full second."""

    at_ms: int
    shares: Mapping[str, float]
    used: Mapping[str, float]
    wanted: float
    """Calls that callers made so far, …"""
    bad: int
    """…those that did not end well…"""
    retries: int
    """…and how often callers tried again."""
    tails_ms: Mapping[str, float]
    """P95 of calls by line, as the line is now."""


class Observer:
    """Written by the world of one run."""

    def __init__(self, scenario: Scenario, timeline: Timeline) -> None:
        self.scenario, self.timeline = scenario, timeline
        self.seconds: list[Second] = []
        self.events: list[Event] = []
        self.sums = Sums()
        self.end_ms = 0
        self.calls: dict[str, list[tuple[int, int]]] = {line: [] for line in scenario.lines}
        """By line: (at, calls that ended), while it stood open for all or is a line that an operator drains at some time."""
        self._open: set[str] = set()
        self._drained = {phase.line for phase in scenario.phases if phase.admin}
        self.negative = 0
        """Probes that took less than no time."""
        self.left: list[tuple[int, str, str]] = []
        """(at, line, client) of every client that stopped choosing a line."""

    def step(self, now_ms: int, events: Sequence[Event], calls: Sequence[Called]) -> None:
        """One step's decisions and ended calls."""
        for event in events:
            if event.what is What.OPEN and not event.client:
                self._open.add(event.line)
        if self._open or self._drained:
            for called in calls:
                if called.line in self._open or called.line in self._drained:
                    ended = called.ok + called.failed + called.late + called.errors
                    self.calls[called.line].append((now_ms, ended))
        if not events:
            return
        self.events.extend(events)
        for event in events:
            if event.what in {What.TRIAL, What.CLOSE} and not event.client:
                self._open.discard(event.line)

    def chose(self, now_ms: int, client: str, was: Choice | None, now: Choice) -> None:
        """A client spreads its calls otherwise."""
        if was is None:
            return
        for line, weight in was.weights.items():
            if weight and line not in was.trials and not (now.weights.get(line) and line not in now.trials):
                self.left.append((now_ms, line, client))

    def second(
        self, now_ms: int, shares: Mapping[str, float], loads: Loads, sums: Sums, tails_ms: Mapping[str, float]
    ) -> None:
        """A full second: who gets what, and what that is of what they carry."""
        done = sums.wanted, sums.bad, sums.retries
        self.seconds.append(Second(now_ms, shares, dict(loads.used), *done, tails_ms))

    def finish(self, now_ms: int, sums: Sums) -> None:
        """The run is over."""
        self.end_ms, self.sums = now_ms, sums
