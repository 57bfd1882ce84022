"""What a drill would do, without doing it: a copy of the ledger goes on with the drill, while everything else stays as it is.

The copy decides by the ordinary rules, tick after tick, until nothing moves any more; nothing of it is published.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from reachline.core.ledger import Ledger
from reachline.core.orders import Order
from reachline.core.preview import Effect, Foreseen
from reachline.core.rules import FAULT
from reachline.core.twin import twin
from reachline.model import LineId

__all__ = ["Load", "Rehearsed", "rehearsed"]

_MOST: Final = 60
"""Ticks that are looked ahead beyond those by which faults are at their cap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one line would carry, in 1/1000 call a second, before and during; `capacity` in calls a second, None where unknown."""

    line: LineId
    before: int
    during: int
    capacity: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsed:
    """The scope before the drill and once it has come to rest, and how long that takes."""

    seen: Foreseen
    settles_ms: int
    """From the order to the last change of a weight."""
    loads: tuple[Load, ...]
    """Empty where nobody knows what the scope is asked to carry."""
    held: tuple[tuple[LineId, str], ...]
    """Lines that the guard would keep, and by which rule."""


def rehearsed(ledger: Ledger, order: Order, now_ms: int) -> Rehearsed:
    """The drill on this ledger, which it uses up: give it a twin."""
    plain = twin(ledger)
    plain.close(now_ms)
    ledger.order(order)
    at_ms, settles_ms, calm = now_ms, 0, 0
    patience, faults, tick_ms = ledger.rules.patience, ledger.rules.faults, ledger.rules.tick_ms
    most = _MOST + faults.cap * faults.per_ms // (FAULT * tick_ms)
    until_ms = order.until_ms if order.until_ms is not None else now_ms + most * tick_ms
    for _ in range(most):
        if at_ms >= until_ms or calm > max(patience.degraded, patience.failed) + 1:
            break
        # Nothing new is heard meanwhile, and nobody shall be called blind for it.
        ledger.poll.heard_ms = dict.fromkeys(ledger.poll.heard_ms, at_ms)
        was, had = _weights(ledger), _faults(ledger)
        ledger.close(at_ms)
        is_same = _weights(ledger) == was
        # Faults that still grow will cost a point some ticks later.
        calm = calm + 1 if is_same and _faults(ledger) == had else 0
        settles_ms = settles_ms if is_same else at_ms - now_ms
        at_ms += tick_ms
    return _found(plain, ledger, settles_ms)


def _weights(ledger: Ledger) -> dict[LineId, int]:
    return {line: standing.weight for line, standing in ledger.board.standings.items()}


def _faults(ledger: Ledger) -> dict[LineId, int]:
    return {line: row.judgement.faults for line, row in ledger.rows.items() if row.judgement.faults}


def _found(plain: Ledger, ledger: Ledger, settles_ms: int) -> Rehearsed:
    before, after = plain.board.standings, ledger.board.standings
    effects = tuple(Effect(line=line, before=before[line], after=after[line]) for line in sorted(after))
    return Rehearsed(
        seen=Foreseen(effects=effects, panic=ledger.board.panic, waiting=()),
        settles_ms=settles_ms,
        loads=_loads(ledger, effects),
        held=tuple((line, row.guard) for line, row in sorted(ledger.rows.items()) if row.held and row.obeys.drill),
    )


def _loads(ledger: Ledger, effects: tuple[Effect, ...]) -> tuple[Load, ...]:
    """By weight, of what was offered last."""
    offered = ledger.offered.level
    before, after = sum(one.before.weight for one in effects), sum(one.after.weight for one in effects)
    if not (offered and before and after):
        return ()
    return tuple(
        Load(
            line=one.line,
            before=offered * one.before.weight // before,
            during=offered * one.after.weight // after,
            capacity=ledger.lines[one.line].capacity,
        )
        for one in effects
    )
