"""The windows that a peer's bodies come through: what is left of them, and what is given back."""

from __future__ import annotations

from typing import Final

from reachline.proxy.http2.frames import WINDOW_UPDATE, BrokenError, frame, pack_code
from reachline.proxy.http2.limits import Code, Limits
from reachline.proxy.http2.sending import Sender
from reachline.proxy.http2.streams import Stream

__all__ = ["Room"]

_WINDOW: Final = 65_535
"""Of a connection to begin with, which only a window update makes larger (RFC 9113, 6.9.2)."""


class Room:
    """One connection's. Given back by halves: often enough that nobody waits, seldom enough that it costs nothing."""

    __slots__ = ("_connection", "_left", "_sender", "_spent", "_stream")

    def __init__(self, limits: Limits, sender: Sender) -> None:
        self._sender: Final = sender
        self._stream: Final = limits.stream_window // 2
        self._connection: Final = max(limits.connection_window, _WINDOW) // 2
        self._left = max(limits.connection_window, _WINDOW)
        self._spent = 0

    def opening(self) -> bytes:
        """What makes the connection's window as large as it should be."""
        more = self._left - _WINDOW
        return _update(0, more) if more else b""

    def take(self, size: int) -> None:
        """So much came; BrokenError where there was no room for it."""
        self._left -= size
        if self._left < 0:
            raise BrokenError(Code.FLOW_CONTROL_ERROR, "more than the connection's window")

    def take_of(self, stream: Stream, size: int) -> None:
        """So much came on a stream, which gives it back unless it is held."""
        stream.left -= size
        if stream.left < 0:
            raise BrokenError(Code.FLOW_CONTROL_ERROR, "more than a stream's window")
        if stream.is_held:
            stream.owed += size
        else:
            self.give(stream, size)

    def give(self, stream: Stream, size: int) -> None:
        """So much of a stream was taken."""
        self.give_connection(size)
        stream.spent += size
        if stream.spent >= self._stream and not stream.is_heard:
            self._sender.put(_update(stream.id, stream.spent))
            stream.left += stream.spent
            stream.spent = 0

    def give_connection(self, size: int) -> None:
        self._spent += size
        if self._spent >= self._connection:
            self._sender.put(_update(0, self._spent))
            self._left += self._spent
            self._spent = 0


def _update(stream: int, size: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, pack_code(size))
