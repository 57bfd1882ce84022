"""Patience: from one zone a tick to a health, and the fault counter that costs weight. Knows no breaker, only its gate."""

from __future__ import annotations

from typing import Final, NamedTuple

from reachline.core.rules import FAULT, ONE, FaultRules, Patience, power
from reachline.model import Gate, Health, Zone

__all__ = ["NEW", "Judgement", "after_close", "at_trial", "judge", "wants_trip"]


class Judgement(NamedTuple):
    """What the judge remembers of a line. Counters stop at their threshold: a healthy line's row does not change."""

    health: Health = Health.UNKNOWN
    bad: int = 0
    """Ticks in a row at D or F…"""
    down: int = 0
    """…and at F alone…"""
    good: int = 0
    """…and at H."""
    faults: int = 0
    """In 1/1 000 000 fault."""


NEW: Final = Judgement()

_H: Final = Zone.H
_F: Final = Zone.F
_N: Final = Zone.N
_CLOSED: Final = Gate.CLOSED
"""Looked up once: an enum's attribute costs eight times as much as a name, and this runs for every line of a tick."""

_HASTE: Final = 4
"""A line on the edge of failed gathers 1 + 4 times the faults of one that has just become degraded."""


def wants_trip(row: Judgement, patience: Patience, *, lone: bool) -> bool:
    """F in a row often enough to open the breaker; a lone vantage needs more."""
    return row.down >= (patience.lone_failed if lone else patience.failed)


def judge(
    row: Judgement,
    zone: Zone,
    elapsed_ms: int,
    *,
    gate: Gate,
    patience: Patience,
    faults: FaultRules,
    severity_milli: int = 0,
) -> Judgement:
    """The row after one tick of `zone` that lasted `elapsed_ms`. N changes nothing.

    `severity_milli` is how far the line is from degraded to failed: its faults grow up to five times as fast.

    While the gate is open no count changes health or faults; until it closes again, UNHEALTHY is left by nobody here.
    """
    if zone is _N:
        return row
    counted = _counted(row, zone, patience)
    if gate is Gate.OPEN:
        return counted
    counted = _with_health(counted, gate, patience)
    grown_ms = elapsed_ms if zone is _H else elapsed_ms * (1_000 + _HASTE * severity_milli) // 1_000
    found = _faults(row, counted, zone, elapsed_ms=grown_ms, gate=gate, rules=faults)
    return counted if found == counted.faults else counted._replace(faults=found)


def at_trial(row: Judgement) -> Judgement:
    """The row as its line enters the half-open trial: old faults are not held against it, old anger neither."""
    return row._replace(faults=0, bad=0, down=0)


def after_close(row: Judgement, patience: Patience) -> Judgement:
    """The row as its breaker closes, or as the guard lets go of it: HEALTHY if the probes agree, else DEGRADED."""
    health = Health.HEALTHY if row.good >= patience.recover else Health.DEGRADED
    return row._replace(health=health, down=0)


def _counted(row: Judgement, zone: Zone, patience: Patience) -> Judgement:
    """F counts toward degraded as well; every other zone ends a row of F."""
    if zone is _H:
        return Judgement(row.health, 0, 0, min(row.good + 1, patience.recover), row.faults)
    down = _more(row.down, patience) if zone is _F else 0
    return Judgement(row.health, _more(row.bad, patience), down, 0, row.faults)


def _more(count: int, patience: Patience) -> int:
    return min(count + 1, max(patience.degraded, patience.failed, patience.lone_failed))


def _with_health(row: Judgement, gate: Gate, patience: Patience) -> Judgement:
    if gate is not _CLOSED:
        return row
    if row.bad >= patience.degraded and row.health in (Health.UNKNOWN, Health.HEALTHY):
        return row._replace(health=Health.DEGRADED)
    if row.good >= patience.recover and row.health is not Health.HEALTHY:
        return row._replace(health=Health.HEALTHY)
    return row


def _faults(before: Judgement, after: Judgement, zone: Zone, *, elapsed_ms: int, gate: Gate, rules: FaultRules) -> int:
    """In trial and ramp the step alone bounds the share: a degraded tick holds the step and adds no fault."""
    if zone is _H:
        if not before.faults:
            return 0
        left = before.faults * power(rules.fade, elapsed_ms) // ONE
        return left if left >= rules.forget else 0
    if after.health is Health.DEGRADED and before.health is not Health.DEGRADED:
        return min(before.faults + FAULT, rules.cap)
    if gate is _CLOSED and before.health in (Health.DEGRADED, Health.UNHEALTHY):
        return min(before.faults + FAULT * elapsed_ms // rules.per_ms, rules.cap)
    return before.faults
