"""Drills: lines that are well are judged as if they failed or were slow, so that everything that follows is the ordinary rules' doing.

A drill never makes a line better than it is, and leaves alone what is out by itself. What is measured meanwhile is kept: where a
drill ends, its lines stand as their own evidence says, at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from reachline.core.breaker import Breaker
from reachline.core.judge import NEW, Judgement, after_close, at_trial
from reachline.core.orders import Order, order_of
from reachline.core.row import Row, Stepped, step
from reachline.core.rules import FAULT, Limit, Patience, Rules
from reachline.core.told import Told
from reachline.model import Gate, Health, LineId, Zone

if TYPE_CHECKING:
    from reachline.core.ledger import Ledger

__all__ = ["FAILED", "OVER", "SLOWED", "acted", "held_of", "is_played", "let_go", "played", "verdict"]

FAILED: Final = "drill.failed"
SLOWED: Final = "drill.slowed"
OVER: Final = "drill.over"
"""Rules of decisions that a drill made."""

_MICRO: Final = 1_000
_TIMES: Final = ("p95", "ewma")
"""Metrics that tell how long answers take."""
_WORSE: Final = {Zone.N: -1, Zone.H: 0, Zone.D: 1, Zone.F: 2}


def verdict(order: Order, limits: Iterable[Limit]) -> Zone:
    """What the drill holds of its lines: failed, or what these limits say of answers that take so long."""
    if not order.slow_ms:
        return Zone.F
    taken_us, found = _MICRO * order.slow_ms, Zone.H
    for limit in limits:
        if limit.metric in _TIMES:
            if limit.failed_enter is not None and taken_us >= limit.failed_enter:
                return Zone.F
            if limit.degraded_enter is not None and taken_us >= limit.degraded_enter:
                found = Zone.D
    return found


def held_of(ledger: Ledger, order: Order, line: LineId, now_ms: int) -> Zone:
    """What the drill holds of this line, by the line's own limits: the mildest, where its probe kinds have different ones."""
    own = ledger.poll.habits.limits(line, now_ms=now_ms, rules=ledger.rules)
    return min(
        (verdict(order, limits) for limits in own.values() or [ledger.rules.limits]), key=lambda zone: zone.value
    )


def acted(ledger: Ledger, line: LineId, told: Told, now_ms: int) -> Stepped | None:
    """The line's step of this tick where a drill is played on it, else None."""
    number = told.row.obeys.drill
    order = order_of(ledger.book, number) if number else None
    if order is None:
        return None
    return played(line, told, order, held_of(ledger, order, line, now_ms), now_ms=now_ms, rules=ledger.rules)


def is_played(row: Row) -> bool:
    """Whether a drill acts on the row: not where its breaker has moved by the line's own fault."""
    return bool(row.obeys.drill) and (row.breaker.gate is Gate.CLOSED or row.reason in (FAILED, SLOWED))


def played(line: LineId, told: Told, order: Order, zone: Zone, *, now_ms: int, rules: Rules) -> Stepped | None:
    """The line's step with the drill's verdict, or None where its own is as bad, or the drill has nothing to say."""
    truth, row = told.found.zone, told.row
    if not is_played(row) or _WORSE[zone] <= max(_WORSE[truth], 0):
        return None
    # A line that fails has no successes either, by which the guard would hold it or panic let it in.
    staged = row._replace(ok_ms=0)
    found = told.found._replace(zone=zone, is_seconded=True)
    done = step(line, staged, found, votes=tuple, now_ms=now_ms, rules=rules, sums=told.sums)
    after = done.row._replace(zone=row.zone, zone_ms=row.zone_ms)
    if truth is not Zone.N:
        after = after._replace(zone=truth, zone_ms=now_ms)
    if after.breaker.gate is Gate.OPEN:
        after = after._replace(breaker=after.breaker._replace(until_ms=order.until_ms or 0))
    return Stepped(after, SLOWED if order.slow_ms else FAILED, done.wants)


def let_go(row: Row, *, patience: Patience, blind_ms: int, now_ms: int) -> Row:
    """The row once its drill is over: as the newest verdict has it, without trial. One that failed meanwhile stays out."""
    zone = row.zone if now_ms - row.zone_ms <= blind_ms else Zone.N
    if row.reason not in (FAILED, SLOWED) and not (row.held and zone is Zone.H):
        return row
    if zone is Zone.F:
        waiting = row.breaker._replace(until_ms=now_ms) if row.breaker.gate is Gate.OPEN else row.breaker
        return row._replace(breaker=waiting, reason=OVER)
    breaker, judged = row.breaker, after_close(at_trial(row.judgement), patience)
    if breaker.gate is Gate.OPEN:
        breaker = Breaker(since_ms=now_ms, reopens=breaker.reopens, window=breaker.window)
    if zone is Zone.H:
        judged = Judgement(Health.HEALTHY, good=patience.recover)
    elif zone is Zone.D:
        judged = Judgement(Health.DEGRADED, bad=patience.degraded, faults=FAULT)
    elif not row.zone_ms:
        judged = NEW
    bad_ms = 0 if zone is Zone.H else row.bad_ms
    return row._replace(breaker=breaker, judgement=judged, held=False, bad_ms=bad_ms, reason="")
