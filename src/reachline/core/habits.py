"""The baselines of a scope's lines (`core.baseline`), for rules that have any: heard with reports, learnt from at each tick.

One a ledger, written by it only. Without baseline rules it holds nothing and costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from reachline.core.baseline import HOUR_MS, Heard, Known, heard, learnt, moved, pooled, usual_us
from reachline.core.row import Row
from reachline.core.rules import Limit, Rules
from reachline.model import Gate, Health, Kind, Line, LineId, Reading, VantageId, Zone

__all__ = ["Habits"]

_NONE: Final[Mapping[Kind, tuple[Limit, ...]]] = MappingProxyType({})


class Habits:
    """By line and kind: what each vantage said last, and what is known. Values are replaced, never changed."""

    def __init__(self) -> None:
        self.said: dict[LineId, dict[Kind, dict[VantageId, Heard]]] = {}
        self.known: dict[LineId, dict[Kind, Known]] = {}
        self._limits: dict[LineId, tuple[int, Mapping[Kind, tuple[Limit, ...]]]] = {}
        """Those in force, and of which hour they are: nothing but time and learning moves them."""
        self._usual: dict[LineId, tuple[int, dict[Kind, int]]] = {}
        """As these."""
        self.turns = 0
        """How often some line's hours became others: who passes on what is usual looks again."""

    def hear(self, vantage: VantageId, line: LineId, kinds: Iterable[Reading], *, now_ms: int, rules: Rules) -> None:
        """One vantage's readings of a line."""
        if not rules.baseline.degraded_milli:
            return
        told = dict(self.said.get(line, {}))
        for reading in kinds:
            if (one := heard(reading, now_ms)) is not None:
                told[reading.kind] = {**told.get(reading.kind, {}), vantage: one}
        self.said[line] = told

    def learn(
        self,
        fresh: Iterable[LineId],
        lines: Mapping[LineId, Line],
        rows: Mapping[LineId, Row],
        *,
        vantages: frozenset[VantageId],
        now_ms: int,
        rules: Rules,
    ) -> None:
        """A tick ended with these rows; `fresh` are the lines of which something was heard."""
        if not rules.baseline.degraded_milli:
            return
        for line in fresh:
            counting = vantages & lines[line].vantages if lines[line].vantages else vantages
            before = self.known.get(line, {})
            after = dict(before)
            for kind, told in self.said.get(line, {}).items():
                counted = {name: one for name, one in told.items() if name in counting}
                if (found := pooled(counted, now_ms, rules.quorum.fresh_ms)) is not None:
                    after[kind] = learnt(after.get(kind, Known()), found, is_well=_is_well(rows[line]), now_ms=now_ms)
            if after != before:
                self.known[line] = after
                # Only an hour's end moves them; they are made from what is known alone, so that a replay makes the same.
                self._limits.pop(line, None)
                self._usual.pop(line, None)
                self.turns += _hours(before) != _hours(after)

    def limits(self, line: LineId, *, now_ms: int, rules: Rules) -> Mapping[Kind, tuple[Limit, ...]]:
        """The limits of each kind that are not the rules' own."""
        if line not in self.known or not rules.baseline.degraded_milli:
            return _NONE
        hour = now_ms // HOUR_MS
        kept = self._limits.get(line)
        if kept is None or kept[0] != hour:
            usual = self.usual(line, now_ms)
            kept = self._limits[line] = (
                hour,
                {kind: moved(rules.limits, us, rules.baseline) for kind, us in usual.items()},
            )
        return kept[1]

    def usual(self, line: LineId, now_ms: int) -> dict[Kind, int]:
        """The usual round trip of each kind of which it is known, microseconds. Not to be written."""
        if line not in self.known:
            return {}
        hour, kept = now_ms // HOUR_MS, self._usual.get(line)
        if kept is None or kept[0] != hour:
            found = {kind: usual_us(known, now_ms) for kind, known in self.known.get(line, {}).items()}
            kept = self._usual[line] = (hour, {kind: us for kind, us in found.items() if us is not None})
        return kept[1]

    def moved(self, names: Mapping[LineId, LineId]) -> Habits:
        """Those of lines under other names: each as it was called before (empty: it is new)."""
        found = Habits()
        found.said = {line: self.said[old] for line, old in names.items() if old in self.said}
        found.known = {line: self.known[old] for line, old in names.items() if old in self.known}
        return found

    def keep(self, vantages: frozenset[VantageId]) -> None:
        """Forget what all others said; what was learnt of it stays known."""
        self.said = {
            line: {kind: {name: one for name, one in told.items() if name in vantages} for kind, told in kinds.items()}
            for line, kinds in self.said.items()
        }

    def restore(self, said: Mapping[str, Any], known: Mapping[str, Any]) -> None:
        """Take what a checkpoint has of them."""
        self.said = {
            LineId(line): {
                Kind(kind): {VantageId(name): Heard(*one) for name, one in told.items()} for kind, told in kinds.items()
            }
            for line, kinds in said.items()
        }
        self.known = {
            LineId(line): {Kind(kind): _known(record) for kind, record in kinds.items()}
            for line, kinds in known.items()
        }


def _hours(kinds: Mapping[Kind, Known]) -> list[tuple[tuple[int, int], ...]]:
    return [known.hours for known in kinds.values()]


def _known(record: list[Any]) -> Known:
    hours, minute, figures, well = record
    return Known(tuple((hour, us) for hour, us in hours), minute, tuple(figures), well)


def _is_well(row: Row) -> bool:
    is_healthy = row.judgement.health is Health.HEALTHY and row.breaker.gate is Gate.CLOSED
    return is_healthy and row.zone is Zone.H
