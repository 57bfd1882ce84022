"""What automation may never do: open the last line, more than half of a cluster, or what nothing better is left for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from reachline.core.refuge import NOBODY, Others, Refuge
from reachline.core.rules import GuardRules, Rules
from reachline.core.weigh import MILLI
from reachline.model import Gate, LineId, Zone

__all__ = ["BLAST", "LAST_LINE", "PANIC", "Candidate", "allowed", "badness", "fail_open", "is_panic"]

LAST_LINE: Final = "guard.last_line"
BLAST: Final = "guard.blast"
PANIC: Final = "guard.panic"
"""The rules by which a line that should be open is held at the floor weight."""

_CLOSED: Final = Gate.CLOSED
_D: Final = Zone.D
_F: Final = Zone.F
"""Looked up once: an enum's attribute costs eight times as much as a name."""
_REST_MILLI: Final = 50
"""What each other line keeps while the least bad carries all: 5 %, enough to see one of them come back."""


class Candidate(NamedTuple):
    """A line as the guard sees it."""

    line: LineId
    base: int
    gate: Gate
    zone: Zone
    faults: int
    drained: bool
    capacity: int | None = None
    is_lower: bool = False
    """Of a tier that takes over from others: a backup, or in the reserve group."""
    incident: str = ""
    weight: int = 0
    """What faults leave of its base, in 1/1000 point…"""
    lively: bool = False
    """…and whether something succeeded in the newest tick."""
    held: bool = False

    @property
    def is_well(self) -> bool:
        if self.zone is _F or self.gate is not _CLOSED or self.held or self.drained:
            return False
        return self.zone is not _D


def badness(line: Candidate) -> tuple[int, int, str]:
    """Worst last; ties by id, so that every replay agrees."""
    zone = line.zone
    return 2 if zone is _F else 1 if zone is _D else 0, line.faults, line.line


def allowed(
    lines: Sequence[Candidate], wishes: Sequence[LineId], rules: Rules, *, rest: Others = NOBODY, offered: int = 0
) -> dict[LineId, str]:
    """Each line that wants to trip with the rule by which it is held, or empty text: it may. The worst goes first.

    `rest` are the cluster's other lines, of which none wants to, for all are well.
    `offered` is what the cluster is asked to carry, in 1/1000 call a second; 0 where nobody knows.
    """
    wished = frozenset(wishes)
    wanting = sorted((line for line in lines if line.line in wished), key=badness, reverse=True)
    left = _Left(lines, rest)
    found: dict[LineId, str] = {}
    why, refused = "", None  # nothing has opened since: whoever is alike but for its id is refused alike
    for line in wanting:
        name, *state = line
        if not (why and state == refused):
            why, refused = "" if line.drained else left.refusal(line, rules=rules.guard, offered=offered), state
            if not why and not line.drained:
                left.open(line)
        found[name] = why
    return found


class _Left:
    """What is left of a cluster while lines open one after the other: sums, so that each costs the same however many there are."""

    def __init__(self, lines: Sequence[Candidate], rest: Others) -> None:
        usable = [line for line in lines if not line.drained]
        closed = [line for line in usable if line.gate is _CLOSED]
        bases = sum([line.base for line in usable])
        self._closed = rest.lines + len(closed)
        self._weight = rest.weight + sum([line.weight for line in closed])
        self._full = rest.weight + MILLI * bases
        self._known = not rest.vague and all(line.capacity for line in usable)
        known = rest.capacity + sum([line.capacity or 0 for line in usable]) if self._known else 0
        self._size = known if self._known else rest.bases + bases
        self._well, self._lower = Refuge(rest.lines, rest.capacity, rest.unknown, rest.vague), Refuge(*rest.lower)
        for line in closed:
            if line.zone is not _F and line.is_well:
                self._refuge(line, 1)
        self._taken: dict[str, int] = defaultdict(int)
        """What is taken out, by incident: those of one are one fault, and count as the largest of them…"""
        self._out = 0
        """…and in all."""
        for line in usable if len(closed) < len(usable) else ():
            # A line in trial or ramp may be open again any moment, and nobody asks then.
            if line.gate is not _CLOSED:
                self._take(line)

    def open(self, line: Candidate) -> None:
        """This line is out."""
        self._closed -= 1
        self._weight -= line.weight
        if line.is_well:
            self._refuge(line, -1)
        self._take(line)

    def _take(self, line: Candidate) -> None:
        more = self._more(line)
        self._taken[line.incident] += more
        self._out += more

    def refusal(self, line: Candidate, *, rules: GuardRules, offered: int) -> str:
        """Why this line may not open. A line in trial or ramp is no refuge: it has not yet shown that it carries the load."""
        if self._closed <= 1:
            return LAST_LINE
        is_well = line.is_well
        if is_well:
            self._refuge(line, -1)
        carried = self._is_carried(line, offered)
        if is_well:
            self._refuge(line, 1)
        if carried:
            return ""
        if line.lively and is_panic(self._weight - line.weight, self._full, rules):
            return PANIC
        taken = self._out + self._more(line)
        return BLAST if 1_000 * taken > rules.open_milli * self._size else ""

    def _is_carried(self, line: Candidate, offered: int) -> bool:
        """Whether healthy lines of a lower tier take over, or all healthy ones are known to carry what is offered."""
        well, lower = self._well, self._lower
        if lower.lines and not line.is_lower and (lower.unknown or 1_000 * lower.capacity >= offered):
            return True
        return bool(well.lines and offered) and not well.vague and 1_000 * well.capacity >= offered

    def _refuge(self, line: Candidate, sign: int) -> None:
        self._well.count(line.capacity, sign)
        if line.is_lower:
            self._lower.count(line.capacity, sign)

    def _more(self, line: Candidate) -> int:
        """What this line adds to that which is taken out."""
        size = self._size_of(line)
        return max(0, size - self._taken[line.incident]) if line.incident else size

    def _size_of(self, line: Candidate) -> int:
        """What a line is of its cluster: its capacity where all have one, else its base weight."""
        return (line.capacity or 0) if self._known else line.base


def is_panic(left: int, full: int, rules: GuardRules) -> bool:
    """Whether more than the allowed share of the weight is lost: then the observers may be as wrong as the lines."""
    return 1_000 * left < (1_000 - rules.panic_milli) * full


def fail_open(lines: Sequence[Candidate]) -> Mapping[LineId, int]:
    """Raw weights (1/1000 point) where every line refuses: the least bad carries all, the others 5 % of their base.

    Empty while some line admits traffic, or where all are drained by an operator.
    """
    usable = [line for line in lines if not line.drained]
    if not usable or any(line.gate is not Gate.OPEN for line in usable):
        return {}
    least = min(usable, key=badness)
    return {line.line: line.base * (MILLI if line is least else _REST_MILLI) for line in usable}
