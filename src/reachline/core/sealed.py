"""A row in bytes, for the seal of a tick: the same for equal rows on any machine, and cheap, for it is made of every row that moved.

What most rows have none of (a breaker that was ever used, sums, orders, calls) is left out where it is as in a new row.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Final

from reachline.core.breaker import CLOSED
from reachline.core.orders import NOTHING
from reachline.core.row import Row
from reachline.core.usual import NEVER
from reachline.model import LineId

__all__ = ["packed"]

_HEAD: Final = Struct("<17q").pack
_BREAKER: Final = Struct("<14q").pack
_USUAL: Final = Struct("<5q").pack


@lru_cache(maxsize=64)
def _of(count: int) -> Callable[..., bytes]:
    """So many numbers in bytes."""
    return Struct(f"<{count}q").pack


def packed(line: LineId, row: Row) -> bytes:
    """All that is remembered of a line. Every length and every left-out part stands in the head: no two rows share their bytes."""
    health, bad, down, good, faults = row.judgement
    name, reason, guard, incident = line.encode(), row.reason.encode(), row.guard.encode(), row.incident.encode()
    parts, rest, obeys = _seldom(row)
    return b"".join(
        (
            _HEAD(
                health._value_,
                bad,
                down,
                good,
                faults,
                row.zone._value_,
                row.zone_ms,
                row.judged_ms,
                row.since_ms,
                row.decisions,
                row.bad_ms,
                row.ok_ms,
                row.asked.held,
                parts,
                len(name),
                len(reason),
                len(guard),
            ),
            rest,
            len(incident).to_bytes(4, "little"),
            name,
            reason,
            guard,
            incident,
            obeys,
        )
    )


def _seldom(row: Row) -> tuple[int, bytes, bytes]:
    """What most rows have none of: which parts there are, those that are numbers, and its orders."""
    breaker, sums, usual = row.breaker, row.asked.sums, row.usual
    rest, obeys = b"", b""
    parts = row.blind | row.held << 1 | row.lively << 2 | len(sums) << 8 | len(row.recent) << 16
    if breaker is not CLOSED and breaker != CLOSED:
        parts |= 1 << 3
        rest += _BREAKER(breaker.gate._value_, *breaker[1:])
    if sums:
        rest += _of(len(sums))(*sums)
    if row.recent:
        rest += _of(len(row.recent))(*row.recent)
    if usual is not NEVER and usual != NEVER:
        parts |= 1 << 4
        rest += _USUAL(*usual)
    if row.obeys is not NOTHING and row.obeys != NOTHING:
        parts |= 1 << 5
        obeys = json.dumps(row.obeys, separators=(",", ":")).encode()
    return parts, rest, obeys
