"""Which lines are to be looked at more often, and which are out, for whoever probes them."""

from __future__ import annotations

from reachline.center.board import Board
from reachline.model import Gate, Health
from reachline.wire.frame import Hint

__all__ = ["hint"]

_DOUBTFUL = (Health.DEGRADED, Health.UNHEALTHY)


def hint(board: Board) -> Hint:
    """Lines as they are published now."""
    standings = [one for cell in board.cells() for one in cell.value.snapshot.standings]
    out = sorted(one.line for one in standings if one.gate is Gate.OPEN)
    suspects = (
        one.line
        for one in standings
        if one.gate in (Gate.HALF_OPEN, Gate.RAMP) or (one.gate is Gate.CLOSED and one.health in _DOUBTFUL)
    )
    return Hint(suspects=tuple(sorted(suspects)), open=tuple(out))
