"""Readings as few bytes: columns, differences, and nothing where nothing moved. Exact, integers only.

A heartbeat part repeats the same lines and probe kinds in the same order, so the second time it is named by a number, and
each column of its readings is written as the difference from the last part of that shape: a column that did not move costs
nothing, a quiet one about a byte a line. What was written is what is read, value for value.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from operator import add, sub
from typing import Final

import msgspec

from reachline.errors import JournalError
from reachline.model import Counts, Kind, LineId, Reading, Scope, VantageId

__all__ = ["Shapes"]

_REMEMBERED: Final = 4_096
"""Shapes a segment numbers: 10 000 lines by five vantages with five kinds are 2 500 parts. Later ones are written whole."""

_COUNTS: Final = len(Counts._fields)
_SCALARS: Final = Reading._fields[2:]
_WIDTH: Final = _COUNTS + len(_SCALARS)
_OPTIONAL: Final = tuple(_COUNTS + _SCALARS.index(name) for name in ("ewma_us", "p50_us", "p95_us", "jitter_us"))
_P50, _P95, _JITTER = _OPTIONAL[1:]
_VOID: Final = _COUNTS + _SCALARS.index("void")
_ABSENT: Final = -1
"""None in a column; no figure is negative."""

Column = tuple[int, ...]
Rows = tuple[tuple[LineId, Reading], ...]
_Keys = tuple[tuple[LineId, Kind], ...]


class _Shape(msgspec.Struct, array_like=True):
    """Which lines and kinds, in order, from which vantage, and the columns last seen."""

    scope: Scope
    vantage: VantageId
    keys: _Keys
    columns: tuple[Column, ...]


# A body: the shape's number (-1: not remembered), doubt, the shape itself when new, deflated?, packed columns.
_Body = tuple[int, int, tuple[VantageId, _Keys] | None, bool, bytes]

_ENCODE: Final = msgspec.msgpack.Encoder().encode
_ARRAY: Final = b"\xdd"
"""msgpack's mark of an array whose length follows in four bytes."""
_BODY: Final = msgspec.msgpack.Decoder(_Body)
_SHAPES: Final = msgspec.msgpack.Decoder(list[_Shape])


class Shapes:
    """The shapes of one segment so far. One writer, or one reader; both must see every part in the same order."""

    def __init__(self) -> None:
        self._shapes: list[_Shape] = []
        self._numbers: dict[tuple[Scope, VantageId, _Keys], int] = {}

    def write(self, scope: Scope, vantage: VantageId, doubt: int, rows: Rows) -> bytes:
        """The part as bytes; the shape remembers its columns."""
        keys = tuple([(line, reading.kind) for line, reading in rows])
        columns = _columns(rows)
        number = self._numbers.get((scope, vantage, keys))
        if number is None:
            number = self._remember(_Shape(scope, vantage, keys, columns))
            return _body(number, doubt, (vantage, keys), _pack(columns, _zeros(len(rows))))
        shape = self._shapes[number]
        packed = _pack(columns, shape.columns)
        shape.columns = columns
        return _body(number, doubt, None, packed)

    def read(self, scope: Scope, body: bytes) -> tuple[VantageId, int, Rows]:
        """Vantage, doubt and readings of a part written by `write`."""
        number, doubt, new, deflated, payload = _BODY.decode(body)
        packed = zlib.decompress(payload) if deflated else payload
        if new is None:
            shape = self._shapes[number]
            shape.columns = _unpack(packed, shape.columns)
        else:
            vantage, keys = new
            shape = _Shape(scope, vantage, keys, _unpack(packed, _zeros(len(keys))))
            if number >= 0 and self._remember(shape) != number:
                raise JournalError(f"part of shape {number} out of order")
        return shape.vantage, doubt, _rows(shape)

    def freeze(self) -> Iterator[bytes]:
        """Every shape with its columns as they are at the call, in pieces; joined they are what `thaw` reads."""
        held = [(shape.scope, shape.vantage, shape.keys, shape.columns) for shape in self._shapes]
        return _frozen(held)

    @classmethod
    def thaw(cls, frozen: bytes) -> Shapes:
        """The shapes as they were."""
        shapes = cls()
        for shape in _SHAPES.decode(zlib.decompress(frozen)):
            shapes._remember(shape)
        return shapes

    def _remember(self, shape: _Shape) -> int:
        if len(self._shapes) >= _REMEMBERED:
            return -1
        self._numbers[shape.scope, shape.vantage, shape.keys] = len(self._shapes)
        self._shapes.append(shape)
        return len(self._shapes) - 1


