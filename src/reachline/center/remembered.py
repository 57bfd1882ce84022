"""Decisions from before this start, so that a page is not empty after a restart. Reads the journal only."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from reachline.model import Change
from reachline.store.history import recent

__all__ = ["remembered"]

_SEGMENTS: Final = 3
"""Two hours at least, one of which may be this start's own empty segment."""
_MOST: Final = 1_000
"""Half of what a board keeps: the new epoch's decisions have room."""


def remembered(directory: Path | str) -> list[tuple[int, Change]]:
    """The newest decisions, oldest first, each with the epoch that made it; a damaged segment is left out and logged."""
    return list(recent(directory, segments=_SEGMENTS, most=_MOST).decisions)
