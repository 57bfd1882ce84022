"""What a call's end does to its line's own breaker in one client, and what the log says of it. Values in, values out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Final

from reachline.core.local import LocalBreaker, abandoned, failed, succeeded
from reachline.core.regroup import Admission
from reachline.core.rules import LocalRules
from reachline.model import Gate, LineId, Seconds
from reachline.upstream.listing import Pick
from reachline.upstream.outcome import Column

if TYPE_CHECKING:
    from reachline.core.outlier_rules import OutlierRules
    from reachline.upstream.ejecting import Ejecting

__all__ = ["announce", "announce_misuse", "broken", "ejecting", "judged"]

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


def broken(picks: Sequence[Pick], found: Sequence[Admission], rows: Mapping[LineId, LocalBreaker]) -> list[Pick]:
    """The picks, each with the generation of its line's breaker, and whether it is the line's one trial."""
    made = list(picks)
    for place, (pick, each) in enumerate(zip(picks, found, strict=True)):
        row = rows.get(pick.line)
        if row is not None or each.is_trial:
            made[place] = pick._replace(generation=row.generation if row else 0, is_trial=each.is_trial)
    return made


def ejecting(rules: OutlierRules | None, clock: Callable[[], Seconds], rng: Random) -> Ejecting | None:
    """Outlier detection of this process, where rules ask for it."""
    if rules is None:
        return None
    from reachline.upstream.ejecting import Ejecting  # noqa: PLC0415  (only who asks for it needs it)

    return Ejecting(rules, clock=clock, rng=rng)


def announce_misuse(log: logging.Logger, cluster: str, method: str, argument: object) -> None:
    """Log that a caller's argument made no sense."""
    extra = {"cluster": cluster, "method": method, "argument": type(argument).__name__}
    log.warning("argument_ignored", extra=extra)


def announce(line: LineId, before: LocalBreaker, after: LocalBreaker, now_ms: int) -> None:
    """Log that a breaker opened or closed."""
    if after.gate is Gate.OPEN and after.generation > before.generation:
        wait = (after.until_ms - now_ms) / 1_000
        _log.warning("local_breaker_opened", extra={"line": line, "trips": after.trips, "wait": wait})
    elif after.gate is Gate.CLOSED:
        _log.info("local_breaker_closed", extra={"line": line})
