"""HPACK (RFC 7541): header lists to blocks and back, for one direction of one connection each.

What leaves is never Huffman coded: it costs more time than it saves, and every decoder takes plain text.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from hpack.table import HeaderTable

from reachline.errors import LocalProtocolError
from reachline.proxy.http2.events import Field
from reachline.proxy.http2.frames import BrokenError
from reachline.proxy.http2.huffman import HuffmanError, decoded
from reachline.proxy.http2.limits import Code

__all__ = ["HOP", "Decoder", "Encoder", "Heard"]

HOP: Final = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})
"""Of one HTTP/1.1 connection: malformed here (RFC 9113, 8.2.2)."""
_STATIC: Final[tuple[Field, ...]] = tuple((bytes(name), bytes(value)) for name, value in HeaderTable.STATIC_TABLE)
_BY_FIELD: Final = {field: bytes((0x80 | at,)) for at, field in reversed(tuple(enumerate(_STATIC, 1))) if field[1]}
_BY_NAME: Final = {field[0]: at for at, field in reversed(tuple(enumerate(_STATIC, 1)))}
_FIRST: Final = len(_STATIC) + 1
_TABLE: Final = 4_096
"""Bytes of a table before anything is said of it (RFC 9113, 6.5.2)."""
_NAMES: Final = 256
"""Names whose beginning is kept: endpoints do not choose how much of us they fill."""
_ENTRY: Final = 32
"""Bytes that an entry costs beside its text (RFC 7541, 4.1)."""
_LONGEST: Final = 5
"""Bytes of a number: 32 bits, and no zeros without end."""
_CHANGING: Final = frozenset({
    b":path", b"age", b"content-length", b"content-range", b"etag", b"grpc-message", b"grpc-timeout", b"if-modified-since", b"if-none-match", b"last-modified",
    b"location", b"traceparent", b"x-b3-spanid", b"x-b3-traceid", b"x-envoy-expected-rq-timeout-ms", b"x-envoy-upstream-service-time", b"x-request-id",
})  # fmt: skip
"""Hardly ever said twice: an entry would push out one that is."""
_SECRET: Final = frozenset({b"authorization", b"cookie", b"proxy-authorization", b"set-cookie"})
"""Never to be kept in a table, here or behind us (RFC 7541, 7.1.3)."""
_LARGE: Final = 1_024
"""Bytes of a value that is not kept: a quarter of the table."""
_NAME: Final = re.compile(rb":?[!#$%&'*+.^_`|~0-9a-z-]+")
_BREAKS: Final = re.compile(rb"[\0\r\n]")


def _number(data: bytes, at: int, prefix: int) -> tuple[int, int]:
    """(a number that did not fit its prefix, where it ends)."""
    number, shift = prefix, 0
    for _ in range(_LONGEST):
        byte = data[at]
        at += 1
        number += (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
    raise BrokenError(Code.COMPRESSION_ERROR, "a number without end")


def _text(data: bytes, at: int) -> tuple[bytes, int]:
    first = data[at]
    at += 1
    size = first & 0x7F
    if size == 0x7F:
        size, at = _number(data, at, 0x7F)
    end = at + size
    if end > len(data):
        raise BrokenError(Code.COMPRESSION_ERROR, "text cut short")
    text = data[at:end]
    return (decoded(text) if first & 0x80 else text), end


class Heard(NamedTuple):
    """A header list: what of it is within the limits, and how much it is, over them too."""

    fields: list[Field]
    number: int
    size: int


class Decoder:
    """Blocks to header lists. Once it raised, it knows its table no more."""

    __slots__ = ("_entries", "_limit", "_most", "_size")

    def __init__(self, table: int) -> None:
        self._most: Final = max(table, _TABLE)  # a peer may not have read yet that it should be less
        self._limit = _TABLE
        self._size = 0
        self._entries: deque[Field] = deque()
        """The newest last."""

    def decode(self, block: bytes, *, most: int, count: int) -> Heard:
        """BrokenError where the block is none. Of a list over `most` bytes or `count` fields the rest is read, and not kept."""
        try:
            return self._decode(block, most, count)
        except IndexError as error:
            raise BrokenError(Code.COMPRESSION_ERROR, "a block cut short, or an entry that is not there") from error
        except HuffmanError as error:
            raise BrokenError(Code.COMPRESSION_ERROR, str(error)) from error

    def _decode(self, block: bytes, most: int, count: int) -> Heard:
        fields: list[Field] = []
        at = seen = size = 0
        end = len(block)
        while at < end:
            byte = block[at]
            if byte & 0x80:
                at += 1
                index = byte & 0x7F
                if index == 0x7F:
                    index, at = _number(block, at, 0x7F)
                field = self._entry(index)
            elif byte & 0x60 == 0x20:
                if seen:
                    raise BrokenError(Code.COMPRESSION_ERROR, "a table's size within a block")
                at = self._resize(block, at)
                continue
            else:
                field, at = self._literal(block, at, byte)
            seen += 1
            size += len(field[0]) + len(field[1])
            if size <= most and seen <= count:
                fields.append(field)
        return Heard(fields, seen, size)

    def _entry(self, index: int) -> Field:
        if index < _FIRST:
            if not index:
                raise IndexError
            return _STATIC[index - 1]
        return self._entries[_FIRST - 1 - index]

    def _literal(self, block: bytes, at: int, byte: int) -> tuple[Field, int]:
        at += 1
        prefix = 0x3F if byte & 0x40 else 0x0F
        index = byte & prefix
        if index == prefix:
            index, at = _number(block, at, prefix)
        if index:
            name = self._entry(index)[0]
        else:
            name, at = _text(block, at)
        value, at = _text(block, at)
        field = (name, value)
        if byte & 0x40:
            self._size += _ENTRY + len(name) + len(value)
            self._entries.append(field)
            if self._size > self._limit:
                self._evict()
        return field, at

    def _evict(self) -> None:
        entries = self._entries
        while self._size > self._limit:
            name, value = entries.popleft()
            self._size -= _ENTRY + len(name) + len(value)

    def _resize(self, block: bytes, at: int) -> int:
        size = block[at] & 0x1F
        at += 1
        if size == 0x1F:
            size, at = _number(block, at, 0x1F)
        if size > self._most:
            raise BrokenError(Code.COMPRESSION_ERROR, "a table larger than agreed on")
        self._limit = size
        self._evict()
        return at


def _integer(number: int, prefix: int, flags: int) -> bytes:
    if number < prefix:
        return bytes((flags | number,))
    out = bytearray((flags | prefix,))
    number -= prefix
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _string(text: bytes) -> bytes:
    size = len(text)
    return bytes((size,)) + text if size < 0x7F else _integer(size, 0x7F, 0) + text


class Encoder:
    """Header lists to blocks."""

    __slots__ = ("_added", "_by_field", "_entries", "_least", "_limit", "_most", "_names", "_size")

    def __init__(self, table: int) -> None:
        self._most: Final = table
        """Ours; a peer may make it smaller."""
        self._limit = min(table, _TABLE)
        self._least: int | None = self._limit if self._limit < _TABLE else None
        """The smallest size since the last block, which is yet to be said."""
        self._size = self._added = 0
        self._entries: deque[Field] = deque()
        """The oldest first."""
        self._by_field: dict[Field, int] = {}
        """How many there were when it was added."""
        self._names: dict[bytes, tuple[int, bytes]] = {}
        """How a literal of a sound name begins; and 0x40 where it is worth an entry."""

    def resize(self, size: int) -> None:
        """The peer's table holds so much."""
        size = min(size, self._most)
        if size != self._limit:
            self._least = size if self._least is None else min(size, self._least)
            self._limit = size
            self._evict()

    def encode(self, fields: Sequence[Field]) -> bytes:
        """A block. What only an HTTP/1.1 connection means is left out; LocalProtocolError where a field cannot be said."""
        by_field = self._by_field
        fields = self.checked(fields)
        out = self._sizes() if self._least is not None else []
        for field in fields:
            known = _BY_FIELD.get(field)
            if known is not None:
                out.append(known)
                continue
            number = by_field.get(field)
            if number is not None:
                out.append(_integer(_FIRST + self._added - number, 0x7F, 0x80))
            else:
                out.append(self._literal(field))
        return b"".join(out)

    def checked(self, fields: Sequence[Field]) -> Sequence[Field]:
        """The fields as they are said; errors as of `encode`."""
        by_field = self._by_field
        for field in fields:
            if field not in by_field and field not in _BY_FIELD and not self._is_sound(field):
                return [each for each in map(_mended, fields) if each is not None]
        return fields

    def _is_sound(self, field: Field) -> bool:
        name, value = field
        return (name in self._names or _is_name(name)) and _BREAKS.search(value) is None

    def _literal(self, field: Field) -> bytes:
        name, value = field
        begun = self._names.get(name)
        if begun is None:
            begun = _beginning(name)
            if len(self._names) < _NAMES:
                self._names[name] = begun
        flags, start = begun
        size = _ENTRY + len(name) + len(value)
        if flags != 0x40:
            return start + _string(value)
        if len(value) > _LARGE or size > self._limit:
            return _plain(name) + _string(value)
        self._added += 1
        self._entries.append(field)
        self._by_field[field] = self._added
        self._size += size
        if self._size > self._limit:
            self._evict()
        return start + _string(value)

    def _evict(self) -> None:
        entries, by_field = self._entries, self._by_field
        while self._size > self._limit:
            field = entries.popleft()
            self._size -= _ENTRY + len(field[0]) + len(field[1])
            del by_field[field]

    def _sizes(self) -> list[bytes]:
        least, self._least = self._least, None
        assert least is not None
        sizes = (least, self._limit) if least < self._limit else (self._limit,)
        return [_integer(each, 0x1F, 0x20) for each in sizes]


def _is_name(name: bytes) -> bool:
    return name not in HOP and _NAME.fullmatch(name) is not None


def _plain(name: bytes) -> bytes:
    at = _BY_NAME.get(name)
    return _integer(at, 0x0F, 0) if at else b"\0" + _string(name)


def _beginning(name: bytes) -> tuple[int, bytes]:
    at = _BY_NAME.get(name)
    if name in _CHANGING:
        return 0, _plain(name)
    if name in _SECRET:
        return 0x10, _integer(at, 0x0F, 0x10) if at else b"\x10" + _string(name)
    return 0x40, _integer(at, 0x3F, 0x40) if at else b"\x40" + _string(name)


def _mended(field: Field) -> Field | None:
    name, value = field[0].lower(), field[1]
    if name in HOP:
        return None
    if _NAME.fullmatch(name) is None or _BREAKS.search(value):
        raise LocalProtocolError("HTTP/2 cannot say a header of this name or value")
    return name, value
