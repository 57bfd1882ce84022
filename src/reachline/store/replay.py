"""Every decision of a journal computed again from its evidence alone, and held against what was recorded.

Two things are compared, in order: the seal of each record (was the evidence altered?) and, at each tick, changes and digest
(do the same rules decide the same?). The first difference ends it, named so that a person can look at it. Reads only, also
while a center writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from reachline.core.ledger import Closed, Ledger
from reachline.core.regions import steers
from reachline.errors import JournalError
from reachline.model import Change, LineId, Scope, Seconds
from reachline.store.collecting import uncollected
from reachline.store.records import Bodies, Gap, Opened, Planned, Record, Reported, Ticked, tick_body
from reachline.store.recover import feed
from reachline.store.segment import Segment, Stored, listed, seal

__all__ = ["Difference", "Replayed", "replay", "segments_of"]

_SHOWN: Final = 200
"""Characters of a value in a difference: enough to see what differs, one line of a terminal or two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where record and recomputation part for the first time."""

    segment: str
    seq: int
    at_ms: int
    unix: Seconds
    scope: Scope | None
    line: LineId | None
    field: str
    """`evidence` (altered), `removed`, `digest`, `checkpoint`, or a field of the change: `rule`, `after.weight`, `votes`…"""
    recorded: str
    recomputed: str

    def __str__(self) -> str:
        if self.field == "evidence":
            return f"{self.segment}: evidence of seq {self.seq} was altered: its seal does not match"
        if self.field == "removed":
            return f"{self.segment}: evidence before seq {self.seq} was removed: the seal it follows is not there"
        where = self.line or (self.scope.cluster if self.scope else "journal")
        return (
            f"{self.segment}: seq {self.seq} ({where}): {self.field} is recorded as {self.recorded}, "
            f"recomputed as {self.recomputed}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What was replayed, up to the first difference (None: there is none)."""

    segments: int = 0
    records: int = 0
    readings: int = 0
    ticks: int = 0
    decisions: int = 0
    gaps: int = 0
    """Times a disk refused: not replayable until the next segment, and not compared."""
    first_unix: Seconds | None = None
    last_unix: Seconds | None = None
    difference: Difference | None = None


def segments_of(path: Path | str) -> tuple[Path, ...]:
    """The segments of a journal directory, or the one named; JournalError where there is none."""
    place = Path(path)
    if place.is_dir():
        if found := listed(place):
            return found
        raise JournalError(f"{place}: no journal segments here")
    if not place.exists():
        raise JournalError(f"{place}: no such journal")
    return (place,)


def replay(path: Path | str) -> Replayed:
    """Recompute everything in a journal directory or one segment. JournalError where it cannot be read or compared."""
    run = _Run()
    for place in segments_of(path):
        if not place.exists():  # retention dropped it since it was listed: what follows begins anew
            run.skip()
            continue
        with Segment(place) as segment, uncollected():
            difference = run.segment(segment)
        if difference is not None:
            return run.result(difference)
    return run.result(None)


