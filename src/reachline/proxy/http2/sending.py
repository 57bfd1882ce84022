"""What goes to a peer: control frames at once, bodies as windows let them, streams in turn. Nothing here raises for what a peer does."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from reachline.proxy.http2.compress import Encoder
from reachline.proxy.http2.events import Field
from reachline.proxy.http2.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    LARGEST,
    frame,
)
from reachline.proxy.http2.streams import Stream

__all__ = ["Sender"]

_PIECE: Final = 64 << 10
"""Bytes of frames made ahead of being taken: as a transport of asyncio holds before it asks to wait."""
_WINDOW: Final = 65_535
"""Of every connection to begin with (RFC 9113, 6.9.2)."""


class Sender:
    """One connection's way out. Written by its connection alone."""

    __slots__ = ("_out", "_ready", "_size", "controls", "data_frames", "drained", "encoder", "frames", "room", "said")

    def __init__(self, table: int) -> None:
        self.encoder: Final = Encoder(table)
        self.room = _WINDOW
        """Bytes of bodies that the peer takes on all streams."""
        self.frames = self.controls = 0
        """Not taken yet; of them such as only answer the peer."""
        self.data_frames = 0
        """Of all time."""
        self.drained: list[int] = []
        """Streams that were waited for, and whose queue is empty."""
        self.said: list[Stream] = []
        """Those that have said all; whoever holds this takes them away."""
        self._out: list[bytes] = []
        self._size = 0
        self._ready: deque[Stream] = deque()

    def put(self, data: bytes) -> None:
        """A frame at once."""
        self._out.append(data)
        self._size += len(data)
        self.frames += 1

    def control(self, data: bytes) -> None:
        """A frame at once that only answers the peer."""
        self.controls += 1
        self.put(data)

    def head(self, stream: Stream, fields: Sequence[Field], *, is_last: bool) -> None:
        """A message's head, or its trailers."""
        block = self.encoder.encode(fields)
        ends = END_STREAM if is_last else 0
        if len(block) <= LARGEST:
            self.put(frame(HEADERS, ends | END_HEADERS, stream.id, block))
        else:
            self.put(frame(HEADERS, ends, stream.id, block[:LARGEST]))
            for at in range(LARGEST, len(block), LARGEST):
                is_end = at + LARGEST >= len(block)
                self.put(frame(CONTINUATION, END_HEADERS if is_end else 0, stream.id, block[at : at + LARGEST]))
        if is_last:
            self._finish(stream)

    def body(self, stream: Stream, data: bytes, *, is_last: bool) -> None:
        """Some of a body, or its end."""
        size = len(data)
        stream.has_end = is_last
        if not size:
            if is_last and not stream.queue:
                self._data(stream, b"", is_last=True)
            return
        if not stream.queue and size <= stream.room and size <= self.room and size <= LARGEST and self._size < _PIECE:
            self._data(stream, data, is_last=is_last)
            return
        stream.queue.append(data)
        stream.pending += size
        self.wake(stream)
        self.pump()

    def end(self, stream: Stream, trailers: Sequence[Field]) -> None:
        """Nothing more of a body; what follows it."""
        stream.has_end, stream.trailers = True, trailers
        if not stream.queue:
            self._end(stream)

    def wake(self, stream: Stream) -> None:
        """A stream may have its turn."""
        if stream.queue and stream.room > 0 and not stream.is_ready:
            stream.is_ready = True
            self._ready.append(stream)

    def forget(self, stream: Stream) -> None:
        """Nothing of it is said any more."""
        stream.drop()
        if stream.is_ready:
            stream.is_ready = False
            self._ready.remove(stream)

    def pump(self) -> None:
        """Frames for who has its turn: one each, round and round."""
        ready = self._ready
        while ready and self.room > 0 and self._size < _PIECE:
            stream = ready.popleft()
            if stream.room <= 0:
                stream.is_ready = False  # its window was made smaller
                continue
            data = stream.take(min(stream.room, self.room, LARGEST))
            if stream.queue:
                self._data(stream, data, is_last=False)
                ready.append(stream)
                continue
            stream.is_ready = False
            ends = stream.has_end and not stream.trailers
            self._data(stream, data, is_last=ends)
            if stream.has_end and not ends:
                self._end(stream)
            if stream.is_watched:
                stream.is_watched = False
                self.drained.append(stream.id)

    def take(self) -> bytes:
        """All frames made so far; then those that there is room for now are made."""
        out = self._out
        if not out:
            return b""
        data = out[0] if len(out) == 1 else b"".join(out)
        self._out = []
        self._size = self.frames = self.controls = 0
        if self._ready:
            self.pump()
        return data

    def _data(self, stream: Stream, data: bytes, *, is_last: bool) -> None:
        size = len(data)
        stream.room -= size
        self.room -= size
        self.data_frames += 1
        self.put(frame(DATA, END_STREAM if is_last else 0, stream.id, data))
        if is_last:
            self._finish(stream)

    def _end(self, stream: Stream) -> None:
        if stream.trailers:
            self.head(stream, stream.trailers, is_last=True)
        else:
            self._data(stream, b"", is_last=True)

    def _finish(self, stream: Stream) -> None:
        stream.is_said = stream.has_end = True
        self.said.append(stream)
