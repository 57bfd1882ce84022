"""What a journal's evidence would have come to under other settings. Reads only, also while a center writes.

The record is the one side: its decisions stand in it. The other side is the same ledger class, begun from the same checkpoint,
given the proposed lines and rules, and fed the same evidence. Evidence is what was seen then: calls went where the recorded
weights sent them, probes were sent as the recorded document said. Where that cannot answer, a warning says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from reachline.core.hindsight import Fault, Hindsight
from reachline.core.ledger import Ledger
from reachline.core.rules import Rules
from reachline.core.whatif import Course
from reachline.errors import JournalError
from reachline.model import Change, Gate, Line, LineId, Outcome, Scope, Seconds, Standing, VantageId
from reachline.store.doubts import Doubts
from reachline.store.records import Bodies, Gap, Members, Opened, Outcomes, Reconfigured, Record, Reported, Ticked
from reachline.store.recover import feed
from reachline.store.segment import Meta, Segment, listed

__all__ = ["Judged", "Proposed", "Side", "Span", "judged", "segments_since"]

_TRIED: Final = frozenset({Gate.HALF_OPEN, Gate.RAMP})
_LEAP: Final = 10
"""Ticks without any record that are a center that was down: nothing was judged then."""


class Proposed(NamedTuple):
    """One cluster's settings. `vantages` empty: who was a member then."""

    lines: tuple[Line, ...]
    rules: Rules
    vantages: frozenset[VantageId] = frozenset()


class Span(NamedTuple):
    """What was judged: Unix seconds at its ends, and how much it holds."""

    first: Seconds
    last: Seconds
    segments: int
    reports: int
    ticks: int
    gaps: int


class Side(NamedTuple):
    """One cluster: what was published, what would have been, what was at fault. Times in the journal's ms."""

    recorded: Course
    proposed: Course
    until_ms: int
    faults: tuple[Fault, ...]
    warnings: tuple[str, ...]


class Judged(NamedTuple):
    """The whole answer."""

    span: Span
    clusters: Mapping[Scope, Side]
    meta: Meta
    """The clock of the newest segment read."""
    unknown: tuple[Scope, ...]
    """Clusters of the settings of which the span holds nothing."""


def segments_since(directory: Path | str, since: Seconds | None) -> tuple[Path, ...]:
    """The segments from the one that holds Unix time `since` on (None: all there are); JournalError where there is none."""
    paths = listed(Path(directory))
    if not paths:
        raise JournalError(f"{directory}: no journal segments here")
    first = 0
    for index, path in enumerate(paths):
        with Segment(path) as segment:
            if since is not None and segment.meta.unix(segment.meta.opened_ms) <= since:
                first = index
            elif since is not None:
                break
    return paths[first:]


def judged(
    paths: Sequence[Path],
    proposed: Mapping[Scope, Proposed],
    *,
    since: Seconds | None = None,
    until: Seconds | None = None,
    tell: Callable[[float], None] = lambda _: None,
) -> Judged:
    """The segments judged again, counted from Unix time `since` to `until`; `tell` hears how much is done, 0…1.

    JournalError where they cannot be read, hold nothing of these clusters, or were decided by other semantics.
    """
    run = _Run(proposed, since, until)
    for number, path in enumerate(paths):
        if path.exists():  # retention may have dropped it meanwhile
            with Segment(path) as segment:
                run.segment(segment)
        tell((number + 1) / len(paths))
    return run.result()


