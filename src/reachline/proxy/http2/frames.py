"""Frames: cut from bytes, and made. Payloads are others' business."""

from __future__ import annotations

from struct import Struct
from typing import Final

from reachline.proxy.http2.limits import Code

__all__ = [
    "ACK", "CONTINUATION", "DATA", "END_HEADERS", "END_STREAM", "GOAWAY", "HEAD", "HEADERS", "LARGEST", "PADDED", "PING", "PREFACE",
    "PRIORITY", "PUSH_PROMISE", "RST_STREAM", "SETTINGS", "WINDOW_UPDATE", "WITH_PRIORITY", "BrokenError", "frame", "goaway", "head",
    "pack_code", "pack_setting", "unpadded",
]  # fmt: skip

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD: Final = 9
LARGEST: Final = 16_384
"""Bytes of a payload: the least a peer must take and the most we ever take; SETTINGS_MAX_FRAME_SIZE stays at its default."""
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
WITH_PRIORITY: Final = 0x20
_HEAD: Final = Struct(">BHBBI")
head: Final = _HEAD.unpack_from
"""(size / 65536, size % 65536, type, flags, stream) of the nine bytes at an offset."""
_pack_head: Final = _HEAD.pack
pack_code: Final = Struct(">I").pack
pack_setting: Final = Struct(">HI").pack


class BrokenError(Exception):
    """The connection cannot go on: `code` is told to the peer, `counter` is one of Envoy's, or empty."""

    def __init__(self, code: Code, words: str, counter: str = "") -> None:
        super().__init__(words)
        self.code = code
        self.counter = counter


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A frame; the payload fits into one."""
    size = len(payload)
    return _pack_head(size >> 16, size & 0xFFFF, kind, flags, stream) + payload


def goaway(last: int, code: int, words: str = "") -> bytes:
    """No stream behind `last` is answered."""
    return frame(GOAWAY, 0, 0, pack_code(last) + pack_code(code) + words.encode("ascii", "replace"))


def unpadded(payload: bytes) -> bytes:
    """What is between the length of the padding and the padding."""
    if not payload or payload[0] >= len(payload):
        raise BrokenError(Code.PROTOCOL_ERROR, "padding longer than its frame")
    return payload[1 : len(payload) - payload[0]]
