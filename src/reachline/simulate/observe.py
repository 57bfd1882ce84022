"""What is seen of a run, for the scoring: shares and loads each second, every decision, sums of calls. Judges nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from reachline.simulate.contender import Called, Event
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


class Observer:
    """Written by the world of one run."""

    def __init__(self, scenario: Scenario, timeline: Timeline) -> None:
        self.scenario, self.timeline = scenario, timeline
        self.seconds: list[Second] = []
        self.events: list[Event] = []
        self.sums = Sums()
        self.end_ms = 0
        self.calls: dict[str, list[tuple[int, int]]] = {line: [] for line in scenario.lines}
        """By line: (at, calls that ended), where any did."""

    def step(self, now_ms: int, events: Sequence[Event], calls: Sequence[Called]) -> None:
        """One step's decisions and ended calls."""
        self.events.extend(events)
        for called in calls:
            ended = called.ok + called.failed + called.late + called.errors
            self.calls[called.line].append((now_ms, ended))

    def second(self, now_ms: int, shares: Mapping[str, float], loads: Loads) -> None:
        """A full second: who gets what, and what that is of what they carry."""
        self.seconds.append(Second(now_ms, shares, dict(loads.used)))

    def finish(self, now_ms: int, sums: Sums) -> None:
        """The run is over."""
        self.end_ms, self.sums = now_ms, sums
