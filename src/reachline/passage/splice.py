"""Two sockets, and what one of them says told to the other: each side no faster than the other takes it, each direction ends alone.

Sockets without transports: bytes are read into one room of all connections and written out of it, so that nothing is copied, and
nothing kept, but what the other side does not take at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Final

from reachline.doors.observatory.carrying import Patience
from reachline.model import Seconds

__all__ = ["Room", "Splice"]

_LARGE: Final = 256 << 10
"""Bytes of one read while both sides flow: at 64 KiB the loop's turn costs as much as the copying…"""
_SMALL: Final = 16 << 10
"""…and after the other side did not take all, so that a thousand that stand still hold little."""
_MOST_HELD: Final = 64 << 20
"""Bytes held for all that stand still; beyond it reads are small."""


class Room:
    """What all splices of one loop share."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop: Final = loop
        self.bytes: Final = memoryview(bytearray(_LARGE))
        self.held = 0

    def piece(self, size: int) -> memoryview:
        """Where to read into."""
        return self.bytes[: size if self.held < _MOST_HELD else _SMALL]


class _Half:
    """One direction."""

    __slots__ = ("_from", "_left", "_room", "_size", "_splice", "_to", "is_over", "limit", "moved")

    def __init__(self, splice: Splice, room: Room, source: socket.socket, target: socket.socket, first: bytes) -> None:
        self._splice: Final = splice
        self._room: Final = room
        self._from: Final = source
        self._to: Final = target
        self._left: memoryview | None = memoryview(first) if first else None
        self._size = _SMALL
        self.moved = len(first)
        self.is_over = False
        self.limit: int | None = None
        """Bytes that are still to be passed on; what comes behind them is read and dropped."""

    def begin(self) -> None:
        """First what is at hand."""
        if self._left is None:
            self._room.loop.add_reader(self._from, self._readable)
        else:
            self._room.held += len(self._left)
            self._room.loop.add_writer(self._to, self._writable)

    def stop(self) -> None:
        """Nothing more is passed on."""
        if self._left is not None:
            self._room.held -= len(self._left)
            self._left = None
        self._room.loop.remove_reader(self._from)
        self._room.loop.remove_writer(self._to)

    def _readable(self) -> None:
        room = self._room.piece(self._size)
        try:
            size = self._from.recv_into(room)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._splice.end(is_broken=True)
            return
        if not size:
            self._room.loop.remove_reader(self._from)
            self._finish()
            return
        size = self._within(size)
        self.moved += size
        self._pass(room[:size])

    def _within(self, size: int) -> int:
        if self.limit is None:
            return size
        size = min(size, self.limit)
        self.limit -= size
        return size

    def _pass(self, data: memoryview) -> None:
        try:
            sent = self._to.send(data) if data else 0
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self._splice.end(is_broken=True)
            return
        if sent == len(data):
            if sent == self._size:
                self._size = min(2 * sent, _LARGE)
            return
        self._size = _SMALL
        self._left = memoryview(bytes(data[sent:]))
        self._room.held += len(self._left)
        self._room.loop.remove_reader(self._from)
        self._room.loop.add_writer(self._to, self._writable)

    def _writable(self) -> None:
        left = self._left
        assert left is not None
        try:
            sent = self._to.send(left)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._splice.end(is_broken=True)
            return
        self._room.held -= sent
        self._splice.stirs()
        if sent < len(left):
            self._left = left[sent:]
            return
        self._left = None
        self._room.loop.remove_writer(self._to)
        self._room.loop.add_reader(self._from, self._readable)

    def _finish(self) -> None:
        """This side sends no more, and all that it sent is written."""
        self.is_over = True
        with contextlib.suppress(OSError):  # the other side is gone: its own direction tells
            self._to.shutdown(socket.SHUT_WR)
        self._splice.halved()


class Splice:
    """A client's connection and the one to its target. Owns both sockets; ends once, and tells `ended`."""

    __slots__ = (
        "_client",
        "_down",
        "_ended",
        "_is_over",
        "_target",
        "_told",
        "_up",
        "patience",
        "quiet_since",
        "seen",
        "stirred",
    )

    def __init__(
        self,
        room: Room,
        client: socket.socket,
        target: socket.socket,
        *,
        patience: Patience,
        ended: Callable[[Splice, bool], None],
        first: bytes = b"",
        greeting: bytes = b"",
        limit: int | None = None,
    ) -> None:
        """`first` goes to the target before all else, `greeting` to the client; `limit` is how much else the target may get."""
        self.patience: Final = patience
        self._client: Final = client
        self._target: Final = target
        self._ended: Final = ended
        self._is_over = False
        self._up: Final = _Half(self, room, client, target, first)
        self._down: Final = _Half(self, room, target, client, greeting)
        self._up.limit = limit
        self._told = (0, 0)
        self.stirred = False
        self.seen = -1
        """Bytes moved when last looked."""
        self.quiet_since: Seconds = room.loop.time()

    def begin(self) -> None:
        """Pass on from now."""
        self._up.begin()
        self._down.begin()

    def fresh(self) -> tuple[int, int]:
        """Bytes up and down since last asked."""
        up, down = self._up.moved, self._down.moved
        before, self._told = self._told, (up, down)
        return up - before[0], down - before[1]

    def stirs(self) -> None:
        """Something was taken, though nothing was read."""
        self.stirred = True

    def look(self, now: Seconds) -> bool:
        """Whether it still has a right to be open: by how long neither side said anything."""
        moved = self._up.moved + self._down.moved
        if moved != self.seen or self.stirred:
            self.seen, self.quiet_since, self.stirred = moved, now, False
            return True
        patience = self.patience
        most = (
            patience.downlink_only
            if self._up.is_over
            else patience.uplink_only
            if self._down.is_over
            else patience.idle
        )
        return now - self.quiet_since < most

    def halved(self) -> None:
        """One direction is over: the other has its own patience from now on."""
        self.stirred = True
        if self._up.is_over and self._down.is_over:
            self.end()

    def end(self, *, is_broken: bool = False) -> None:
        """Both sockets go; what was broken off is told so to both."""
        if self._is_over:
            return
        self._is_over = True
        self._up.stop()
        self._down.stop()
        for each in (self._client, self._target):
            if is_broken:
                _reset(each)
            each.close()
        self._ended(self, is_broken)


def _reset(sock: socket.socket) -> None:
    """Let the close be a reset: a stream that was cut must not look like one that ended."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