class _Run:
    """All clusters under way. Written by `judged` alone."""

    def __init__(self, proposed: Mapping[Scope, Proposed], since: Seconds | None, until: Seconds | None) -> None:
        self._clusters = {scope: _Cluster(wanted) for scope, wanted in proposed.items()}
        self._since, self._until = since, until
        self._meta: Meta | None = None
        self._first: Seconds | None = None
        self._last: Seconds = 0.0
        self._last_ms = 0
        self._segments = self._reports = self._ticks = self._gaps = 0

    def segment(self, segment: Segment) -> None:
        """Feed one segment."""
        meta, bodies = segment.meta, Bodies()
        self._meta = meta
        self._segments += 1
        for stored in segment.records():
            unix = meta.unix(stored.at_ms)
            if self._until is not None and unix > self._until:
                return
            record = bodies.read(stored.kind, stored.scope, stored.at_ms, stored.body)
            is_counted = self._since is None or unix >= self._since
            if is_counted:
                self._count(record, unix)
            self._take(record, counts=is_counted)

    def result(self) -> Judged:
        """What it came to."""
        if self._meta is None or self._first is None:
            raise JournalError("the journal holds nothing of the span asked for")
        span = Span(self._first, self._last, self._segments, self._reports, self._ticks, self._gaps)
        sides = {scope: side for scope, one in self._clusters.items() if (side := one.side(self._last_ms)) is not None}
        unknown = tuple(scope for scope in self._clusters if scope not in sides)
        return Judged(span, sides, self._meta, unknown)

    def _count(self, record: Record, unix: Seconds) -> None:
        self._first = unix if self._first is None else self._first
        self._last, self._last_ms = unix, max(self._last_ms, record.at_ms)
        self._gaps += isinstance(record, Gap)
        self._ticks += isinstance(record, Ticked)
        self._reports += len(record.readings) if isinstance(record, Reported) else 0

    def _take(self, record: Record, *, counts: bool) -> None:
        if isinstance(record, Gap):
            for cluster in self._clusters.values():
                cluster.lost()
        elif (found := self._clusters.get(record.scope)) is not None:
            if counts:
                found.count_from(record.at_ms)
            found.take(record)


