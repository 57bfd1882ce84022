"""When the agent distrusts itself: a score for its own lateness, and whether it is cut off from everything near it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from reachline.model import Zone

__all__ = ["LATE_US", "advisory", "doubt", "is_cut_off"]

LATE_US: Final = 200_000
"""Own timers that fire later than this cannot tell a slow line from a slow agent."""
_MOST: Final = 7
"""The score divides the agent's vote by 1 + score: at 7 it is an eighth."""


def doubt(score: int, worst_late_us: int) -> int:
    """The score after one more heartbeat, 0…7: up by one where a timer was late, down by one where none was."""
    return min(_MOST, score + 1) if worst_late_us > LATE_US else max(0, score - 1)


def is_cut_off(references: Iterable[bool | None]) -> bool:
    """Whether every reference target failed its newest round. Without references, or before they were tried: no."""
    known = tuple(references)
    return bool(known) and all(ok is False for ok in known)


def advisory(before: Zone, known: int, ok: int) -> Zone:
    """The agent's own quick opinion of a line by its newest rounds: F at none of three, H at all of three, else as before.

    It only decides that a reading is worth sending at once; the center judges.
    """
    if known < 3:
        return before
    return Zone.F if not ok else Zone.H if ok == known else before
