"""The orders that a journal remembers, those that are over too: who asked what of which lines, and who ended it. Reads only."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from reachline.core.orders import Order
from reachline.errors import JournalError
from reachline.model import Scope
from reachline.store.records import Bodies, Ordered, RecordKind, Undone
from reachline.store.segment import Segment, listed

__all__ = ["Given", "given"]

log = logging.getLogger(__name__)

_SEGMENTS: Final = 48
"""Two days of hourly segments, as far back as history tells of decisions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """One order, the scopes it was given to, and by whom it was ended before its time (None: it was not)."""

    order: Order
    scopes: tuple[Scope, ...]
    undone_ms: int | None = None
    undone_by: str = ""
    undone_why: str = ""

    def ended_ms(self, now_ms: int) -> int | None:
        """When it ended, or None while it is in force at `now_ms`."""
        if self.undone_ms is not None:
            return self.undone_ms
        until_ms = self.order.until_ms
        return until_ms if until_ms is not None and until_ms <= now_ms else None


def given(directory: Path | str, *, segments: int = _SEGMENTS) -> tuple[Given, ...]:
    """The orders of the newest segments, oldest first; a damaged segment is left out and logged."""
    found: dict[int, Given] = {}
    for path in listed(Path(directory))[-segments:]:
        try:
            with Segment(path) as segment:
                for record in _records(segment):
                    _take(found, record)
        except JournalError as error:
            log.warning("segment_skipped", extra={"segment": path.name, "reason": str(error)})
    return tuple(found[number] for number in sorted(found))


def _records(segment: Segment) -> Iterator[Ordered | Undone]:
    """By kind, each in order: an order's number is never used twice, so it is ended after it was given."""
    bodies = Bodies()
    for kind in (RecordKind.ORDERED, RecordKind.UNDONE):
        for stored in segment.records(kind=kind):
            record = bodies.read(stored.kind, stored.scope, stored.at_ms, stored.body)
            if isinstance(record, Ordered | Undone):
                yield record


def _take(found: dict[int, Given], record: Ordered | Undone) -> None:
    if isinstance(record, Ordered):
        known = found.get(record.order.number)
        scopes = tuple(dict.fromkeys((*known.scopes, record.scope) if known else (record.scope,)))
        found[record.order.number] = Given(order=record.order, scopes=scopes)
    elif known := found.get(record.number):
        found[record.number] = replace(known, undone_ms=record.at_ms, undone_by=record.by, undone_why=record.why)