class _Cluster:
    """One cluster under way. Written by its run alone."""

    def __init__(self, wanted: Proposed) -> None:
        self._wanted = wanted
        self._would: Ledger | None = None
        self._standings: dict[LineId, Standing] = {}
        """As recorded."""
        self._recorded: Course | None = None
        self._proposed: Course | None = None
        self._hindsight = Hindsight({})
        self._doubts = Doubts(wanted.lines, wanted.rules)
        self._names: dict[LineId, LineId] = {}
        self._tick_ms = wanted.rules.tick_ms
        """Of the recorded rules; ticks of the same length are taken where the center took them."""
        self._due_ms = 0

    def count_from(self, at_ms: int) -> None:
        """Both courses begin here, unless they have."""
        if self._recorded is None and self._would is not None:
            self._recorded = Course(self._standings.values(), at_ms)
            self._proposed = Course(self._now(self._would), at_ms)

    def lost(self) -> None:
        """Records were lost: what would have been is known again from the next checkpoint on."""
        self._would = None

    def take(self, record: Record) -> None:
        """One record of this cluster."""
        match record:
            case Opened():
                self._open(record)
            case Reconfigured():
                self._told(record.lines, record.rules)
            case Ticked():
                self._ticked(record)
            case Reported():
                self._doubts.reported(record)
                self._hindsight.reported(record.vantage, record.readings, record.at_ms)
            case Outcomes():
                self._hindsight.called(record.rows, record.at_ms)
            case _:
                pass
        if self._would is not None and not isinstance(record, Opened | Reconfigured | Ticked | Gap):
            self._feed(self._would, record)

    def side(self, until_ms: int) -> Side | None:
        """Both courses; None where there was nothing to judge."""
        if self._recorded is None or self._proposed is None:
            return None
        begun = self._recorded.from_ms
        faults = tuple(
            fault._replace(line=self._names.get(fault.line, fault.line))
            for fault in self._hindsight.faults()
            if fault.until_ms > begun
        )
        warnings = self._doubts.told(self._wanted.vantages, self._names)
        return Side(self._recorded, self._proposed, max(until_ms, begun + 1), faults, warnings)

    def _open(self, opened: Opened) -> None:
        was = Ledger.thaw(opened.checkpoint)
        self._told(tuple(was.told.values()), was.rules)
        self._standings = {one.line: one for one in self._named(was)}
        if self._recorded is not None:
            self._recorded.begin(self._standings.values(), opened.at_ms)
        if self._would is None:
            wanted = self._wanted
            was.reconfigure(wanted.lines, wanted.rules, wanted.vantages or was.poll.vantages, now_ms=opened.at_ms)
            tick_ms = wanted.rules.tick_ms
            self._would, self._due_ms = was, (opened.at_ms // tick_ms + 1) * tick_ms
            if self._proposed is not None:
                self._proposed.begin(self._now(was), opened.at_ms)

    def _named(self, ledger: Ledger) -> list[Standing]:
        """The ledger's standings, by the names that the settings have for these lines."""
        return [replace(one, line=self._names.get(line, line)) for line, one in ledger.board.standings.items()]

    def _now(self, would: Ledger) -> list[Standing]:
        """Until its first tick it still stands as recorded: lines that the settings lack are gone all the same."""
        wanted = {line.id for line in self._wanted.lines}
        return [one for one in self._named(would) if one.line in wanted]

    def _told(self, lines: Sequence[Line], rules: Rules) -> None:
        """What the recorded document says from here on."""
        named = {line.identity: line.id for line in self._wanted.lines}
        self._names |= {line.id: named[line.identity] for line in lines if line.identity in named}
        self._hindsight.lines = {line.id: line for line in lines}
        self._tick_ms = rules.tick_ms
        self._doubts.judged_by(rules, self._hindsight.lines.keys())

    def _ticked(self, ticked: Ticked) -> None:
        changes = tuple(self._renamed(change) for change in ticked.changes)
        self._standings.update((change.line, change.after) for change in changes)
        if self._recorded is not None:
            self._recorded.changed(changes)
        if self._would is not None and self._tick_ms == self._wanted.rules.tick_ms:
            self._close(self._would, ticked.at_ms)

    def _renamed(self, change: Change) -> Change:
        name = self._names.get(change.line, change.line)
        if name == change.line:
            return change
        after = replace(change.after, line=name)
        return replace(change, line=name, before=replace(change.before, line=name), after=after)

    def _feed(self, would: Ledger, record: Record) -> None:
        """The same evidence to the other ledger."""
        if self._tick_ms != self._wanted.rules.tick_ms:
            self._catch_up(would, record.at_ms)
        names = self._names
        match record:
            case Reported():
                readings = [(names.get(line, line), reading) for line, reading in record.readings]
                would.report(record.vantage, readings, now_ms=record.at_ms, doubt=record.doubt)
            case Outcomes():
                rows = tuple(_tried(would, row._replace(line=names.get(row.line, row.line))) for row in record.rows)
                would.outcomes(record.client, rows, now_ms=record.at_ms)
            case Members() if self._wanted.vantages:
                pass
            case _:
                feed(would, record)

    def _catch_up(self, would: Ledger, at_ms: int) -> None:
        """Ticks of another length than the recorded ones, at their own multiples."""
        tick_ms = self._wanted.rules.tick_ms
        if at_ms - self._due_ms > _LEAP * max(tick_ms, self._tick_ms):
            self._due_ms = at_ms // tick_ms * tick_ms
        while self._due_ms <= at_ms:
            self._close(would, self._due_ms)
            self._due_ms += tick_ms

    def _close(self, would: Ledger, at_ms: int) -> None:
        changes = would.close(at_ms).changes
        if self._proposed is not None:
            self._proposed.changed(changes)


def _tried(would: Ledger, row: Outcome) -> Outcome:
    """Calls that were made while the other course tries the line count for its trial, whatever the recorded one was at."""
    known = would.rows.get(row.line)
    is_tried = known is not None and known.breaker.gate in _TRIED
    return row._replace(window=known.breaker.window if known is not None and is_tried else 0)
