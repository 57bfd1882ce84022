"""DNS messages (RFC 1035) as much as a probe needs: one question out, answers in. Refuses to know sockets and ids' origin."""

from __future__ import annotations

import ipaddress
import struct
from typing import Final, NamedTuple

from reachline.errors import LocalProtocolError, RemoteProtocolError

__all__ = ["RCODES", "TYPES", "Answer", "Message", "decode", "is_plain", "name_to_wire", "query", "rcode_name"]

TYPES: Final = {
    "A": 1,
    "NS": 2,
    "CNAME": 5,
    "SOA": 6,
    "PTR": 12,
    "MX": 15,
    "TXT": 16,
    "AAAA": 28,
    "SRV": 33,
    "CAA": 257,
}
"""Record types that can be asked for."""
RCODES: Final = {0: "NOERROR", 1: "FORMERR", 2: "SERVFAIL", 3: "NXDOMAIN", 4: "NOTIMP", 5: "REFUSED"}
_NAMES: Final = {number: name for name, number in TYPES.items()}
_IN: Final = 1
_HEADER: Final = struct.Struct("!HHHHHH")
_RECORD: Final = struct.Struct("!HHIH")
_RESPONSE: Final = 0x8000
_TRUNCATED: Final = 0x0200
_RECURSE: Final = 0x0100
_PLAIN_MASK: Final = _RESPONSE | _TRUNCATED | 0x0F
_ADDRESS: Final = struct.Struct("!HHHIH")
"""A record whose name is a pointer: what nearly all answers with addresses are made of…"""
_TO_QUESTION: Final = 0xC000 | _HEADER.size
"""…and where that points to."""
_WIDTHS: Final = {TYPES["A"]: 4, TYPES["AAAA"]: 16}
_MAX_NAME: Final = 255
_MAX_LABEL: Final = 63
_MAX_POINTERS: Final = 32
"""Of one name: each leads to a label at least, and no server writes more than a few."""
_MAX_ANSWERS: Final = 256
"""Records read of one message; a probe compares a handful."""


class Answer(NamedTuple):
    """One record: its type by name and its data as text, names in lower case without the last dot."""

    name: str
    kind: str
    data: str
    ttl: int
    """Seconds it may be kept."""


class Message(NamedTuple):
    """A response. `question` is the wire form of the echoed question, to be compared with what was asked."""

    number: int
    """The id, the one that was sent."""
    rcode: int
    truncated: bool
    question: bytes
    answers: tuple[Answer, ...]


def rcode_name(rcode: int) -> str:
    """The code as people write it."""
    return RCODES.get(rcode, f"RCODE{rcode}")


def name_to_wire(name: str) -> bytes:
    """A name as labels; LocalProtocolError where it cannot be one."""
    labels = name.rstrip(".").split(".") if name.rstrip(".") else []
    wire = bytearray()
    for label in labels:
        raw = _ascii(label)
        if not 1 <= len(raw) <= _MAX_LABEL:
            raise LocalProtocolError(
                f"label {label!r} of {name!r} has {len(raw)} bytes, 1 to {_MAX_LABEL} are possible"
            )
        wire.append(len(raw))
        wire += raw
    wire.append(0)
    if len(wire) > _MAX_NAME:
        raise LocalProtocolError(f"name of {len(wire)} bytes, at most {_MAX_NAME} are possible")
    return bytes(wire)


def _ascii(label: str) -> bytes:
    if label.isascii():
        return label.encode()
    try:
        return label.encode("idna")
    except UnicodeError as error:
        raise LocalProtocolError(f"label {label!r} cannot be written in a name") from error


def query(number: int, name: str, kind: str = "A", *, recurse: bool = True) -> tuple[bytes, bytes]:
    """(message, its question) asking for records of `kind`; the question comes back in the response."""
    question = name_to_wire(name) + struct.pack("!HH", TYPES[kind], _IN)
    return _HEADER.pack(number & 0xFFFF, _RECURSE if recurse else 0, 1, 0, 0, 0) + question, question


def decode(data: bytes) -> Message:
    """The response in `data`; RemoteProtocolError where it is not one. A truncated one has no answers."""
    if len(data) < _HEADER.size:
        raise RemoteProtocolError("DNS header cut short")
    number, flags, questions, answers, _, _ = _HEADER.unpack_from(data)
    if not flags & _RESPONSE:
        raise RemoteProtocolError("DNS query where a response belongs")
    if questions > 1:
        raise RemoteProtocolError("DNS response with more than one question")
    at = _HEADER.size
    if questions:
        _, at = _name(data, at)
        at += 4
        if at > len(data):
            raise RemoteProtocolError("DNS question cut short")
    question = data[_HEADER.size : at]
    truncated = bool(flags & _TRUNCATED)
    found = () if truncated else _answers(data, at, min(answers, _MAX_ANSWERS))
    return Message(number, flags & 0x0F, truncated, question, found)