def _frozen(shapes: Sequence[tuple[Scope, VantageId, _Keys, tuple[Column, ...]]]) -> Iterator[bytes]:
    press = zlib.compressobj(1)
    yield press.compress(_ARRAY + len(shapes).to_bytes(4, "big"))
    for shape in shapes:
        yield press.compress(_ENCODE(shape))
    yield press.flush()


def _body(number: int, doubt: int, new: tuple[VantageId, _Keys] | None, packed: bytes) -> bytes:
    # Under 64 bytes zlib's own frame eats what it saves.
    deflated = len(packed) >= 64
    return _ENCODE((number, doubt, new, deflated, zlib.compress(packed, 9) if deflated else packed))


def _zeros(rows: int) -> tuple[Column, ...]:
    return ((0,) * rows,) * _WIDTH


def _columns(rows: Rows) -> tuple[Column, ...]:
    """Readings turned by a quarter: one tuple per field, counts first, None as `_ABSENT`."""
    if not rows:
        return _zeros(0)
    _, counts, *scalars = zip(*[reading for _, reading in rows], strict=True)
    columns = [*zip(*counts, strict=True), *scalars]
    for index in _OPTIONAL:
        if None in columns[index]:
            columns[index] = tuple([_ABSENT if value is None else value for value in columns[index]])
    columns[_VOID] = tuple(map(int, columns[_VOID]))
    return tuple(columns)


def _rows(shape: _Shape) -> Rows:
    if not shape.keys:
        return ()
    columns: list[Sequence[int | None]] = list(shape.columns)
    for index in _OPTIONAL:
        if _ABSENT in columns[index]:
            columns[index] = [None if value == _ABSENT else value for value in columns[index]]
    columns[_VOID] = list(map(bool, shape.columns[_VOID]))
    lines, kinds = zip(*shape.keys, strict=True)
    counts = map(Counts._make, zip(*shape.columns[:_COUNTS], strict=True))
    readings = map(Reading._make, zip(kinds, counts, *columns[_COUNTS:], strict=True))
    return tuple(zip(lines, readings, strict=True))


def _pack(columns: tuple[Column, ...], previous: tuple[Column, ...]) -> bytes:
    """A mask of the columns that moved, then their differences, column by column."""
    mask = 0
    out = bytearray()
    for index, (now, before) in enumerate(zip(columns, previous, strict=True)):
        if now != before:
            mask |= 1 << index
    _varints(out, (mask,))
    for index in range(_WIDTH):
        if mask >> index & 1:
            expected = _expected(index, columns, previous)
            _varints(out, [d + d if d >= 0 else -d - d - 1 for d in map(sub, columns[index], expected)])
    return bytes(out)


def _unpack(packed: bytes, previous: tuple[Column, ...]) -> tuple[Column, ...]:
    values = _values(packed)
    mask, position, rows = values[0], 1, len(previous[0])
    columns = list(previous)
    for index in range(_WIDTH):
        if mask >> index & 1:
            expected = _expected(index, columns, previous)
            moved = [-(z >> 1) - 1 if z & 1 else z >> 1 for z in values[position : position + rows]]
            columns[index] = tuple(map(add, moved, expected))
            position += rows
            if len(columns[index]) != rows:
                raise JournalError("a part ends inside a column")
    return tuple(columns)


def _expected(index: int, columns: Sequence[Column], previous: Sequence[Column]) -> Iterable[int]:
    """What a column would be if nothing surprising happened: as before; jitter is P95 - P50 where all answered."""
    if index == _JITTER:
        return map(sub, columns[_P95], columns[_P50])
    return previous[index]


def _varints(out: bytearray, values: Iterable[int]) -> None:
    """Append unsigned integers, seven bits a byte, low bits first."""
    append = out.append
    for value in values:
        while value > 0x7F:
            append(value & 0x7F | 0x80)
            value >>= 7
        append(value)


def _values(packed: bytes) -> list[int]:
    if packed.isascii():
        return [*packed]  # nearly always: no difference is so large that it takes a second byte
    values = []
    value = shift = 0
    for byte in packed:
        if byte & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
        else:
            values.append(value | byte << shift)
            value = shift = 0
    return values
