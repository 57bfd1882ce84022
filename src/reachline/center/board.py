"""What readers of a center see: the published clusters, recent decisions, people's figures. Values and rendering, no I/O.

The owner's task is the one writer. Everything heavy is rendered once, at publication or on first demand, for all readers.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

import orjson

from reachline.center.incidents import Log
from reachline.center.published import Published
from reachline.center.readings import Readings, detail_row
from reachline.center.roster import Roster
from reachline.core.rules import Rules
from reachline.core.steer import Steer
from reachline.model import Change, Line, LineId, Scope, Seconds, Snapshot, Version
from reachline.wire import listed, planned, view

__all__ = ["TTL", "Board", "Cluster", "ConfigStatus", "Numbered", "dumps"]

TTL: Final[Seconds] = 300.0
"""Clients mark a snapshot stale after this long without word from a center, and go on with it (decisions 5.9)."""
_CHANGES: Final = 2_000
"""Decisions kept in memory: 500 lines that all fall and return in the demo's preset make about that many."""
_NUMBERS: Final = 2**20
"""Decision numbers of one epoch: epochs are Unix seconds (below 2**33, see `owner`), so numbers rise over restarts and stay
below 2**53."""


def dumps(document: object) -> bytes:
    """The document as JSON bytes."""
    return orjson.dumps(document)


class Numbered(NamedTuple):
    """One decision and its number."""

    number: int
    change: Change


class ConfigStatus(NamedTuple):
    """What became of the document and of its last change on disk."""

    name: str
    digest: str
    loaded: Seconds
    """Unix time of the document in force."""
    is_current: bool = True
    """False: the file on disk is not valid, the old document stays in force."""
    problems: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()
    """Keys that changed on disk and only take effect at the next start."""
    attempts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """One scope as it stands, replaced whole. `faults` are those behind the snapshot, for the clients' own formulas."""

    scope: Scope
    lines: Mapping[LineId, Line]
    rules: Rules
    snapshot: Snapshot
    faults: Mapping[LineId, int] = field(default_factory=dict)
    steer: Steer | None = None
    """Its part in the plan across regions, or None."""

    @property
    def version(self) -> Version:
        return self.snapshot.version


