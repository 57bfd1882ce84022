"""What automation may never do: open the last line, more than half of a cluster, or what nothing better is left for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from reachline.core.rules import GuardRules, Rules
from reachline.core.weigh import MILLI
from reachline.model import Gate, LineId, Zone

__all__ = ["BLAST", "LAST_LINE", "PANIC", "Candidate", "allowed", "badness", "fail_open", "is_panic"]

LAST_LINE: Final = "guard.last_line"
BLAST: Final = "guard.blast"
PANIC: Final = "guard.panic"
"""The rules by which a line that should be open is held at the floor weight."""

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
        return self.gate is Gate.CLOSED and self.zone in (Zone.H, Zone.N) and not self.held and not self.drained


def badness(line: Candidate) -> tuple[int, int, str]:
    """Worst last; ties by id, so that every replay agrees."""
    severity = 0 if line.zone is Zone.N else line.zone.value
    return severity, line.faults, line.line


def allowed(
    lines: Sequence[Candidate], wishes: Sequence[LineId], rules: Rules, *, offered: int = 0
) -> dict[LineId, str]:
    """Each line that wants to trip with the rule by which it is held, or empty text: it may. The worst goes first.

    `offered` is what the cluster is asked to carry, in 1/1000 call a second; 0 where nobody knows.
    """
    wished = frozenset(wishes)
    wanting = sorted((line for line in lines if line.line in wished), key=badness, reverse=True)
    closed = {line.line: line for line in lines if line.gate is Gate.CLOSED and not line.drained}
    # A line in trial or ramp may be open again any moment, and nobody asks then.
    opened = [line for line in lines if line.gate is not Gate.CLOSED and not line.drained]
    usable = [line for line in lines if not line.drained]
    found: dict[LineId, str] = {}
    for line in wanting:
        found[line.line] = (
            "" if line.drained else _refusal(line, closed, opened, usable, rules=rules.guard, offered=offered)
        )
        if not found[line.line] and not line.drained:
            opened.append(closed.pop(line.line))
    return found


def _refusal(
    line: Candidate,
    closed: Mapping[LineId, Candidate],
    opened: Sequence[Candidate],
    usable: Sequence[Candidate],
    *,
    rules: GuardRules,
    offered: int,
) -> str:
    """Why this line may not open. A line in trial or ramp is no refuge: it has not yet shown that it carries the load."""
    if len(closed) <= 1:
        return LAST_LINE
    others = [one for one in closed.values() if one.line != line.line]
    if _is_carried(line, others, offered):
        return ""
    if line.lively and is_panic(sum(one.weight for one in others), MILLI * sum(one.base for one in usable), rules):
        return PANIC
    known = all(one.capacity for one in usable)
    size = sum(_size(one, known) for one in usable)
    return BLAST if 1_000 * _taken([*opened, line], known) > rules.open_milli * size else ""


def is_panic(left: int, full: int, rules: GuardRules) -> bool:
    """Whether more than the allowed share of the weight is lost: then the observers may be as wrong as the lines."""
    return 1_000 * left < (1_000 - rules.panic_milli) * full


def _is_carried(line: Candidate, others: Iterable[Candidate], offered: int) -> bool:
    """Whether healthy lines of a lower tier take over, or all healthy ones are known to carry what is offered."""
    well = [one for one in others if one.is_well]
    lower = [one for one in well if one.is_lower and not line.is_lower]
    if lower and (any(one.capacity is None for one in lower) or _carry(lower) >= offered):
        return True
    return bool(well and offered) and all(one.capacity for one in well) and _carry(well) >= offered


def _carry(lines: Iterable[Candidate]) -> int:
    return 1_000 * sum(line.capacity or 0 for line in lines)


def _size(line: Candidate, known: bool) -> int:
    """What a line is of its cluster: its capacity where all have one, else its base weight."""
    return (line.capacity or 0) if known else line.base


def _taken(lines: Iterable[Candidate], known: bool) -> int:
    """What these lines are together; those of one incident are one fault, and count as the largest of them."""
    apart: dict[str, int] = defaultdict(int)
    for line in lines:
        size = _size(line, known)
        apart[line.incident] = max(apart[line.incident], size) if line.incident else apart[""] + size
    return sum(apart.values())


def fail_open(lines: Sequence[Candidate]) -> Mapping[LineId, int]:
    """Raw weights (1/1000 point) where every line refuses: the least bad carries all, the others 5 % of their base.

    Empty while some line admits traffic, or where all are drained by an operator.
    """
    usable = [line for line in lines if not line.drained]
    if not usable or any(line.gate is not Gate.OPEN for line in usable):
        return {}
    least = min(usable, key=badness)
    return {line.line: line.base * (MILLI if line is least else _REST_MILLI) for line in usable}