class _Run:
    """The running ledgers and what was counted. Written by `replay` only."""

    def __init__(self) -> None:
        self._ledgers: dict[Scope, Ledger] = {}
        self._chain = b""
        self._number = 0
        self._first: Seconds | None = None
        self._last: Seconds | None = None
        self._segments = self._records = self._readings = self._ticks = self._decisions = self._gaps = 0

    def skip(self) -> None:
        """The next segment need not follow the last one."""
        self._number = 0

    def segment(self, segment: Segment) -> Difference | None:
        """Replay one segment behind the ones before it."""
        self._segments += 1
        bodies = Bodies()
        if (found := self._joins(segment)) is not None:
            return found
        self._chain, self._number = segment.meta.chain, segment.meta.number
        for stored in segment.records():
            self._chain = seal(self._chain, (stored.seq, stored.kind, stored.at_ms), stored.scope, stored.body)
            if self._chain != stored.seal:
                return _difference(
                    segment, stored, "evidence", recorded=stored.seal.hex(), recomputed=self._chain.hex()
                )
            record = bodies.read(stored.kind, stored.scope, stored.at_ms, stored.body)
            self._count(record, segment.meta.unix(stored.at_ms))
            if (found := self._check(segment, stored, record)) is not None:
                return found
        return None

    def _joins(self, segment: Segment) -> Difference | None:
        """The next segment must follow the very record that ended this one, whatever their numbers."""
        meta = segment.meta
        if not self._number or meta.chain == self._chain:
            return None
        first = Stored(meta.first, 0, None, meta.opened_ms, b"", b"")
        return _difference(segment, first, "removed", recorded=meta.chain.hex(), recomputed=self._chain.hex())

    def result(self, difference: Difference | None) -> Replayed:
        """What was counted so far."""
        return Replayed(
            segments=self._segments,
            records=self._records,
            readings=self._readings,
            ticks=self._ticks,
            decisions=self._decisions,
            gaps=self._gaps,
            first_unix=self._first,
            last_unix=self._last,
            difference=difference,
        )

    def _count(self, record: Record, unix: Seconds) -> None:
        self._records += 1
        self._first = unix if self._first is None else self._first
        self._last = unix
        match record:
            case Reported():
                self._readings += len(record.readings)
            case Ticked():
                self._ticks += 1
                self._decisions += len(record.changes)
            case Gap():
                self._gaps += 1
            case _:
                pass

    def _check(self, segment: Segment, stored: Stored, record: Record) -> Difference | None:
        match record:
            case Opened():
                return self._open(segment, stored, record)
            case Gap():
                self._ledgers.clear()
                return None
            case _:
                ledger = self._ledgers.get(record.scope)
                if ledger is None:
                    raise JournalError(f"{segment.path}: seq {stored.seq} belongs to a ledger that was never opened")
                planned = self._plan(segment, stored, record) if isinstance(record, Planned) else None
                closed = feed(ledger, record)
        if isinstance(record, Ticked) and closed is not None:
            return _compare(segment, stored, record, closed)
        return planned

    def _plan(self, segment: Segment, stored: Stored, record: Planned) -> Difference | None:
        """The plan made again from the ledgers it was made of."""
        among = [ledger for scope, ledger in self._ledgers.items() if scope.cluster in record.clusters]
        found = steers(among).get(record.scope.cluster)
        if found == record.steer:
            return None
        return _difference(segment, stored, "plan", recorded=_text(record.steer), recomputed=_text(found))

    def _open(self, segment: Segment, stored: Stored, opened: Opened) -> Difference | None:
        """A checkpoint that goes on from the segment before must be what replay arrived at."""
        running = self._ledgers.get(opened.scope)
        self._ledgers[opened.scope] = Ledger.thaw(opened.checkpoint)
        if not opened.continues or running is None:
            return None
        arrived = running.freeze()
        if arrived == opened.checkpoint:
            return None
        recorded, recomputed = _parting(opened.checkpoint.decode(), arrived.decode())
        return _difference(segment, stored, "checkpoint", recorded=recorded, recomputed=recomputed)


def _compare(segment: Segment, stored: Stored, ticked: Ticked, closed: Closed) -> Difference | None:
    if tick_body(closed.digest, closed.changes) == stored.body:
        return None
    recorded = {change.line: change for change in ticked.changes}
    recomputed = {change.line: change for change in closed.changes}
    for line in sorted(recorded.keys() | recomputed.keys()):
        for name, was, found in _parts(recorded.get(line), recomputed.get(line)):
            return _difference(segment, stored, name, line=line, recorded=was, recomputed=found)
    if ticked.digest == closed.digest:
        return None  # the same decisions in another encoding
    return _difference(segment, stored, "digest", recorded=ticked.digest.hex(), recomputed=closed.digest.hex())


def _parts(recorded: Change | None, recomputed: Change | None) -> Iterator[tuple[str, str, str]]:
    """Fields in which two changes of one line differ, those of their standings by name."""
    if recorded is None or recomputed is None:
        yield "change", _text(recorded), _text(recomputed)
        return
    for field in fields(Change):
        was, found = getattr(recorded, field.name), getattr(recomputed, field.name)
        if was == found:
            continue
        if field.name in ("before", "after"):
            for inner in fields(was):
                if (left := getattr(was, inner.name)) != (right := getattr(found, inner.name)):
                    yield f"{field.name}.{inner.name}", _text(left), _text(right)
        else:
            yield field.name, _text(was), _text(found)


def _text(value: object) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _parting(left: str, right: str) -> tuple[str, str]:
    """Both texts from shortly before the place where they part."""
    at = next((at for at, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1]), 0)
    begin = max(0, at - 40)  # a row's key and field before the value that differs
    return left[begin : begin + _SHOWN], right[begin : begin + _SHOWN]


def _difference(
    segment: Segment, stored: Stored, field: str, *, recorded: str, recomputed: str, line: LineId | None = None
) -> Difference:
    return Difference(
        segment=segment.path.name,
        seq=stored.seq,
        at_ms=stored.at_ms,
        unix=segment.meta.unix(stored.at_ms),
        scope=stored.scope,
        line=line,
        field=field,
        recorded=recorded,
        recomputed=recomputed,
    )
