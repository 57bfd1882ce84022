"""One stream's state: what either side has said, and what of its windows is left."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from reachline.proxy.http2.events import Field

__all__ = ["Stream"]


class Stream:
    """Written by its connection and that connection's sender."""

    __slots__ = (
        "at", "began", "expected", "has_end", "has_head", "id", "is_answered", "is_head", "is_heard", "is_held", "is_ready", "is_said",
        "is_watched", "left", "owed", "pending", "queue", "room", "spent", "trailers",
    )  # fmt: skip

    def __init__(self, number: int, room: int, left: int, began: float = 0.0) -> None:
        self.id: Final = number
        self.began = began
        # What we hear.
        self.left = left
        """Bytes that the peer may send…"""
        self.spent = 0
        """…and that were taken, and not given back yet."""
        self.owed = 0
        """Bytes taken while held: kept back from the connection's window too."""
        self.is_held = False
        self.has_head = False
        """Whether a head is here that is not an interim one."""
        self.is_heard = False
        """Whether the peer has said all."""
        self.expected: int | None = None
        """Bytes of the body that are yet to come, as its head has it."""
        self.is_head = False
        """Whether HEAD was asked, whose length is of no body."""
        # What we say.
        self.room = room
        """Bytes that the peer takes."""
        self.queue: deque[bytes] = deque()
        self.at = 0
        """Where the first of the queue begins."""
        self.pending = 0
        """Bytes queued."""
        self.has_end = False
        """Whether nothing more is to be said."""
        self.trailers: Sequence[Field] = ()
        self.is_answered = False
        self.is_said = False
        """Whether all has left the queue."""
        self.is_ready = False
        """Whether it waits for its turn."""
        self.is_watched = False
        """Whether somebody waits until its queue is empty."""

    def take(self, size: int) -> bytes:
        """No more than so many bytes off the queue, of one piece."""
        first = self.queue[0]
        at = self.at
        if len(first) - at <= size:
            del self.queue[0]
            self.at = 0
            piece = first[at:] if at else first
        else:
            self.at = at + size
            piece = first[at : self.at]
        self.pending -= len(piece)
        return piece

    def drop(self) -> None:
        """Nothing of the queue is said any more."""
        self.queue.clear()
        self.at = self.pending = 0
        self.trailers = ()
