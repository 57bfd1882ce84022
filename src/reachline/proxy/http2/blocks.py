"""Headers put together from their frames (RFC 9113, 6.2 and 6.10), and read."""

from __future__ import annotations

from typing import Final

from reachline.proxy.http2.compress import Decoder, Heard
from reachline.proxy.http2.frames import CONTINUATION, END_HEADERS, PADDED, WITH_PRIORITY, BrokenError, unpadded
from reachline.proxy.http2.limits import Code, Limits

__all__ = ["Blocks"]

_FAR: Final = 4
"""Compressed, a block is read up to so many times as headers may be long: what is over ends its stream, what is far over the connection."""
_PRIORITY: Final = 5
"""Bytes that say how urgent it is, which nobody heeds (RFC 9113, 5.3.2)."""


class Blocks:
    """One connection's, one at a time."""

    __slots__ = ("_decoder", "_flags", "_limits", "_parts", "_size", "stream")

    def __init__(self, limits: Limits) -> None:
        self._limits: Final = limits
        self._decoder: Final = Decoder(limits.table)
        self._parts: list[bytes] = []
        self._size = self._flags = 0
        self.stream = 0
        """Whose block is not whole yet; 0: nobody's."""

    def begin(self, flags: int, stream: int, payload: bytes) -> tuple[int, Heard] | None:
        """HEADERS: (its flags, the list) where that is all of it."""
        if flags & PADDED:
            payload = unpadded(payload)
        if flags & WITH_PRIORITY:
            if len(payload) < _PRIORITY:
                raise BrokenError(Code.FRAME_SIZE_ERROR, "HEADERS without the priority they announce")
            payload = payload[_PRIORITY:]
        if flags & END_HEADERS:
            return flags, self._read(payload)
        self.stream, self._flags, self._parts, self._size = stream, flags, [payload], len(payload)
        return None

    def go_on(self, flags: int, stream: int, payload: bytes) -> tuple[int, Heard] | None:
        """CONTINUATION: as `begin`."""
        if not stream or stream != self.stream:
            raise BrokenError(Code.PROTOCOL_ERROR, f"a frame of type {CONTINUATION} that continues nothing")
        self._size += len(payload)
        if self._size > self._limits.head * _FAR:
            raise BrokenError(Code.ENHANCE_YOUR_CALM, "headers far over the limit")
        self._parts.append(payload)
        if not flags & END_HEADERS:
            return None
        block, self._parts, self.stream = b"".join(self._parts), [], 0
        return self._flags, self._read(block)

    def _read(self, block: bytes) -> Heard:
        return self._decoder.decode(block, most=self._limits.head, count=self._limits.headers)
