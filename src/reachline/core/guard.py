"""What automation may never do: open the last line that carries traffic, or leave a cluster with nowhere to go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from reachline.core.weigh import MILLI
from reachline.model import Gate, LineId, Zone

__all__ = ["Candidate", "allowed", "fail_open"]


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


def badness(line: Candidate) -> tuple[int, int, str]:
    """Worst last; ties by id, so that every replay agrees."""
    severity = 0 if line.zone is Zone.N else line.zone.value
    return severity, line.faults, line.line


def allowed(lines: Sequence[Candidate], wishes: Sequence[LineId]) -> tuple[frozenset[LineId], frozenset[LineId]]:
    """Which of the lines that want to trip may, and which must hold because they are the last closed one.

    The worst trip first. A line in trial or ramp is no refuge: it has not yet shown that it carries the load.
    """
    wished = frozenset(wishes)
    wanting = sorted((line for line in lines if line.line in wished), key=badness, reverse=True)
    left = sum(line.gate is Gate.CLOSED and not line.drained for line in lines)
    may: set[LineId] = set()
    for line in wanting:
        if line.drained or left > 1:
            may.add(line.line)
            left -= not line.drained
    return frozenset(may), wished - may


def fail_open(lines: Sequence[Candidate]) -> Mapping[LineId, int]:
    """Raw weights (1/1000 point) where every line refuses: the least bad carries all, the others 5 % of their base.

    Empty while some line admits traffic, or where all are drained by an operator.
    """
    usable = [line for line in lines if not line.drained]
    if not usable or any(line.gate is not Gate.OPEN for line in usable):
        return {}
    least = min(usable, key=badness)
    return {line.line: line.base * (MILLI if line is least else _REST_MILLI) for line in usable}
