"""Two contenders that need no evidence: `none` never moves, `oracle` knows the truth the moment it is so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from reachline.core.rules import FaultRules
from reachline.core.tiers import Share, full_milli, spread
from reachline.model import Gate, Health, Role
from reachline.simulate.contender import Choice, Event, Run, Seen, What, Wish
from reachline.simulate.timeline import Timeline, ms

__all__ = ["Nothing", "Oracle", "ideal"]

_CLASSES: Final = ("healthy", "degraded", "down")
_FULL: Final = 0.85
"""A line is filled up to here before a worse one gets anything: above, everybody on it waits."""

_RATE_MS: Final = 60_000
"""How often it looks at how much is called."""


def base_shares(run: Run) -> dict[str, float]:
    """What each line gets in health, by the policy."""
    lines = [
        Share(line.base, frozenset([Role(line.role)] if line.role else []), Health.HEALTHY, Gate.CLOSED, 0, 1_000)
        for line in run.lines
    ]
    policy = (run.policy,) if run.policy != "ab_groups" else ("ab_groups", "weighted")
    raw = spread(lines, policy, full_milli(lines, policy), FaultRules())
    return {line.name: weight / sum(raw) for line, weight in zip(run.lines, raw, strict=True)}


def ideal(run: Run, truth: Mapping[str, str], rps: float, drained: frozenset[str] = frozenset()) -> dict[str, float]:
    """The shares that hurt fewest calls: the policy's where all lines are alike, else the best lines first, none too full."""
    usable = [line for line in run.lines if line.name not in drained]
    if len({truth[line.name] for line in usable}) <= 1 and not drained:
        return base_shares(run)
    found: dict[str, float] = {}
    left = 1.0
    for word in _CLASSES:
        group = [line for line in usable if truth[line.name] == word]
        room = {line.name: _FULL * line.capacity_rps / rps if line.capacity_rps and rps else 1.0 for line in group}
        while left > 1e-9 and room:
            bases = sum(line.base for line in group if line.name in room)
            wanted = {line.name: left * line.base / bases for line in group if line.name in room}
            given = {name: min(wanted[name], room[name]) for name in room}
            for name, share in given.items():
                found[name] = found.get(name, 0.0) + share
            left -= sum(given.values())
            room = {name: room[name] - given[name] for name in room if room[name] - given[name] > 1e-9}
    best = next((word for word in _CLASSES if any(truth[line.name] == word for line in usable)), "")
    last = [line for line in usable if truth[line.name] == best]
    for line in last if left > 1e-9 else ():
        found[line.name] = found.get(line.name, 0.0) + left / len(last)
    return found


class Nothing:
    """Everybody gets the policy's shares for ever."""

    def __init__(self, run: Run) -> None:
        self._choice = Choice(1, base_shares(run))

    def wishes(self) -> Sequence[Wish]:
        """It asks for nothing…"""
        return ()

    def step(self, seen: Seen) -> Sequence[Event]:  # noqa: ARG002
        """…learns nothing…"""
        return ()

    def choice(self, client: str) -> Choice:  # noqa: ARG002
        """…and changes nothing."""
        return self._choice


class Oracle:
    """Knows what each line is, without delay."""

    def __init__(self, run: Run, timeline: Timeline) -> None:
        self._run, self._timeline = run, timeline
        self._truth: dict[str, str] = {}
        self._known: tuple[object, ...] = ()
        self._choice = Choice(0, {})
        edges = (ms(at) for truth in timeline.scenario.truth for at in (truth.from_, truth.to))
        self._moments = iter(sorted({*edges, *timeline.boundaries, *range(0, timeline.end_ms, _RATE_MS)}))
        """When something may be otherwise than before."""
        self._next_ms: int | None = 0
        self._look(0)

    def wishes(self) -> Sequence[Wish]:
        """It need not look."""
        return ()

    def step(self, seen: Seen) -> Sequence[Event]:
        """What is so now."""
        if self._next_ms is None or seen.now_ms < self._next_ms:
            return ()
        while self._next_ms is not None and self._next_ms <= seen.now_ms:
            self._next_ms = next(self._moments, None)
        was = self._truth
        self._look(seen.now_ms)
        return [
            Event(seen.now_ms, line, What.CLOSE if word == "healthy" else What.OPEN if word == "down" else What.CUT)
            for line, word in self._truth.items()
            if word != was[line]
        ]

    def choice(self, client: str) -> Choice:  # noqa: ARG002
        """The same for all."""
        return self._choice

    def _look(self, now_ms: int) -> None:
        self._truth = {line.name: self._timeline.truth(line.name, now_ms) for line in self._run.lines}
        rps, drained = self._timeline.rps(now_ms // _RATE_MS * _RATE_MS), self._timeline.drained(now_ms)
        if (known := (tuple(self._truth.values()), rps, drained)) != self._known:
            self._known = known
            self._choice = Choice(self._choice.number + 1, ideal(self._run, self._truth, rps, drained))
