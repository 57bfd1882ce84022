"""Which probe kinds decide over a line, and which readings speak at all."""

from __future__ import annotations

from typing import Final

from reachline.model import HELPERS, Kind, Line, Reading

__all__ = ["deciding", "speaks"]

_OTHERWISE: Final = frozenset(Kind) - HELPERS
_DECIDING: Final = {kind.value: _OTHERWISE | {kind} for kind in HELPERS}
"""Lines of these schemes have nothing but the helper kind, so it decides."""


def deciding(line: Line) -> frozenset[Kind]:
    """The probe kinds that decide over a line; helpers only where the line is observed by nothing else."""
    return _DECIDING.get(line.endpoint.scheme, _OTHERWISE)


def speaks(reading: Reading, decides: frozenset[Kind]) -> bool:
    """Whether it is of something that was observed lately, by a kind that decides."""
    return reading.kind in decides and not reading.void and reading.counts.attempts > 0
