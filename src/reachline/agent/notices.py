"""What comes and goes is told once, however often it does. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from reachline.model import Seconds

__all__ = ["CALM", "Notices"]

CALM: Final[Seconds] = 60.0
"""What was away for less has not ended: six default heartbeats."""


class Notices:
    """Things by name, while they last. One writer."""

    def __init__(self, calm: Seconds = CALM) -> None:
        self._calm = calm
        self._seen: dict[str, Seconds] = {}
        """When each was last there."""

    def look(self, there: Collection[str], now: Seconds) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Those that began, and those that are over; one that comes back before it was over is neither."""
        began = tuple(name for name in there if name not in self._seen)
        self._seen |= dict.fromkeys(there, now)
        over = tuple(name for name, at in self._seen.items() if now - at >= self._calm)
        for name in over:
            del self._seen[name]
        return began, over
