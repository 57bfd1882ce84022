"""Weights of one scope, kept current line by line. Where lines are coupled, or a rule is suspended, all are made anew.

They are coupled by a policy, by capacities that some line may reach, and by panic. Nothing here decides: whatever is remade
alone is what `spreading.weights` would say of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from reachline.core.guard import is_panic
from reachline.core.row import Row
from reachline.core.rules import Rules
from reachline.core.spreading import UNCOUPLED, Weights, flag_of, is_taking, shares, weighed, whole
from reachline.core.tiers import Share, full_milli, own_part
from reachline.core.weigh import MILLI
from reachline.model import Gate, Line, LineId

__all__ = ["Weighing"]

_MOST: Final = 1 << 16
_OPEN: Final = Gate.OPEN
_CLOSED: Final = Gate.CLOSED


class Weighing:
    """Remembers of each line what the next tick needs. Written by its board only."""

    def __init__(self) -> None:
        self._last = Weights({}, {}, "")
        self._offered = 0
        self._bases = self._points = 0
        self._own: dict[LineId, int] = {}
        """Of each line that no operator took out, what its own state leaves of its base…"""
        self._sum = 0
        """…and all of that together."""
        self._known: dict[tuple[int, int, int], int] = {}
        """The same by base, faults and step: most lines of a cluster are alike."""
        self._open: set[LineId] = set()
        """Of those that have any weight, the lines whose breaker refuses…"""
        self._tried: set[LineId] = set()
        """…and those that return."""
        self._carrying = 0
        """How many have any weight."""
        self._held: dict[LineId, str] = {}
        """What the guard holds, and by which rule."""
        self._full: tuple[tuple[object, ...], Sequence[Line], Mapping[LineId, int]] = (), [], {}
        """Every line's weight in health, of these lines by these rules."""
        self._heaviest: Line | None = None
        """The line that reaches its capacity first."""

    def all(
        self, lines: Mapping[LineId, Line], rows: Mapping[LineId, Row], rules: Rules, *, offered: int = 0
    ) -> Weights:
        """Every line's weight."""
        taking = [line for line in lines.values() if is_taking(line, rows[line.id])]
        now = shares(taking, rows, rules)
        self._bases, self._points = sum(line.base for line in taking), full_milli(now, rules.policy)
        self._own, self._known, self._sum = {}, {}, 0
        self._open, self._tried, self._held = set(), set(), {}
        self._carrying = sum(line.base > 0 for line in taking)
        for line in taking:
            self._own[line.id] = 0
        if self._bases:
            self._note(taking, now, rows, rules)
        filling = (line for line in taking if line.capacity)
        self._heaviest = max(
            filling, key=lambda line: (line.base * MILLI // (line.capacity or 1), line.id), default=None
        )
        self._offered = offered
        self._last = weighed(taking, now, self._whole(taking, rules), rows, rules=rules, offered=offered)
        return self._last

    def _whole(self, taking: Sequence[Line], rules: Rules) -> Mapping[LineId, int]:
        asked = rules.policy, rules.faults
        known, lines, full = self._full
        if known != asked or lines != taking:
            full = whole(taking, rules)
            self._full = asked, taking, full
        return full

    def moved(
        self,
        moved: Collection[LineId],
        lines: Mapping[LineId, Line],
        rows: Mapping[LineId, Row],
        rules: Rules,
        *,
        offered: int = 0,
    ) -> Weights | None:
        """The weights of lines that moved since the last time; None where those of others may have moved with them."""
        if rules.policy != UNCOUPLED or not rules.enforce or not self._bases:
            return None
        was = self._last
        if was.panic in ("fail_open", "panic") or was.poured:
            return None
        taking = [lines[line] for line in moved if is_taking(lines[line], rows[line])]
        if any(line.id not in self._own for line in taking):
            return None
        self._note(taking, shares(taking, rows, rules), rows, rules)
        self._offered = offered
        if self._is_suspended(rules) or self._may_fill(offered, rules):
            return None
        raw = {line.id: self._own[line.id] for line in taking}
        self._last = Weights(raw, was.full, flag_of(set(self._held.values()), is_lost=False))
        return self._last

    def follows(self, offered: int, rules: Rules) -> bool:
        """Whether other traffic than the last time may move weights, though no line moved."""
        if offered == self._offered or self._heaviest is None:
            return False
        if rules.policy != UNCOUPLED:  # what a line gets of it is for the policy to say
            return rules.acts("capacity")
        return bool(self._last.poured) or self._last.panic == "panic" or self._may_fill(offered, rules)

    def _is_suspended(self, rules: Rules) -> bool:
        is_lost = is_panic(self._sum, self._points, rules.guard)
        return len(self._open) == self._carrying or is_lost or (rules.breaker.share_steps and bool(self._tried))

    def _may_fill(self, offered: int, rules: Rules) -> bool:
        """Whether the line that reaches its capacity first might, even at its full weight."""
        line = self._heaviest
        if line is None or not offered or not rules.acts("capacity"):
            return False
        return offered * line.base * MILLI > rules.guard.fill_milli * (line.capacity or 0) * self._sum

    def _note(self, taking: Sequence[Line], now: Sequence[Share], rows: Mapping[LineId, Row], rules: Rules) -> None:
        owns, known = self._own, self._known
        for line, share in zip(taking, now, strict=True):
            name, row = line.id, rows[line.id]
            base, _, _, _, faults, step_milli = share
            own = known.get(alike := (base, faults, step_milli))
            if own is None:
                if len(known) >= _MOST:
                    known.clear()
                own = known[alike] = own_part(share, self._points, self._bases, rules.faults)
            self._sum += own - owns[name]
            owns[name] = own
            gate = row.breaker.gate
            if gate is _CLOSED:
                self._open.discard(name)
                self._tried.discard(name)
            else:
                _keep(self._open, name, there=gate is _OPEN and base > 0)
                _keep(self._tried, name, there=gate is not _OPEN)
            if row.held:
                self._held[name] = row.guard
            elif self._held:
                self._held.pop(name, None)


def _keep(lines: set[LineId], line: LineId, *, there: bool) -> None:
    (lines.add if there else lines.discard)(line)
