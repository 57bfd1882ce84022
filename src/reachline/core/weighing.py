"""Weights of one scope, kept current line by line. Where lines are coupled, or a rule is suspended, all are made anew.

They are coupled by a policy, by capacities that some line may reach, and by a panic that lets some in. Nothing here decides: whatever is remade
alone is what `spreading.weights` would say of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from reachline.core.breaker import CLOSED, share_milli
from reachline.core.guard import is_panic
from reachline.core.row import Row
from reachline.core.rules import Rules
from reachline.core.spreading import UNCOUPLED, WHOLE, Weights, flag_of, is_taking, shares, weighed, whole
from reachline.core.tiers import Part, full_milli, own_part
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
        self._known: dict[Part, int] = {}
        """The same by what it is made of: most lines of a cluster are alike."""
        self._open: set[LineId] = set()
        """Of those that have any weight, the lines whose breaker refuses…"""
        self._tried: set[LineId] = set()
        """…and those that return…"""
        self._lively: set[LineId] = set()
        """…and those that are alive though it refuses: in panic they get weight."""
        self._panics: bool | None = False
        """Whether they did the last time; None: that was for what lines carry to say."""
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
        self._open, self._tried, self._lively, self._held = set(), set(), set(), {}
        self._carrying = sum([line.base > 0 for line in taking])
        for line, (base, _, _, _, faults, step_milli) in zip(taking, now, strict=True):
            self._own[line.id] = 0
            if self._bases:
                self._note(line, rows[line.id], (base, faults, step_milli), rules)
        filling = (line for line in taking if line.capacity)
        self._heaviest = max(
            filling, key=lambda line: (line.base * MILLI // (line.capacity or 1), line.id), default=None
        )
        is_lost = self._is_lost(rules)
        self._offered, self._panics = offered, None if is_lost and offered and self._heaviest else is_lost
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
        if was.panic == "fail_open" or was.poured:
            return None
        parts = self._remade(moved, lines, rows, rules)
        self._offered = offered
        is_lost = self._is_lost(rules)
        if parts is None or self._is_coupled(offered, rules, is_lost=is_lost):
            return None
        raw = {name: self._own[name] for name in parts}
        if is_lost and self._lively:
            raw |= {name: self._part((*parts[name][:2], WHOLE), rules) for name in parts.keys() & self._lively}
        self._panics = is_lost
        self._last = Weights(raw, was.full, flag_of(set(self._held.values()), is_lost=is_lost))
        return self._last

    def _remade(
        self, moved: Collection[LineId], lines: Mapping[LineId, Line], rows: Mapping[LineId, Row], rules: Rules
    ) -> dict[LineId, Part] | None:
        """What these lines' weights are made of, taken note of; None where one of them was taken out before."""
        parts: dict[LineId, Part] = {}
        all_act, cap, owns = rules.acts("breaker") and rules.acts("faults"), rules.faults.cap, self._own
        is_plain = all_act and not (self._open or self._tried or self._lively or self._held)
        for name in moved:
            line, row = lines[name], rows[name]
            if not is_taking(line, row):
                continue
            own = owns.get(name)
            if own is None:
                return None
            breaker = row.breaker
            if all_act:
                step_milli = WHOLE if breaker is CLOSED else share_milli(breaker, rules.breaker)
                part = line.base, cap if row.held else row.judgement.faults, step_milli
            else:
                base, _, _, _, faults, step_milli = shares([line], rows, rules)[0]
                part = base, faults, step_milli
            parts[name] = part
            if is_plain and breaker is CLOSED and not (row.held or row.lively):
                # Nothing else is known of any line: only its weight is to be noted.
                now = owns[name] = self._part(part, rules)
                self._sum += now - own
                continue
            is_plain = False
            self._note(line, row, part, rules)
        return parts

    def follows(self, offered: int, rules: Rules) -> bool:
        """Whether other traffic than the last time may move weights, though no line moved."""
        if offered == self._offered or self._heaviest is None:
            return False
        if rules.policy != UNCOUPLED:  # what a line gets of it is for the policy to say
            return rules.acts("capacity")
        return bool(self._last.poured) or self._last.panic == "panic" or self._may_fill(offered, rules)

    def _is_coupled(self, offered: int, rules: Rules, *, is_lost: bool) -> bool:
        """Whether the weights of lines may depend on what others are: panic lets in all that are alive, once it begins; and it does
        not begin where the others are known to carry everything.
        """
        if len(self._open) == self._carrying or (rules.breaker.share_steps and self._tried):
            return True
        if is_lost and offered and self._heaviest:
            return True
        return (is_lost is not self._panics and bool(self._lively)) or self._may_fill(offered, rules)

    def _is_lost(self, rules: Rules) -> bool:
        return rules.acts("guard") and is_panic(self._sum, self._points, rules.guard)

    def _may_fill(self, offered: int, rules: Rules) -> bool:
        """Whether the line that reaches its capacity first might, even at its full weight."""
        line = self._heaviest
        if line is None or not offered or not rules.acts("capacity"):
            return False
        return offered * line.base * MILLI > rules.guard.fill_milli * (line.capacity or 0) * self._sum

    def _part(self, part: Part, rules: Rules) -> int:
        """What base, faults and step leave of the line's weight."""
        own = self._known.get(part)
        if own is None:
            if len(self._known) >= _MOST:
                self._known.clear()
            own = self._known[part] = own_part(part, self._points, self._bases, rules.faults)
        return own

    def _note(self, line: Line, row: Row, part: Part, rules: Rules) -> None:
        name, own = line.id, self._part(part, rules)
        self._sum += own - self._own[name]
        self._own[name] = own
        breaker, opened, tried = row.breaker, self._open, self._tried
        if breaker is CLOSED or breaker.gate is _CLOSED:
            opened.discard(name)
            tried.discard(name)
        elif breaker.gate is _OPEN:
            tried.discard(name)
            _keep(opened, name, there=line.base > 0)
        else:
            opened.discard(name)
            tried.add(name)
        if row.lively or self._lively:
            _keep(self._lively, name, there=row.lively)
        if row.held:
            self._held[name] = row.guard
        elif self._held:
            self._held.pop(name, None)


def _keep(lines: set[LineId], line: LineId, *, there: bool) -> None:
    (lines.add if there else lines.discard)(line)
