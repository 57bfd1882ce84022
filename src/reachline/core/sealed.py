"""Rows in bytes, for the seal of a tick: the same for equal rows on any machine, and cheap, for it is made of every row that moved.

Lines that are alike share one row (`core.alike`): its bytes are made once, and each line adds its name. What most rows have none of (a breaker that was ever used, sums, orders, calls) is left out where it is as in a new row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from struct import Struct
from typing import Final

from reachline.core.breaker import CLOSED
from reachline.core.orders import NOTHING
from reachline.core.row import Row
from reachline.core.usual import NEVER
from reachline.model import LineId

__all__ = ["packed", "sealed"]

_HEAD: Final = Struct("<17q").pack
_BREAKER: Final = Struct("<14q").pack
_USUAL: Final = Struct("<5q").pack
_LENGTH: Final = Struct("<I").pack


@lru_cache(maxsize=64)
def _of(count: int) -> Callable[..., bytes]:
    """So many numbers in bytes."""
    return Struct(f"<{count}q").pack


def sealed(lines: Iterable[LineId], rows: Mapping[LineId, Row]) -> bytes:
    """`packed` of each of these lines, one after the other."""
    known: dict[tuple[int, int], tuple[bytes, bytes]] = {}
    found: list[bytes] = []
    for line in lines:
        row, name = rows[line], line.encode()
        alike = known.get(key := (id(row), len(name)))
        if alike is None:
            alike = known[key] = _around(row, len(name))
        found += alike[0], name, alike[1]
    return b"".join(found)


def packed(line: LineId, row: Row) -> bytes:
    """All that is remembered of a line. Every length and every left-out part stands in the head: no two rows share their bytes."""
    name = line.encode()
    before, after = _around(row, len(name))
    return before + name + after


def _around(row: Row, length: int) -> tuple[bytes, bytes]:
    """What stands before a line's name of this length, and behind it."""
    # Taken apart at once: each attribute costs a sixth of that.
    (judged, breaker, zone, zone_ms, judged_ms, blind, held, why, since_ms, decisions,
     (sums, holds), obeys, bad_ms, by, within, usual, ok_ms, lively, recent) = row  # fmt: skip
    health, bad, down, good, faults = judged
    reason, guard, incident = why.encode(), by.encode(), within.encode()
    parts, rest, ordered = blind | held << 1 | lively << 2 | len(sums) << 8 | len(recent) << 16, b"", b""
    if breaker is not CLOSED and breaker != CLOSED:
        parts |= 1 << 3
        rest += _BREAKER(breaker.gate._value_, *breaker[1:])
    if sums or recent:
        rest += _of(len(sums) + len(recent))(*sums, *recent)
    if usual is not NEVER and usual != NEVER:
        parts |= 1 << 4
        rest += _USUAL(*usual)
    if obeys is not NOTHING and obeys != NOTHING:
        parts |= 1 << 5
        ordered = json.dumps(obeys, separators=(",", ":")).encode()
    head = _HEAD(
        health._value_, bad, down, good, faults, zone._value_, zone_ms, judged_ms, since_ms, decisions, bad_ms, ok_ms, holds,
        parts, length, len(reason), len(guard),
    )  # fmt: skip
    return head + rest + _LENGTH(len(incident)), reason + guard + incident + ordered
