"""What connections of either side have in common: where bytes are read into, and how one direction ends."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import termios
from array import array
from typing import Final

from reachline.model import Seconds
from reachline.proxy.alarms import Alarm
from reachline.proxy.arrival import Peer

__all__ = ["UNKNOWN", "Leaving", "half_close", "peer_of", "reading_room", "unread"]

UNKNOWN: Final = Peer("", 0)

_ROOM: Final = 1 << 16
"""Bytes of one read. Asyncio's own way makes 256 KiB anew for each, of which the kernel must find the pages: 18 us a read."""


def reading_room(size: int = _ROOM) -> memoryview:
    """Where all connections of one thread read into, one after the other: what came is taken out at once."""
    return memoryview(bytearray(size))


def unread(transport: asyncio.BaseTransport) -> int:
    """Bytes that the kernel holds for us: of a loop that was late, perhaps a whole request."""
    held = array("i", [0])
    try:
        fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.FIONREAD, held)
    except (OSError, ValueError):  # closed already
        return 0
    return held[0]


def half_close(transport: asyncio.Transport) -> None:
    """Say that nothing more is sent. Where that cannot be said alone (TLS), or nobody is there any more, the connection ends."""
    if transport.is_closing():
        return
    if not transport.can_write_eof():
        transport.close()
        return
    try:
        transport.write_eof()
    except OSError:  # the other end was faster
        transport.abort()


class Leaving:
    """Connections that are over for us, while the other end may have yet to take what was sent. Of one loop's thread.

    Who takes nothing more of it for `after` seconds is cut off: a close alone would wait for ever. 0: nobody is.
    """

    __slots__ = ("_after", "_alarm", "_left")

    def __init__(self, loop: asyncio.AbstractEventLoop, after: Seconds) -> None:
        self._after: Final = after
        self._alarm: Final = Alarm(loop, after, self._ring)
        self._left: Final[dict[asyncio.Transport, int]] = {}
        """Bytes that were not taken when last looked."""

    def watch(self, transport: asyncio.Transport) -> None:
        """From now on."""
        if self._after:
            self._left[transport] = _unsent(transport)
            self._alarm.set(transport)

    def forget(self, transport: asyncio.Transport) -> None:
        """It is closed."""
        if self._left.pop(transport, None) is not None:
            self._alarm.clear(transport)

    def close(self) -> None:
        """Nobody is watched any more."""
        self._left.clear()
        self._alarm.close()

    def _ring(self, transport: asyncio.Transport) -> None:
        left = _unsent(transport)
        if left < self._left.pop(transport, 0):
            self._left[transport] = left
            self._alarm.set(transport)
        else:
            transport.abort()


def _unsent(transport: asyncio.Transport) -> int:
    """Bytes that the other end has not taken: ours, and those that the kernel holds for it."""
    held = array("i", [0])
    sock = transport.get_extra_info("socket")
    try:
        fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, held)
    except (OSError, ValueError):  # closed already
        return 0
    return transport.get_write_buffer_size() + held[0]


def peer_of(transport: asyncio.Transport) -> Peer:
    """Who is at the other end."""
    name, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
    if name is None or own is None:
        return UNKNOWN  # gone before it was here
    sock = transport.get_extra_info("socket")
    shaken = transport.get_extra_info("ssl_object")
    is_tls, is_certified = shaken is not None, shaken is not None and bool(shaken.getpeercert())
    if sock is not None and sock.family not in (socket.AF_INET, socket.AF_INET6):
        return Peer("", 0, is_tls=is_tls)
    return Peer(name[0], name[1], own[1], is_tls, own[0], is_certified=is_certified)
