"""What a call's end does to its line's own breaker in one client, and what the log says of it. Values in, values out."""

from __future__ import annotations

import logging
from typing import Final

from reachline.core.local import LocalBreaker, abandoned, failed, succeeded
from reachline.core.rules import LocalRules
from reachline.model import Gate, LineId
from reachline.upstream.outcome import Column

__all__ = ["announce", "judged"]

_log: Final = logging.getLogger("reachline.upstream.cluster")


def judged(
    row: LocalBreaker, column: Column, now_ms: int, rules: LocalRules, *, may_trip: bool, proven: bool
) -> LocalBreaker:
    """The breaker after a call that ended so. `proven`: the center, silent, holds the line open, and a call went well."""
    match column:
        case Column.OK | Column.ERRORS:
            return succeeded(row, now_ms, rules, proven=proven)
        case Column.FAILED | Column.LATE:
            return failed(row, now_ms, rules, may_trip=may_trip)
        case Column.NONE:
            return abandoned(row, now_ms)


def announce(line: LineId, before: LocalBreaker, after: LocalBreaker, now_ms: int) -> None:
    """Log that a breaker opened or closed."""
    if after.gate is Gate.OPEN and after.generation > before.generation:
        wait = (after.until_ms - now_ms) / 1_000
        _log.warning("local_breaker_opened", extra={"line": line, "trips": after.trips, "wait": wait})
    elif after.gate is Gate.CLOSED:
        _log.info("local_breaker_closed", extra={"line": line})
