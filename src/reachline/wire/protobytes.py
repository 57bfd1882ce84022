"""Protobuf's bytes by hand, for services with a dozen fields: fields written and read, no schema.

What is false, zero or empty is not written, as proto3 has it.
"""

from __future__ import annotations

from typing import Final

from reachline.errors import RemoteProtocolError

__all__ = ["fields", "message", "number", "text"]

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_FIXED32: Final = 5
"""Wire types."""
_MAX_VARINT: Final = 10


def number(field: int, value: int) -> bytes:
    """A varint that is not negative."""
    return bytes((field << 3 | _VARINT,)) + _varint(value) if value else b""


def text(field: int, value: str) -> bytes:
    """As UTF-8."""
    return message(field, value.encode()) if value else b""


def message(field: int, data: bytes) -> bytes:
    """Also where it is empty: a message that is set, an item of a list."""
    return bytes((field << 3 | _BYTES,)) + _varint(len(data)) + data


def fields(data: bytes) -> list[tuple[int, int | bytes]]:
    """Numbers of fields with their varints or bytes, in their order; of other types none is known here, and they are passed over.

    RemoteProtocolError where it is no message.
    """
    found: list[tuple[int, int | bytes]] = []
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        if key & 7 == _VARINT:
            value, at = _read_varint(data, at)
            found.append((key >> 3, value))
            continue
        if key & 7 == _BYTES:
            size, at = _read_varint(data, at)
        else:
            size = _sized(key & 7, key >> 3)
        if at + size > len(data):
            raise RemoteProtocolError(f"field {key >> 3} is cut short")
        if key & 7 == _BYTES:
            found.append((key >> 3, data[at : at + size]))
        at += size
    return found


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


def _sized(sort: int, field: int) -> int:
    """Bytes of a field whose wire type says how many it has."""
    if sort not in {_FIXED64, _FIXED32}:
        raise RemoteProtocolError(f"field {field} is of unknown wire type {sort}")
    return 8 if sort == _FIXED64 else 4


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for step, byte in enumerate(data[at : at + _MAX_VARINT]):
        value |= (byte & 0x7F) << 7 * step
        if byte < 0x80:
            return value, at + step + 1
    raise RemoteProtocolError("a number is cut short or too long")
