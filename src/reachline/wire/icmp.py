"""Echo requests and replies as bytes, IPv4 and IPv6. Refuses to know sockets and clocks."""

from __future__ import annotations

import array
import struct
import sys
from typing import Final, NamedTuple

from reachline.errors import RemoteProtocolError

__all__ = ["HEAD", "MIN_PAYLOAD", "PLAIN", "TYPES", "Echo", "checksum", "reply", "request", "token_of", "without_ip"]

MIN_PAYLOAD: Final = 8
"""The token alone."""
_HEADER: Final = struct.Struct("!BBHHH")
PLAIN: Final = _HEADER.size
"""Bytes before the payload."""
_TOKEN: Final = struct.Struct("=Q")
"""Nobody but us reads it: in the machine's own order, so that all of a message can be written and read at once."""
HEAD: Final = struct.Struct("=BBHHHQ")
"""Type, code, checksum, ident, sequence, token, all in the machine's own order."""
TYPES: Final = {4: (8, 0), 6: (128, 129)}
"""Request and reply by family."""


class Echo(NamedTuple):
    """A reply: who asked, and the token that was sent along."""

    ident: int
    sequence: int
    token: int


def checksum(data: bytes) -> int:
    """The internet checksum (RFC 1071), to be stored big-endian."""
    words = array.array("H", data if len(data) % 2 == 0 else data + b"\0")
    if sys.byteorder == "little":
        words.byteswap()
    total = sum(words)
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def request(family: int, *, ident: int, sequence: int, token: int, size: int = 56) -> bytes:
    """An echo request with `size` bytes of payload that begins with the token. IPv6 checksums are the kernel's work."""
    payload = _TOKEN.pack(token).ljust(max(size, MIN_PAYLOAD), b"\0")
    kind = TYPES[family][0]
    bare = _HEADER.pack(kind, 0, 0, ident & 0xFFFF, sequence & 0xFFFF) + payload
    if family == 6:
        return bare
    return _HEADER.pack(kind, 0, checksum(bare), ident & 0xFFFF, sequence & 0xFFFF) + payload


def without_ip(packet: bytes) -> bytes:
    """A raw IPv4 packet without its header; RemoteProtocolError where it is shorter than it says."""
    width = (packet[0] & 0x0F) * 4 if packet else 0
    if width < 20 or len(packet) < width:
        raise RemoteProtocolError("IP header cut short")
    return packet[width:]


def reply(family: int, packet: bytes) -> Echo | None:
    """The echo reply in an ICMP packet, None where it is another message; RemoteProtocolError where it is cut short."""
    return _read(packet, TYPES[family][1])


def token_of(family: int, packet: bytes) -> int | None:
    """The token of an echo request of ours, as an ICMP error quotes it; None where too little is quoted."""
    try:
        echo = _read(packet, TYPES[family][0])
    except RemoteProtocolError:
        return None
    return echo.token if echo else None


def _read(packet: bytes, wanted: int) -> Echo | None:
    if len(packet) < _HEADER.size:
        raise RemoteProtocolError("ICMP header cut short")
    kind, code, _, ident, sequence = _HEADER.unpack_from(packet)
    if kind != wanted or code != 0:
        return None
    if len(packet) < _HEADER.size + MIN_PAYLOAD:
        raise RemoteProtocolError("echo without its payload")
    return Echo(ident, sequence, _TOKEN.unpack_from(packet, _HEADER.size)[0])
