"""Bytes of a peer to frames: the preface, sizes, and which stream may carry what (RFC 9113, 3.4 and 4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from reachline.proxy.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    GOAWAY,
    HEAD,
    HEADERS,
    LARGEST,
    PING,
    PREFACE,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    BrokenError,
    head,
)
from reachline.proxy.http2.limits import Code

__all__ = ["Cutter"]

_SIZES: Final = {PRIORITY: 5, RST_STREAM: 4, PING: 8, WINDOW_UPDATE: 4}
_LEAST_OF_GOAWAY: Final = 8
_OF_CONNECTION: Final = frozenset({SETTINGS, PING, GOAWAY})
_OF_STREAM: Final = frozenset({DATA, HEADERS, PRIORITY, RST_STREAM, PUSH_PROMISE, CONTINUATION})
_TYPE: Final = 3
"""Where in a frame its type is."""
_PLAIN: Final = frozenset({DATA, HEADERS})


class Cutter:
    """What has come of the next frame, and no more."""

    __slots__ = ("_has_begun", "_preface", "_rest")

    def __init__(self, *, is_client: bool) -> None:
        self._preface = b"" if is_client else PREFACE
        self._rest = b""
        self._has_begun = False

    @property
    def is_amid_head(self) -> bool:
        """Whether HEADERS have begun."""
        return len(self._rest) > _TYPE and not self._preface and self._rest[_TYPE] == HEADERS

    def feed(self, data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
        """(type, flags, stream, payload) of each frame that is whole now. BrokenError where there can be none."""
        if self._rest:
            data = self._rest + data
        at, end = 0, len(data)
        if self._preface:
            if len(data) < len(self._preface) and self._preface.startswith(data):
                self._rest = data
                return
            at = self._skip_preface(data)
        while end - at >= HEAD:
            high, low, kind, flags, stream = head(data, at)
            size = high << 16 | low
            stream &= 0x7FFFFFFF
            if kind not in _PLAIN or size > LARGEST or not stream or not self._has_begun:
                self._check(kind, flags, stream, size)
            after = at + HEAD + size
            if after > end:
                break
            yield kind, flags, stream, data[at + HEAD : after]
            at = after
        self._rest = data[at:]

    def _skip_preface(self, data: bytes) -> int:
        preface, self._preface = self._preface, b""
        if not data.startswith(preface):
            raise BrokenError(Code.PROTOCOL_ERROR, "not the preface of HTTP/2")
        return len(preface)

    def _check(self, kind: int, flags: int, stream: int, size: int) -> None:
        if not self._has_begun:
            if kind != SETTINGS or flags & ACK:
                raise BrokenError(Code.PROTOCOL_ERROR, "the first frame is not SETTINGS")
            self._has_begun = True
        if size > LARGEST:
            raise BrokenError(Code.FRAME_SIZE_ERROR, f"a frame of {size} bytes, {LARGEST} were agreed on")
        if size != _SIZES.get(kind, size) or (kind == GOAWAY and size < _LEAST_OF_GOAWAY):
            raise BrokenError(Code.FRAME_SIZE_ERROR, f"a frame of type {kind} of {size} bytes")
        if kind in (_OF_CONNECTION if stream else _OF_STREAM):
            raise BrokenError(Code.PROTOCOL_ERROR, f"a frame of type {kind} on stream {stream}")
