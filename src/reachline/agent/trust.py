"""When the agent distrusts itself: the score that its vote is divided by, and what raises it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from reachline.model import Zone

__all__ = ["MOST", "advisory", "at_once", "doubt", "independent", "is_cut_off", "of_timers"]

_LATE_MS: Final = 200
"""Own timers that fire later than this cannot tell a slow line from a slow agent."""
MOST: Final = 7
"""The score divides the agent's vote by 1 + score: at 7 it is an eighth."""


def doubt(score: int, worst: int) -> int:
    """The score after one more heartbeat, 0…7: one step toward the `worst` that spoke against us, 0 where nothing did."""
    return score + (worst > score) - (worst < score)


def of_timers(late_ms: int) -> int:
    """How far timers that fired so late at worst can raise the score: a step for each time that is too late, not for ever.

    A small host that stalls for a moment now and then measures nearly all of its attempts rightly.
    """
    return min(MOST, late_ms // _LATE_MS)


def is_cut_off(references: Iterable[bool | None]) -> bool:
    """Whether every reference target failed its newest round. Without references, or before they were tried: no."""
    known = tuple(references)
    return bool(known) and all(ok is False for ok in known)


def at_once(turned: Collection[frozenset[str]], lines: int) -> bool:
    """Whether more than half of `lines` lines turned bad together though nothing is known that they share: then it is likelier
    us. `turned` has the shared-risk groups of each that did.
    """
    return 2 * len(turned) > lines and independent(turned) > 1


def independent(groups: Iterable[frozenset[str]]) -> int:
    """How many sets of lines there are of which no two share a group, directly or by way of others."""
    sets: list[frozenset[str]] = []
    for group in groups:
        apart = [other for other in sets if not other & group]
        sets = [*apart, group.union(*(other for other in sets if other & group))]
    return len(sets)


def advisory(before: Zone, known: int, ok: int) -> Zone:
    """The agent's own quick opinion of a line by its newest rounds: F at none of three, H at all of three, else as before.

    It only decides that a reading is worth sending at once; the center judges.
    """
    if known < 3:
        return before
    return Zone.F if not ok else Zone.H if ok == known else before
