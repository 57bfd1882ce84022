"""What Reachline's own decision log said in a run, for limits that other contenders have no words for."""

from __future__ import annotations

from typing import Final

from reachline.core.ledger import Ledger
from reachline.model import Change, Gate, Health, Snapshot
from reachline.simulate.reach.center import Ticking
from reachline.simulate.reach.document import name_of
from reachline.simulate.scenarios import Scenario

__all__ = ["Told"]


_LOOK: Final = 5
"""Ticks between two looks at causes that change no line: they last, or matter to nobody."""


class Told:
    """Written by the contender, read by the scoring."""

    def __init__(self, scenario: Scenario) -> None:
        self.changes: list[Change] = []
        self.drained: frozenset[str] = frozenset()
        self.pushes_taken = self.pushes_refused = 0
        self.half_open_most: dict[str, int] = {}
        """Lines of one provider on trial at once, at most."""
        self.panics: set[str] = set()
        self.zero_ms: int | None = None
        """When all weights were 0, if ever."""
        self.blind: dict[str, int] = {}
        """By line: when it was first flagged."""
        self.weights: list[tuple[int, dict[str, int]]] = []
        """Published ones, whenever they changed."""
        self.returned_ms: list[int] = []
        self.is_state_kept = True
        self.were_reset = False
        """Whether a center that came back gave all lines alike what they did not get before."""
        self.open_most = 0.0
        """Share of all base weight that was held open at once, at most; drained lines apart."""
        self.beats = [0, 0]
        """Heartbeats sent to a center that could be reached, and taken by it."""
        self._before: dict[str, int] = {}
        self._ticks = 0
        self.causes: set[str] = set()
        """Who was at fault instead of a line, in the ledger's words."""
        self._gates: dict[str, Gate] = {}
        self._providers = {name: line.provider or "" for name, line in scenario.lines.items()}
        self._bases = {name: line.base for name, line in scenario.lines.items()}
        self.trust: dict[str, list[tuple[int, int]]] = {}
        """By vantage: (at, 1/1000), whenever it moved."""

    def pushed(self, *, is_taken: bool) -> None:
        """A document was pushed."""
        self.pushes_taken += is_taken
        self.pushes_refused += not is_taken

    def went_down(self, ledger: Ledger) -> None:
        """The center is gone."""
        self._gates = {line: row.breaker.gate for line, row in ledger.rows.items()}
        self._before = {one.line: one.weight for one in ledger.snapshot().standings}

    def came_back(self, ledger: Ledger, now_ms: int) -> None:
        """It is there again."""
        self.returned_ms.append(now_ms)
        now = {line: row.breaker.gate for line, row in ledger.rows.items()}
        self.is_state_kept &= now == self._gates
        weights = {one.line: one.weight for one in ledger.snapshot().standings}
        self.were_reset |= len({*weights.values()}) == 1 and len({*self._before.values()}) > 1

    def ticked(self, ledger: Ledger, done: Ticking, now_ms: int) -> None:
        """One tick was closed."""
        self.changes.extend(done.changes)
        if panic := ledger.snapshot().panic:
            self.panics.add(panic)
        for vantage, trust in _trust_of(ledger).items():
            known = self.trust.setdefault(vantage, [])
            if not known or known[-1][1] != trust:
                known.append((now_ms, trust))
        self._ticks += 1
        for line in ledger.lines if self._ticks % _LOOK == 0 else ():
            self.causes.update(cause.kind for cause in ledger.view(line, now_ms).word.causes)
        if done.snapshot is not None:
            self._published(done.snapshot, now_ms)

    def _published(self, snapshot: Snapshot, now_ms: int) -> None:
        weights = {name_of(one.line): one.weight for one in snapshot.standings}
        was = self.weights[-1][1] if self.weights else {}
        if weights != was:
            self.weights.append((now_ms, weights))
        bases = {name: base for name, base in self._bases.items() if name not in self.drained}
        is_open = [name_of(one.line) for one in snapshot.standings if one.gate is Gate.OPEN and not one.weight]
        out = sum(bases.get(name, 0) for name in is_open)
        self.open_most = max(self.open_most, out / max(1, sum(bases.values())))
        if not any(weights.values()) and self.zero_ms is None:
            self.zero_ms = now_ms
        self._try(snapshot, now_ms)

    def _try(self, snapshot: Snapshot, now_ms: int) -> None:
        trying: dict[str, int] = {}
        for one in snapshot.standings:
            name = name_of(one.line)
            if one.gate is Gate.HALF_OPEN and self._providers[name]:
                trying[self._providers[name]] = trying.get(self._providers[name], 0) + 1
            if one.blind:
                self.blind.setdefault(name, now_ms)
        for provider, lines in trying.items():
            self.half_open_most[provider] = max(lines, self.half_open_most.get(provider, 0))

    def degraded(self) -> list[tuple[int, str]]:
        """(at, line) of every healthy line that was called degraded."""
        return [
            (change.at_ms, name_of(change.line))
            for change in self.changes
            if change.after.health is Health.DEGRADED and change.before.health in {Health.HEALTHY, Health.UNKNOWN}
        ]


def _trust_of(ledger: Ledger) -> dict[str, int]:
    """Trust of each vantage in 1/1000."""
    credit = ledger.poll.credit
    return {name: credit.of(name).micro // 1_000 for name in sorted(ledger.poll.vantages)}
