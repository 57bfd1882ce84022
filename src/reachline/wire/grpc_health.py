"""The two messages of grpc.health.v1 and gRPC's framing, as much as a probe needs; no schema compiler for two fields."""

from __future__ import annotations

from typing import Final

from reachline.errors import RemoteProtocolError

__all__ = ["MAX_MESSAGE", "METHOD", "SERVING", "code_in", "code_name", "decode", "request", "serving_name"]

METHOD: Final = "/grpc.health.v1.Health/Check"
SERVING: Final = 1
MAX_MESSAGE: Final = 1_024
"""Bytes of an answer: the known one has two."""
_SERVING: Final = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")
_CODES: Final = (
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
    "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
)  # fmt: skip
_DIGITS_MOST: Final = 4
"""Of a code: the known ones have two."""
_PREFIX: Final = 5
"""One byte that says whether the message is compressed, four of its length."""
_STATUS_FIELD: Final = 1
_VARINT: Final = 0
"""A wire type; the others have 1, 2 and 5: eight bytes, bytes with their length, four bytes."""
_MAX_VARINT: Final = 10


def serving_name(status: int) -> str:
    """A serving status as people write it."""
    return _SERVING[status] if 0 <= status < len(_SERVING) else f"serving status {status}"


def code_name(code: int) -> str:
    """A code of gRPC as people write it."""
    return _CODES[code] if 0 <= code < len(_CODES) else f"gRPC status {code}"


def code_in(status: str) -> int | None:
    """The code that `grpc-status` names; None where it is none."""
    return int(status) if status.isascii() and status.isdecimal() and len(status) <= _DIGITS_MOST else None


def request(service: str) -> bytes:
    """A HealthCheckRequest with gRPC's prefix; an empty service is the server as a whole."""
    name = service.encode()
    message = b"\x0a" + _varint(len(name)) + name if name else b""
    return b"\0" + len(message).to_bytes(4, "big") + message


def decode(body: bytes) -> int:
    """The serving status in a response's body; RemoteProtocolError where it holds none."""
    if len(body) < _PREFIX:
        raise RemoteProtocolError("gRPC message cut short")
    size = int.from_bytes(body[1:_PREFIX], "big")
    if body[0]:
        raise RemoteProtocolError("gRPC message is compressed, which nobody asked for")
    if size > MAX_MESSAGE:
        raise RemoteProtocolError(f"gRPC message of {size} bytes, at most {MAX_MESSAGE} are taken")
    if len(body) != _PREFIX + size:
        raise RemoteProtocolError("gRPC message cut short" if len(body) < _PREFIX + size else "more than one message")
    return _status(body[_PREFIX:])


def _status(message: bytes) -> int:
    """Field 1; the last one counts, others are skipped, and where there is none it is 0 (UNKNOWN)."""
    status, at = 0, 0
    while at < len(message):
        key, at = _read_varint(message, at)
        if key >> 3 == _STATUS_FIELD and key & 7 == _VARINT:
            status, at = _read_varint(message, at)
        else:
            at = _skip(message, at, key & 7)
    return status


def _skip(message: bytes, at: int, sort: int) -> int:
    match sort:
        case 0:
            at = _read_varint(message, at)[1]
        case 1:
            at += 8
        case 2:
            size, at = _read_varint(message, at)
            at += size
        case 5:
            at += 4
        case _:
            raise RemoteProtocolError("gRPC message is malformed")
    if at > len(message):
        raise RemoteProtocolError("gRPC message is malformed")
    return at


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for step, byte in enumerate(message[at : at + _MAX_VARINT]):
        value |= (byte & 0x7F) << 7 * step
        if byte < 0x80:
            return value, at + step + 1
    raise RemoteProtocolError("gRPC message is malformed")


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))
