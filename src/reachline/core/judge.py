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
_OPEN: Final = Gate.OPEN
_UNKNOWN: Final = Health.UNKNOWN
_HEALTHY: Final = Health.HEALTHY
_DEGRADED: Final = Health.DEGRADED
_SICK: Final = (Health.DEGRADED, Health.UNHEALTHY)
"""Looked up once: an enum's attribute costs eight times as much as a name, and this runs for every line of a tick."""
_new: Final = tuple.__new__
"""What a named tuple's own constructor calls, without the call."""

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
    health, bad, down, good, faults_micro = row
    degraded, failed, recover, lone_failed = patience
    if zone is _H:
        bad, down, good = 0, 0, good + 1 if good < recover else recover
    else:  # F counts toward degraded as well; every other zone ends a row of F
        most = max(degraded, failed, lone_failed)
        bad, down, good = min(bad + 1, most), min(down + 1, most) if zone is _F else 0, 0
    if gate is _OPEN:
        return Judgement(health, bad, down, good, faults_micro)
    if gate is _CLOSED:
        if bad >= degraded and health in (_UNKNOWN, _HEALTHY):
            health = _DEGRADED
        elif good >= recover:
            health = _HEALTHY
    grown_ms = elapsed_ms if zone is _H else elapsed_ms * (1_000 + _HASTE * severity_milli) // 1_000
    found = _faults(row, health, zone, elapsed_ms=grown_ms, gate=gate, rules=faults)
    return _new(Judgement, (health, bad, down, good, found))


def at_trial(row: Judgement) -> Judgement:
    """The row as its line enters the half-open trial: old faults are not held against it, old anger neither."""
    return row._replace(faults=0, bad=0, down=0)


def after_close(row: Judgement, patience: Patience) -> Judgement:
    """The row as its breaker closes, or as the guard lets go of it: HEALTHY if the probes agree, else DEGRADED."""
    health = Health.HEALTHY if row.good >= patience.recover else Health.DEGRADED
    return row._replace(health=health, down=0)


def _faults(before: Judgement, after: Health, zone: Zone, *, elapsed_ms: int, gate: Gate, rules: FaultRules) -> int:
    """In trial and ramp the step alone bounds the share: a degraded tick holds the step and adds no fault."""
    if zone is _H:
        if not before.faults:
            return 0
        left = before.faults * power(rules.fade, elapsed_ms) // ONE
        return left if left >= rules.forget else 0
    if after is _DEGRADED and before.health is not _DEGRADED:
        return min(before.faults + FAULT, rules.cap)
    if gate is _CLOSED and before.health in _SICK:
        return min(before.faults + FAULT * elapsed_ms // rules.per_ms, rules.cap)
    return before.faults
