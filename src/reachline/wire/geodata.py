"""Lists of names and of networks as Xray's and V2Ray's `geosite.dat` and `geoip.dat` hold them; no schema compiler for six messages.

A file holds a thousand lists, of which a document names a few: the others are stepped over. Bytes that are no such file are
`RemoteProtocolError`.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from reachline.errors import RemoteProtocolError

__all__ = ["Kind", "Networks", "Site", "codes", "networks", "sites"]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
"""Wire types."""
_MAX_VARINT: Final = 10
_SIZES: Final = {_FIXED64: 8, _FIXED32: 4}
_BITS: Final = {4: 32, 16: 128}
"""Of an address, by its bytes."""


class Kind(IntEnum):
    """How an entry of a list of names is meant: `xray.common.geodata.Domain.Type`."""

    KEYWORD = 0
    REGEXP = 1
    DOMAIN = 2
    FULL = 3


class Site(NamedTuple):
    """One entry; `attributes` are those that it has."""

    kind: Kind
    value: str
    attributes: frozenset[str]


class Networks(NamedTuple):
    """One list: addresses as numbers with the length of their prefix, 4 and 6 apart."""

    four: tuple[tuple[int, int], ...]
    six: tuple[tuple[int, int], ...]
    is_reversed: bool
    """It means all addresses that are not in it."""


def codes(data: bytes) -> tuple[str, ...]:
    """The lists that a file holds, in upper case."""
    return tuple(code for code, _ in _entries(data))


def sites(data: bytes, code: str, attributes: str = "") -> tuple[Site, ...] | None:
    """A list of names by its code in any case; with `attributes` (parted by `@`) only what has all of them. None: no such list."""
    wanted = frozenset(each for each in attributes.lower().split("@") if each)
    if (entry := _entry(data, code)) is None:
        return None
    found = (_site(value) for number, value in _fields(entry) if number == 2 and isinstance(value, bytes))
    return tuple(site for site in found if wanted <= site.attributes)


def networks(data: bytes, code: str) -> Networks | None:
    """A list of networks by its code in any case; None: there is no such list."""
    if (entry := _entry(data, code)) is None:
        return None
    four: list[tuple[int, int]] = []
    six: list[tuple[int, int]] = []
    is_reversed = False
    for number, value in _fields(entry):
        if number == 2 and isinstance(value, bytes):
            size, address, prefix = _network(value)
            (four if size == 4 else six).append((address, prefix))
        elif number == 3 and isinstance(value, int):
            is_reversed = bool(value)
    return Networks(tuple(four), tuple(six), is_reversed)


def _entry(data: bytes, code: str) -> bytes | None:
    wanted = code.upper()
    return next((entry for name, entry in _entries(data) if name == wanted), None)


def _entries(data: bytes) -> Iterator[tuple[str, bytes]]:
    for number, value in _fields(data):
        if number == 1 and isinstance(value, bytes):
            yield _text(next((each for at, each in _fields(value) if at == 1), b"")).upper(), value


def _site(data: bytes) -> Site:
    kind, value, attributes = 0, "", set()
    for number, field in _fields(data):
        if number == 1 and isinstance(field, int):
            kind = field
        elif number == 2:
            value = _text(field)
        elif number == 3 and isinstance(field, bytes):
            attributes.add(_text(next((each for at, each in _fields(field) if at == 1), b"")).lower())
    try:
        return Site(Kind(kind), value, frozenset(attributes))
    except ValueError:
        raise RemoteProtocolError(f"an entry of kind {kind}, which there is not") from None


def _network(data: bytes) -> tuple[int, int, int]:
    address, prefix = b"", 0
    for number, field in _fields(data):
        if number == 1 and isinstance(field, bytes):
            address = field
        elif number == 2 and isinstance(field, int):
            prefix = field
    bits = _BITS.get(len(address))
    if bits is None or prefix > bits:
        raise RemoteProtocolError(f"a network of {len(address)} bytes and a prefix of {prefix}")
    return len(address), int.from_bytes(address), prefix


def _text(value: bytes | int) -> str:
    try:
        return value.decode() if isinstance(value, bytes) else ""
    except UnicodeDecodeError:
        raise RemoteProtocolError("a text that is not UTF-8") from None


def _fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Number and value of each field; those of fixed size are stepped over."""
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield number, value
        elif wire == _BYTES:
            size, at = _varint(data, at)
            if size > end - at:
                raise RemoteProtocolError("ends within a field")
            yield number, data[at : at + size]
            at += size
        elif wire in _SIZES:
            at += _SIZES[wire]
        else:
            raise RemoteProtocolError(f"a field of wire type {wire}")
    if at > end:
        raise RemoteProtocolError("ends within a field")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(_MAX_VARINT):
        if at >= len(data):
            raise RemoteProtocolError("ends within a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return value, at
    raise RemoteProtocolError("a number of more than ten bytes")
