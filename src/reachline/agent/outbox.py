"""Heartbeats on their way: kept until the center has them in its journal, bounded, the oldest given up first. Pure."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

import msgspec

from reachline.model import Seconds
from reachline.wire.frame import Heartbeat, encode

__all__ = ["STALE", "Outbox"]

STALE: Final[Seconds] = 25.0
"""As old as a vote may be: what leaves later than this is history, and says so."""


class _Entry(NamedTuple):
    beat: Heartbeat
    size: int
    since: Seconds


class Outbox:
    """One agent's unacknowledged heartbeats in order of their sequence. One writer: the agent's loop."""

    def __init__(self, limit: int) -> None:
        """At most `limit` bytes are kept; the newest heartbeat always is."""
        self._limit = limit
        self._entries: deque[_Entry] = deque()
        self._size = 0
        self._sent = 0
        """How many of them were sent on this stream."""
        self._before = 0
        """Sequences up to this one were made before this stream began."""
        self.dropped = 0
        """Heartbeats that were given up unsent, so far."""

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, beat: Heartbeat, now: Seconds) -> None:
        """One more to send; makes room for it."""
        entry = _Entry(beat, len(encode(beat)), now)
        self._entries.append(entry)
        self._size += entry.size
        while self._size > self._limit and len(self._entries) > 1:
            if not self._sent:
                self.dropped += 1
            self._forget()

    def begin(self) -> None:
        """A new stream: all that was not acknowledged is sent again, as history. The center drops what it has."""
        self._sent = 0
        self._before = self._entries[-1].beat.sequence if self._entries else self._before

    def take(self, now: Seconds) -> bytes | None:
        """The next frame to send, or None. Marked as replayed where it is no evidence for now."""
        if self._sent == len(self._entries):
            return None
        beat, _, since = self._entries[self._sent]
        self._sent += 1
        if beat.sequence <= self._before or now - since > STALE:
            beat = msgspec.structs.replace(beat, replayed=True)
        return encode(beat)

    def acknowledge(self, sequence: int) -> None:
        """The center has everything up to `sequence`."""
        while self._entries and self._entries[0].beat.sequence <= sequence:
            self._forget()

    def _forget(self) -> None:
        self._size -= self._entries.popleft().size
        self._sent = max(0, self._sent - 1)
