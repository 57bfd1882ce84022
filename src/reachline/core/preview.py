"""What an order would do to its scope, seen on two copies of the ledger: both closed once, one of them with the order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reachline.core.ledger import Ledger
from reachline.core.orders import Order
from reachline.core.twin import twin
from reachline.model import LineId, Standing

__all__ = ["Effect", "Foreseen", "foreseen"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One line before and after."""

    line: LineId
    before: Standing
    after: Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """Every line of the scope, by id, and why ordinary rules would be suspended (or empty)."""

    effects: tuple[Effect, ...]
    panic: str
    waiting: tuple[LineId, ...]
    """Lines that the order opens only once another one carries their traffic."""

    @property
    def leaves_nothing(self) -> bool:
        """Whether a cluster that carries traffic would carry none."""
        effects = self.effects
        return any(one.before.weight for one in effects) and not any(one.after.weight for one in effects)


def foreseen(ledger: Ledger, *, order: Order | None = None, undo: Sequence[int] = (), now_ms: int) -> Foreseen:
    """What the scope would publish at `now_ms` with one order more, or some less. Uses up the ledger: give it a twin."""
    plain = twin(ledger)
    for number in undo:
        ledger.undo(number)
    if order is not None:
        ledger.order(order)
    plain.close(now_ms)
    ledger.close(now_ms)
    # Both have judged what was heard since the last tick: what differs is the order's doing.
    before, after = plain.board.standings, ledger.board.standings
    effects = tuple(Effect(line=line, before=before[line], after=after[line]) for line in sorted(after))
    waiting = tuple(line for line, obeys in ledger.wanted.items() if obeys.gate != ledger.rows[line].obeys.gate)
    return Foreseen(effects=effects, panic=ledger.board.panic, waiting=tuple(sorted(waiting)))
