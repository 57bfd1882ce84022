"""All drills of a center, watched: told what its journal is told, record by record, so that a journal that is read tells the same.

Knows no ledger, no clock and no file; when a drill must not go on it says so, and who tells it the records ends it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from reachline.core.drilled import NEWEST_MS, SPAN_MS, Drilled, Span, against, during, has_tripped, summed
from reachline.core.orders import Action, Order, covers
from reachline.model import Change, Line, LineId, Outcome, Scope

__all__ = ["Abort", "Watch"]

_KEPT: Final = 200
"""Drills remembered of each cluster."""

Abort = tuple[int, str]
"""A drill's number, and why it must not go on."""


@dataclass(slots=True)
class _Cluster:
    """One scope's calls of the last minute, and its drills by number."""

    pending: dict[LineId, int] = field(default_factory=dict)
    """Calls by line since the last tick…"""
    bad: int = 0
    """…and how many of all did not end well."""
    since_ms: int | None = None
    spans: deque[Span] = field(default_factory=deque)
    capacities: Mapping[LineId, int] = field(default_factory=dict)
    drills: dict[int, Drilled] = field(default_factory=dict)

    def flush(self, at_ms: int) -> Span:
        """The calls since the last time, as a span."""
        ms = at_ms - (at_ms if self.since_ms is None else self.since_ms)
        span = Span(at_ms, ms, self.pending, sum(self.pending.values()), self.bad)
        self.pending, self.bad, self.since_ms = {}, 0, at_ms
        self.spans.append(span)
        while self.spans[0].at_ms <= at_ms - SPAN_MS:
            self.spans.popleft()
        return span

    def since(self, at_ms: int) -> list[Span]:
        """Those that began at or after this moment."""
        return [span for span in self.spans if span.at_ms - span.ms >= at_ms]


class Watch:
    """All drills. Told every record in order by its one writer; beside them only the calls of the last minute are kept, drill or none:
    it is what the next one is held against.
    """

    def __init__(self) -> None:
        self._clusters: dict[Scope, _Cluster] = {}

    def all(self) -> tuple[Drilled, ...]:
        """Those that are remembered, oldest first; one in several clusters is several."""
        found = [one for cluster in self._clusters.values() for one in cluster.drills.values()]
        return tuple(sorted(found, key=lambda one: (one.order.number, one.scope.cluster)))

    def outcomes(self, scope: Scope, rows: Iterable[Outcome]) -> None:
        """One client's calls."""
        cluster = self._of(scope)
        for row in rows:
            bad = row.failed + row.late + row.errors
            cluster.bad += bad
            cluster.pending[row.line] = cluster.pending.get(row.line, 0) + row.ok + bad

    def ordered(self, scope: Scope, order: Order, lines: Iterable[Line], at_ms: int) -> None:
        """An order; one that is no drill is none of ours. `lines` are all of the scope as they are now."""
        if order.action is not Action.DRILL:
            return
        cluster = self._of(scope)
        self._flushed(cluster, at_ms)
        known = tuple(lines)
        cluster.capacities = {line.id: line.capacity for line in known if line.capacity}
        drilled = frozenset(line.id for line in known if covers(order.target, line))
        before = summed(span.counted(drilled) for span in cluster.since(at_ms - SPAN_MS))
        cluster.drills[order.number] = Drilled(scope=scope, order=order, lines=drilled, before=before)
        for number in list(cluster.drills)[:-_KEPT]:
            del cluster.drills[number]

    def undone(self, scope: Scope, number: int, at_ms: int, *, by: str, why: str) -> None:
        """An order ended by hand, or by `WATCH`."""
        cluster = self._of(scope)
        if (one := cluster.drills.get(number)) is not None and one.ended_ms is None:
            self._flushed(cluster, at_ms)
            cluster.drills[number] = replace(cluster.drills[number], ended_ms=at_ms, ended_by=by, why=why)

    def ticked(self, scope: Scope, at_ms: int, changes: Sequence[Change]) -> tuple[Abort, ...]:
        """A tick and its decisions; the drills that must not go on."""
        cluster = self._of(scope)
        self._flushed(cluster, at_ms)
        found: list[Abort] = []
        for number, one in cluster.drills.items():
            if one.ended_ms is not None:
                continue
            until_ms = one.order.until_ms
            if until_ms is not None and until_ms <= at_ms:
                cluster.drills[number] = replace(one, ended_ms=until_ms)
                continue
            others = tuple(
                (each.line, each.rule) for each in changes if each.line not in one.lines and has_tripped(each)
            )
            cluster.drills[number] = one = replace(one, tripped=(*one.tripped, *others))
            if why := against(one):
                found.append((number, why))
        return tuple(found)

    def _of(self, scope: Scope) -> _Cluster:
        return self._clusters.setdefault(scope, _Cluster())

    def _flushed(self, cluster: _Cluster, at_ms: int) -> None:
        """The calls since the last time, counted for the drills that they belong to."""
        span = cluster.flush(at_ms)
        for number, one in cluster.drills.items():
            if one.ended_ms is None:
                newest = cluster.since(max(one.order.since_ms, at_ms - NEWEST_MS))
                cluster.drills[number] = during(one, span, newest, cluster.capacities)
            elif at_ms <= one.ended_ms + SPAN_MS:
                cluster.drills[number] = replace(one, after=one.after.plus(span.counted(one.lines)))