class Board:
    """All that is shown. `clock` gives ms since the journal's epoch, `origin` is that epoch's Unix time."""

    def __init__(self, *, clock: Callable[[], int], origin: Seconds, roster: Roster, config: ConfigStatus) -> None:
        self.clock = clock
        self.origin = origin
        self.roster = roster
        self.config = config
        self.readings = Readings()
        self.clusters: dict[str, Published[Cluster]] = {}
        self.counts: Counter[tuple[str, str]] = Counter()
        """Events by (metric, label value), for `/metrics`."""
        self.version = Version(0, 0)
        """Of the board as a whole: it rises with every publication of any cluster."""
        self.judged_ms = clock()
        """When the newest tick of any cluster was published."""
        self.notes: dict[str, tuple[str, ...]] = {}
        """By cluster: what is wrong there and no line's fault, in words."""
        self.journal_fault = ""
        self.closing = asyncio.Event()
        """Set once the center stops."""
        self.log = Log()
        self._changes: deque[Numbered] = deque(maxlen=_CHANGES)
        self._bodies: dict[str, tuple[Cluster, bytes]] = {}
        self._open: dict[str, tuple[int, frozenset[LineId]]] = {}

    @property
    def is_closing(self) -> bool:
        """Whether the center stops: nobody waits for news any more."""
        return self.closing.is_set()

    def publish(self, cluster: Cluster, changes: Sequence[Change] = ()) -> tuple[Numbered, ...]:
        """The cluster's new value for every reader; its decisions, numbered."""
        name = cluster.scope.cluster
        epoch = max(self.version.epoch, cluster.version.epoch)
        self.version = Version(epoch, self.version.counter + 1)
        last = self._changes[-1].number if self._changes else 0
        first = max(last + 1, epoch * _NUMBERS)
        self.log.take(changes)
        numbered = tuple(Numbered(first + at, change) for at, change in enumerate(changes))
        self._changes.extend(numbered)
        if cell := self.clusters.get(name):
            cell.replace(cluster)
        else:
            self.clusters[name] = Published(cluster)
        return numbered

    def remember(self, rows: Iterable[tuple[int, Change]]) -> None:
        """Decisions of earlier epochs, oldest first, each with its epoch: at a start, before anything is published."""
        last = 0
        for epoch, change in rows:
            last = max(last + 1, epoch * _NUMBERS)
            self._changes.append(Numbered(last, change))

    def drop(self, name: str) -> None:
        """A cluster left the document; who waits for it learns so."""
        if cell := self.clusters.pop(name, None):
            cell.replace(cell.value)
        self._bodies.pop(name, None)
        self.notes.pop(name, None)

    def close(self) -> None:
        """Every reader who waits wakes up and ends."""
        self.closing.set()
        for cell in self.clusters.values():
            cell.replace(cell.value)

    def find(self, line: str) -> tuple[Cluster, Line] | None:
        """A line by its id, and its cluster."""
        for cell in self.clusters.values():
            if found := cell.value.lines.get(LineId(line)):
                return cell.value, found
        return None

    def rows(self, cluster: Cluster, only: frozenset[LineId] | None = None) -> list[view.LineRow]:
        """LINE rows in the published order, all or only some."""
        now_ms = self.clock()
        fresh_ms = cluster.rules.quorum.fresh_ms
        return [
            view.line(
                cluster.lines[standing.line],
                standing,
                self.readings.figures(standing.line, now_ms, fresh_ms=fresh_ms),
                origin=self.origin,
            )
            for standing in cluster.snapshot.standings
            if only is None or standing.line in only
        ]

    def all_rows(self) -> list[view.LineRow]:
        """LINE rows of every cluster, clusters by name."""
        return [row for name in sorted(self.clusters) for row in self.rows(self.clusters[name].value)]

    def age(self) -> Seconds:
        """Seconds since the newest judgement."""
        return round(max(0, self.clock() - self.judged_ms) / 1000, 3)

    def body(self, name: str) -> bytes:
        """The plain JSON door's document of one cluster, rendered once a version so that its strong ETag is true."""
        cluster = self.clusters[name].value
        if (kept := self._bodies.get(name)) and kept[0] is cluster:
            return kept[1]
        body = dumps(self._cluster_document(cluster))
        self._bodies[name] = (cluster, body)
        return body

    def _cluster_document(self, cluster: Cluster) -> listed.ClusterDocument:
        snapshot, rows = cluster.snapshot, self.rows(cluster)
        document: listed.ClusterDocument = {
            "cluster": cluster.scope.cluster,
            "version": str(snapshot.version),
            "epoch": snapshot.version.epoch,
            "issued": round(self.origin + snapshot.issued_ms / 1000, 3),
            "ttl": TTL,
            "policy": list(cluster.rules.policy),
            "panic": snapshot.panic,
            "lines": rows,
            "local_rules": listed.local_rules(cluster.rules, rows, cluster.faults),
        }
        if cluster.steer is not None and cluster.rules.acts("regions"):
            document["plan"] = planned.part(cluster.steer)
        return document

    def changes(self, *, since: float = 0, line: str = "", limit: int = 100) -> list[view.ChangeRow]:
        """The newest `limit` decisions after `since` (a decision's id, or Unix seconds), oldest first."""
        matching = (row for row in reversed(self._changes) if not line or row.change.line == line)
        newest = list(islice((row for row in matching if self._is_after(row, since)), limit))
        return [view.change(row.change, number=row.number, origin=self.origin) for row in reversed(newest)]

    def history(self, line: LineId) -> tuple[Change, ...]:
        """The line's decisions that are kept, oldest first."""
        return tuple(row.change for row in self._changes if row.change.line == line)

    def _unix(self, at_ms: int) -> Seconds:
        return round(self.origin + at_ms / 1000, 3)

    def _is_after(self, row: Numbered, since: float) -> bool:
        # Epochs are Unix seconds, so a number is above 2**50 and no Unix time is.
        return row.number > since if since >= _NUMBERS * 2**20 else self._unix(row.change.at_ms) > since

    def page(self, cluster: Cluster, line: Line) -> dict[str, object]:
        """What a line's page shows beside votes: its row, readings, history and decisions."""
        now_ms = self.clock()
        (row,) = self.rows(cluster, frozenset((line.id,)))
        readings = [
            {**view.reading(vantage, seen.reading, age=(now_ms - seen.at_ms) / 1000), **detail_row(seen)}
            for (vantage, _), seen in sorted(self.readings.seen(line.id).items())
        ]
        return {
            **row,
            "readings": readings,
            "history": [self._point(point) for point in self.readings.history(line.id)],
            "changes": self.changes(line=line.id),
            "clients_open": self.clients_open(line.id),
        }

    def _point(
        self, point: tuple[int, Seconds | None, Seconds | None, float | None, float | None, int]
    ) -> dict[str, float | None]:
        at_ms, p50, p95, loss, timeout, weight = point
        return {"at": self._unix(at_ms), "p50": p50, "p95": p95, "loss": loss, "timeout": timeout, "weight": weight}

    def spark(self, line: LineId, points: int) -> list[tuple[float | None, float | None, float | None]]:
        """The last points of a line's history as [p95, loss, timeout]."""
        return [(point.p95, point.loss, point.timeout) for point in self.readings.history(line)[-points:]]

    def client(self, name: str, open_lines: Iterable[LineId]) -> None:
        """A client said which of its own breakers are open now."""
        self._open.pop(name, None)
        if rows := frozenset(open_lines):
            self._open[name] = (self.clock(), rows)
        while len(self._open) > _MOST_CLIENTS:
            del self._open[next(iter(self._open))]

    def clients_open(self, line: LineId) -> int:
        """Clients whose own breaker for the line is open, as they said within the last minute."""
        oldest = self.clock() - _OPEN_MS
        return sum(1 for at_ms, lines in self._open.values() if at_ms >= oldest and line in lines)

    def cells(self) -> Iterator[Published[Cluster]]:
        """Every cluster's cell, by name."""
        for name in sorted(self.clusters):
            yield self.clusters[name]


_MOST_CLIENTS: Final = 10_000
"""Clients remembered with open breakers; the oldest word is forgotten first."""
_OPEN_MS: Final = 60_000
"""A local breaker opens for 60 s at most and is said again each second while open."""
