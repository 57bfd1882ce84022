"""Decisions from before this start, so that a page is not empty after a restart. Reads the journal only."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Final

from reachline.model import Change
from reachline.store.records import Bodies, RecordKind, Ticked
from reachline.store.segment import Segment, listed

__all__ = ["remembered"]

_SEGMENTS: Final = 3
"""Two hours at least, one of which may be this start's own empty segment."""
_MOST: Final = 1_000
"""Half of what a board keeps: the new epoch's decisions have room."""


def remembered(directory: Path | str) -> list[tuple[int, Change]]:
    """The newest decisions, oldest first, each with the epoch that made it; JournalError where they cannot be read."""
    found: deque[tuple[int, Change]] = deque(maxlen=_MOST)
    for path in listed(Path(directory))[-_SEGMENTS:]:
        bodies = Bodies()
        with Segment(path) as segment:
            for stored in segment.records(kind=RecordKind.DECIDED):
                ticked = bodies.read(stored.kind, stored.scope, stored.at_ms, stored.body)
                if isinstance(ticked, Ticked):
                    found.extend((segment.meta.epoch, change) for change in ticked.changes)
    return list(found)