def is_plain(data: bytes, question: bytes, rcode: int) -> bool:
    """Whether `data` is an untruncated answer to `question` with this code and nothing but addresses, all well-formed.

    False says nothing: `decode` must look. The id is the caller's to compare.
    """
    at = _HEADER.size + len(question)
    if len(data) < at or not data.startswith(question, _HEADER.size):
        return False
    _, flags, questions, count, _, _ = _HEADER.unpack_from(data)
    if flags & _PLAIN_MASK != _RESPONSE | rcode or questions != 1 or count > _MAX_ANSWERS:
        return False
    for _ in range(count):
        if at + _ADDRESS.size > len(data):
            return False
        name, kind, cls, _, length = _ADDRESS.unpack_from(data, at)
        if name != _TO_QUESTION or cls != _IN or _WIDTHS.get(kind) != length:
            return False
        at += _ADDRESS.size + length
    return at <= len(data)


def _answers(data: bytes, at: int, count: int) -> tuple[Answer, ...]:
    answers: list[Answer] = []
    for _ in range(count):
        name, at = _name(data, at)
        if at + _RECORD.size > len(data):
            raise RemoteProtocolError("DNS record cut short")
        kind, cls, ttl, length = _RECORD.unpack_from(data, at)
        at += _RECORD.size
        if at + length > len(data):
            raise RemoteProtocolError("DNS record data cut short")
        if cls == _IN:
            answers.append(Answer(name, _NAMES.get(kind, f"TYPE{kind}"), _data(data, at, length, kind), _seconds(ttl)))
        at += length
    return tuple(answers)


def _seconds(ttl: int) -> int:
    """RFC 2181, 8: one with the highest bit set means 0."""
    return ttl if ttl < 1 << 31 else 0


def _name(data: bytes, at: int) -> tuple[str, int]:
    """The name at `at` and where the message goes on. Pointers must point back, so a loop cannot be."""
    labels: list[str] = []
    size, after, floor, pointers = 1, -1, at, 0
    while True:
        if at >= len(data):
            raise RemoteProtocolError("DNS name cut short")
        length = data[at]
        if length == 0:
            return ".".join(labels).lower(), (at + 1 if after < 0 else after)
        if length & 0xC0 == 0xC0:
            if at + 2 > len(data):
                raise RemoteProtocolError("DNS name cut short")
            target = (length & 0x3F) << 8 | data[at + 1]
            after = at + 2 if after < 0 else after
            if target >= floor:
                raise RemoteProtocolError("DNS name points forward")
            pointers += 1
            if pointers > _MAX_POINTERS:
                raise RemoteProtocolError(f"DNS name of more than {_MAX_POINTERS} pointers")
            at = floor = target
            continue
        if length & 0xC0 or at + 1 + length > len(data):
            raise RemoteProtocolError("DNS name is malformed")
        size += length + 1
        if size > _MAX_NAME:
            raise RemoteProtocolError(f"DNS name of more than {_MAX_NAME} bytes")
        labels.append(data[at + 1 : at + 1 + length].decode("ascii", "backslashreplace"))
        at += 1 + length


def _data(data: bytes, at: int, length: int, kind: int) -> str:
    """Record data as text as zone files write it; other types in hex."""
    raw = data[at : at + length]
    match _NAMES.get(kind):
        case "A" | "AAAA":
            return _address(raw, 4 if kind == TYPES["A"] else 16)
        case "NS" | "CNAME" | "PTR":
            return _name(data, at)[0]
        case "MX":
            return _numbers(raw, 1) + _name(data, at + 2)[0]
        case "SRV":
            return _numbers(raw, 3) + _name(data, at + 6)[0]
        case "TXT":
            return _strings(raw)
        case _:
            return raw.hex()


def _address(raw: bytes, width: int) -> str:
    if len(raw) != width:
        raise RemoteProtocolError(f"DNS address of {len(raw)} bytes, {width} belong there")
    return str(ipaddress.ip_address(raw))


def _numbers(raw: bytes, count: int) -> str:
    if len(raw) <= 2 * count:
        raise RemoteProtocolError("DNS record data cut short")
    return "".join(f"{number} " for number in struct.unpack_from(f"!{count}H", raw))


def _strings(raw: bytes) -> str:
    parts, at = [], 0
    while at < len(raw):
        end = at + 1 + raw[at]
        if end > len(raw):
            raise RemoteProtocolError("DNS text cut short")
        parts.append(raw[at + 1 : end].decode("utf-8", "backslashreplace"))
        at = end
    return "".join(parts)
