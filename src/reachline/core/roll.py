"""Each vantage's newest word on each line as a number, in columns: a tick counts votes by these, and looks at no ballot.

What the words are made of stands in the ballots. Written by their poll only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from reachline.core.quorum import Ballot
from reachline.model import Line, LineId, VantageId, Zone

__all__ = ["Roll", "Word", "doubt_of", "zone_said"]

Word = int
"""0 for none, or one without an opinion; else a zone, and above it the vantage's doubt of itself."""

_ZONES: Final = (Zone.N, Zone.H, Zone.D, Zone.F)
"""A word's two lower bits are a zone's own number, and one."""
_LOWER: Final = 3
_BITS: Final = 2
_NEVER: Final = 2**63
"""When a word arrived that is none: it is never too old."""
_FEW: Final = 4
"""From a quarter of all lines on, reading whole columns costs less than reading their places one by one."""


def zone_said(word: Word) -> Zone:
    """The zone that a word says."""
    return _ZONES[word & _LOWER]


def doubt_of(word: Word) -> int:
    """How far whoever says it distrusts itself."""
    return word >> _BITS


class Roll:
    """The words on all lines but those that name their vantages."""

    def __init__(self, lines: Mapping[LineId, Line]) -> None:
        every = [name for name, line in lines.items() if not line.vantages]
        self._places = dict(zip(every, range(len(every)), strict=True))
        self._said: dict[VantageId, list[Word]] = {}
        """Words by place…"""
        self._arrived: dict[VantageId, list[int]] = {}
        """…and the ms they arrived at."""

    def put(self, vantage: VantageId, line: LineId, ballot: Ballot) -> None:
        """A ballot in the place of the last one."""
        place = self._places.get(line)
        if place is None:
            return
        said = self._said.get(vantage)
        if said is None:
            said = self._said[vantage] = [0] * len(self._places)
            self._arrived[vantage] = [_NEVER] * len(self._places)
        word = (ballot.zone._value_ + 1) & _LOWER
        said[place] = word and word | ballot.doubt << _BITS
        self._arrived[vantage][place] = ballot.received_ms if word else _NEVER

    def known(self, vantages: Iterable[VantageId]) -> tuple[VantageId, ...]:
        """Those that ever said anything."""
        return tuple([name for name in vantages if name in self._said])

    def called(
        self, lines: Sequence[LineId], vantages: Sequence[VantageId], since_ms: int
    ) -> list[tuple[Word, ...] | None]:
        """What these vantages, of whom each ever said anything, say of each of these lines, in their order; None where some word
        arrived before `since_ms`, and for lines that are not among ours.
        """
        places = [self._places.get(line) for line in lines]
        if not vantages:
            return [None if place is None else () for place in places]
        saids, arrivals = [self._said[name] for name in vantages], [self._arrived[name] for name in vantages]
        if _FEW * len(lines) > len(self._places) and all(
            min(arrived, default=_NEVER) >= since_ms for arrived in arrivals
        ):
            rows = list(zip(*saids, strict=True))
            return [None if place is None else rows[place] for place in places]
        return [
            None
            if place is None or min([arrived[place] for arrived in arrivals]) < since_ms
            else tuple([said[place] for said in saids])
            for place in places
        ]
