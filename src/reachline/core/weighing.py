"""Weights of one scope, kept current line by line. Where a policy couples its lines, or a rule is suspended, all are made anew.

Nothing here decides: whatever is remade alone is what `publish.weights` would say of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from reachline.core.publish import Weights, shares, weights
from reachline.core.row import Row
from reachline.core.rules import Rules
from reachline.core.tiers import full_milli, own_part
from reachline.model import Gate, Line, LineId

__all__ = ["Weighing"]

_UNCOUPLED: Final = ("weighted",)
"""The policy under which a line's weight depends on no other line's state, only on the sum of all bases."""


class Weighing:
    """Remembers of each line what the next tick needs. Written by its board only."""

    def __init__(self) -> None:
        self._full: Mapping[LineId, int] = {}
        self._panic = ""
        self._bases = self._points = 0
        self._open: set[LineId] = set()
        """Of the lines that no operator drained, those whose breaker refuses…"""
        self._usable = 0
        """…and how many there are of them in all."""
        self._held: set[LineId] = set()

    def all(self, lines: Mapping[LineId, Line], rows: Mapping[LineId, Row], rules: Rules) -> Weights:
        """Every line's weight."""
        usable = [line for line in lines.values() if not line.drained]
        self._usable, self._bases = len(usable), sum(line.base for line in usable)
        self._points = full_milli(shares(usable, rows, rules), rules.policy)
        self._open = {line.id for line in usable if rows[line.id].breaker.gate is Gate.OPEN}
        self._held = {line for line in lines if rows[line].held}
        found = weights(tuple(lines.values()), rows, rules)
        self._full, self._panic = found.full, found.panic
        return found

    def moved(
        self, moved: Collection[LineId], lines: Mapping[LineId, Line], rows: Mapping[LineId, Row], rules: Rules
    ) -> Weights | None:
        """The weights of lines that moved since the last time; None where those of others may have moved with them."""
        self._note(moved, lines, rows)
        is_alone = rules.policy == _UNCOUPLED and rules.enforce and self._bases
        if not is_alone or self._panic == "fail_open" or len(self._open) == self._usable:
            return None
        taking = [lines[line] for line in moved if not lines[line].drained]
        found = zip(taking, shares(taking, rows, rules), strict=True)
        raw = {line.id: own_part(share, self._points, self._bases, rules.faults) for line, share in found}
        self._panic = "last_line" if self._held else ""
        return Weights(raw, self._full, self._panic)

    def _note(self, moved: Collection[LineId], lines: Mapping[LineId, Line], rows: Mapping[LineId, Row]) -> None:
        for line in moved:
            row = rows[line]
            _keep(self._open, line, there=row.breaker.gate is Gate.OPEN and not lines[line].drained)
            _keep(self._held, line, there=row.held)


def _keep(lines: set[LineId], line: LineId, *, there: bool) -> None:
    (lines.add if there else lines.discard)(line)
