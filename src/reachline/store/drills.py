"""What became of the drills that a journal remembers, told by the journal alone: the same that the center said. Reads only."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from reachline.core.drilled import SPAN_MS
from reachline.core.ledger import Ledger
from reachline.core.orders import Action
from reachline.core.watching import Abort, Watch
from reachline.errors import JournalError
from reachline.model import Line, Scope
from reachline.store.orders import Given
from reachline.store.records import Bodies, Opened, Ordered, Outcomes, Reconfigured, Record, RecordKind, Ticked, Undone
from reachline.store.segment import Segment, listed

__all__ = ["tell", "watched"]

log = logging.getLogger(__name__)

_SEGMENTS: Final = 48
"""Two days of hourly segments, as far back as orders are remembered."""
_AROUND_MS: Final = 2 * SPAN_MS
"""What a drill is held against begins a minute before it; the calls before the first tick that is read are of no known length."""


def watched(directory: Path | str, past: Iterable[Given]) -> Watch:
    """The drills among these orders as they went, and the newest minute, from which a center goes on watching."""
    watch = Watch()
    spans = [
        (one.order.since_ms - _AROUND_MS, (one.ended_ms(1 << 62) or one.order.since_ms) + _AROUND_MS)
        for one in past
        if one.order.action is Action.DRILL
    ]
    reached: list[tuple[Path, int, int]] = []
    for path in listed(Path(directory))[-_SEGMENTS:]:
        with _tolerant(path), Segment(path) as segment:
            if (last := segment.last()) is not None:
                reached.append((path, segment.meta.opened_ms, last.at_ms))
    newest_ms = max((last_ms for _, _, last_ms in reached), default=0)
    spans.append((newest_ms - _AROUND_MS, newest_ms))
    for path, opened_ms, last_ms in reached:
        if any(begin <= last_ms and opened_ms <= end for begin, end in spans):
            with _tolerant(path), Segment(path) as segment:
                _read(segment, watch, spans)
    return watch


@contextmanager
def _tolerant(path: Path) -> Iterator[None]:
    """A damaged segment is left out, from the damage on, and logged."""
    try:
        yield
    except JournalError as error:
        log.warning("segment_skipped", extra={"segment": path.name, "reason": str(error)})


def tell(watch: Watch, record: Record, lines: Iterable[Line] = ()) -> tuple[Abort, ...]:
    """One record as the journal was told it; `lines` are all of its scope. The drills that must not go on."""
    match record:
        case Outcomes():
            watch.outcomes(record.scope, record.rows)
        case Ordered():
            watch.ordered(record.scope, record.order, lines, record.at_ms)
        case Undone():
            watch.undone(record.scope, record.number, record.at_ms, by=record.by, why=record.why)
        case Ticked():
            return watch.ticked(record.scope, record.at_ms, record.changes)
        case _:
            pass
    return ()


def _read(segment: Segment, watch: Watch, spans: Sequence[tuple[int, int]]) -> None:
    bodies = Bodies()
    opened: dict[Scope, bytes] = {}
    lines: dict[Scope, tuple[Line, ...]] = {}
    for stored in segment.records():
        is_whole = stored.kind in (RecordKind.OPENED, RecordKind.RECONFIGURED)
        if stored.kind == RecordKind.REPORTED or not (
            is_whole or any(begin <= stored.at_ms <= end for begin, end in spans)
        ):
            continue
        record = bodies.read(stored.kind, stored.scope, stored.at_ms, stored.body)
        if isinstance(record, Opened):
            opened[record.scope] = record.checkpoint
            lines.pop(record.scope, None)
        elif isinstance(record, Reconfigured):
            lines[record.scope] = record.lines
        elif isinstance(record, Ordered):
            if record.scope not in lines and record.scope in opened:
                lines[record.scope] = tuple(Ledger.thaw(opened[record.scope]).told.values())
            tell(watch, record, lines.get(record.scope, ()))
        else:
            tell(watch, record)
