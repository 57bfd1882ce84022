"""The live stream: a snapshot, then deltas by revision, each encoded once for all. A slow reader never holds anybody up."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["QUEUE", "Live", "Subscriber", "messages"]

QUEUE: Final = 32
"""Messages a reader may lag: half a minute of deltas. Beyond, a new snapshot is shorter than catching up."""


class Subscriber:
    """One reader's bounded queue. `Live` writes, the reader takes; None as a message means: start again from a snapshot."""

    __slots__ = ("_closed", "_ready", "_waiting", "drops")

    def __init__(self) -> None:
        self._waiting: deque[bytes | None] = deque()
        self._ready = asyncio.Event()
        self._closed = False
        self.drops = 0

    def put(self, message: bytes) -> None:
        """Queued, or, where the reader lags too far, everything is dropped for a new snapshot."""
        if self._waiting and self._waiting[0] is None:
            return
        if len(self._waiting) >= QUEUE:
            self._waiting.clear()
            self._waiting.append(None)
            self.drops += 1
        else:
            self._waiting.append(message)
        self._ready.set()

    def close(self) -> None:
        """The reader gets what is queued and then the end."""
        self._closed = True
        self._ready.set()

    async def take(self, snapshot: Callable[[], bytes]) -> bytes | None:
        """The next message, or None at the end. `snapshot` is called at the moment a lost reader is picked up again."""
        while not self._waiting:
            if self._closed:
                return None
            self._ready.clear()
            await self._ready.wait()
        message = self._waiting.popleft()
        return snapshot() if message is None else message


class Live:
    """All readers of one stream. Written by the owner's task."""

    def __init__(self) -> None:
        self._subscribers: set[Subscriber] = set()
        self._closed = False
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._subscribers)

    def publish(self, message: bytes) -> None:
        """To every reader."""
        for subscriber in self._subscribers:
            before = subscriber.drops
            subscriber.put(message)
            self.dropped += subscriber.drops - before

    def close(self) -> None:
        """Every stream ends; later ones end at once."""
        self._closed = True
        for subscriber in self._subscribers:
            subscriber.close()

    @contextmanager
    def subscribed(self) -> Iterator[Subscriber]:
        """A reader for the length of the block."""
        subscriber = Subscriber()
        if self._closed:
            subscriber.close()
        self._subscribers.add(subscriber)
        try:
            yield subscriber
        finally:
            self._subscribers.discard(subscriber)


async def messages(live: Live, snapshot: Callable[[], bytes]) -> AsyncIterator[bytes]:
    """A snapshot, then every message, until the stream ends."""
    with live.subscribed() as subscriber:
        message: bytes | None = snapshot()
        while message is not None:
            yield message
            message = await subscriber.take(snapshot)
