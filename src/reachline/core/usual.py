"""A line's usual failure rate, learnt from its healthy traffic: what a line that returns is held against. Pure, bounded integers."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["NEVER", "Usual", "forgotten", "learnt", "rate_milli"]

_SPAN_MS: Final = 30_000
"""Calls are believed a span later, if the line was healthy to its end: so a fault that begins teaches nothing."""
_MEMORY: Final = 100_000
"""Calls remembered, the newest counting most: at 0.4 % this many know the rate to a twentieth."""
_LEAST: Final = 1_000
"""Fewer calls say nothing of rates around 1 %."""
_MOST_MILLI: Final = 25
"""Twice this is 5 %, where a line has failed by any table: what is usual never excuses that."""

_new: Final = tuple.__new__
"""What a named tuple's own constructor calls, without the call."""


class Usual(NamedTuple):
    """Calls and failures believed, and those of the span that still runs."""

    calls: int = 0
    failed: int = 0
    new_calls: int = 0
    new_failed: int = 0
    span: int = 0
    """Number of the span that still runs, since the journal's epoch."""


NEVER: Final = Usual()
"""Nothing known."""


def learnt(row: Usual, *, calls: int, failed: int, now_ms: int) -> Usual:
    """With some calls more, of which `failed` failed, made while the line was healthy. Inside a span the order cannot matter."""
    now = now_ms // _SPAN_MS
    known, bad, new_calls, new_failed, span = row
    if now > span:
        known, bad, new_calls, new_failed, _ = _believed(row)
        span = now
    return _new(Usual, (known, bad, new_calls + calls, new_failed + failed, span))


def forgotten(row: Usual) -> Usual:
    """Without the span that still runs: the line is not healthy any more, and nobody knows since when."""
    return row._replace(new_calls=0, new_failed=0) if row.new_calls else row


def rate_milli(row: Usual) -> int:
    """The usual failure rate in 1/1000, rounded up, at most 25; 0 while too little is known."""
    if row.calls < _LEAST:
        return 0
    return min(_MOST_MILLI, -(-1_000 * row.failed // row.calls))


def _believed(row: Usual) -> Usual:
    calls, failed = row.calls + row.new_calls, row.failed + row.new_failed
    while calls > _MEMORY:
        calls, failed = calls // 2, failed // 2
    return Usual(calls, failed)
