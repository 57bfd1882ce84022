"""After a restart nobody is cut off on old votes: judging waits for two messages from a quorum, or ten seconds."""

from __future__ import annotations

from collections import Counter
from typing import Final

from reachline.core.quorum import needed
from reachline.model import VantageId

__all__ = ["HOLD_MS", "Hold"]

HOLD_MS: Final = 10_000
"""One default heartbeat: agents report at once when they are back, so who has not by then is away (decisions 5.9)."""
_MESSAGES: Final = 2
"""One may be a leftover of before; the second is of now."""


class Hold:
    """One scope's wait. Written by the owner's task."""

    __slots__ = ("_heard", "_until_ms")

    def __init__(self, *, since_ms: int) -> None:
        self._until_ms = since_ms + HOLD_MS
        self._heard: Counter[VantageId] = Counter()

    def heard(self, vantage: VantageId) -> None:
        """A whole round of reports of this vantage arrived."""
        self._heard[vantage] += 1

    def is_over(self, now_ms: int, members: frozenset[VantageId]) -> bool:
        """Whether judging may go on."""
        ready = sum(1 for vantage in members if self._heard[vantage] >= _MESSAGES)
        return now_ms >= self._until_ms or (bool(members) and ready >= needed(len(members)))
