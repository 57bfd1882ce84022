"""When business and vantages disagree of a line: who is believed, for how long, and who loses by it. Pure.

Also where all lines turn bad at once though calls go well: then it is the observers' own plane that is broken.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from reachline.core.business import UNKNOWN, Word
from reachline.core.judge import Judgement
from reachline.core.rules import BusinessRules
from reachline.model import LineId, Zone

__all__ = ["CALM", "Matter", "after", "is_overriding", "is_plane", "taken_over"]

_AT_ONCE_MS: Final = 10_000
"""The tick of `literal` mode. In `fast` mode, whose ticks are shorter, sums fill at slightly different times."""


class Matter(NamedTuple):
    """What is remembered of a line's business: its own ticks in a row, and its quarrel with the vantages."""

    held: tuple[tuple[str, int], ...] = ()
    bad: int = 0
    """Ticks in a row in which calls alone said D or F…"""
    failed: int = 0
    """…and F."""
    conflicts: int = 0
    """Ticks in a row in which one side said healthy and the other did not."""
    conflict_ms: int = 0
    """The last of them."""
    overrides: bool = False
    """Three in a row: the business is believed, until it has agreed for a minute."""


CALM: Final = Matter()


def is_overriding(matter: Matter, now_ms: int, rules: BusinessRules) -> bool:
    """Whether what the business says is used instead of the vote."""
    return matter.overrides and now_ms - matter.conflict_ms <= rules.hold_ms


def after(matter: Matter, word: Word, zone: Zone, now_ms: int, rules: BusinessRules) -> Matter:
    """The matter after a tick in which the vantages said `zone` and the business its `word`. N says nothing, and ends nothing."""
    if word.zone is not Zone.N:
        most = max(rules.conflict_ticks, _MOST)
        is_bad, has_failed = word.zone is not Zone.H, word.zone is Zone.F
        matter = matter._replace(
            held=word.held,
            bad=min(most, matter.bad + 1) if is_bad else 0,
            failed=min(most, matter.failed + 1) if has_failed else 0,
        )
    if matter.overrides and now_ms - matter.conflict_ms > rules.hold_ms:
        matter = matter._replace(overrides=False, conflicts=0, conflict_ms=0)
    if Zone.N in (word.zone, zone):
        # Calls whose failing is somebody else's fault quarrel with nobody: that ends a row. Mere silence does not.
        return matter._replace(conflicts=0) if word.causes else matter
    if (word.zone is Zone.H) is (zone is Zone.H):
        return matter._replace(conflicts=0, conflict_ms=matter.conflict_ms if matter.overrides else 0)
    count = min(rules.conflict_ticks, matter.conflicts + 1)
    return matter._replace(
        conflicts=count, conflict_ms=now_ms, overrides=matter.overrides or count >= rules.conflict_ticks
    )


_MOST: Final = 10
"""Ticks of one kind beyond which none are counted: no patience is longer."""


def taken_over(judged: Judgement, matter: Matter) -> Judgement:
    """The judge's counters as the business takes over: its own ticks so far, without the one that is judged now."""
    return judged._replace(bad=max(judged.bad, matter.bad - 1), down=max(judged.down, matter.failed - 1))


def is_plane(turned: Mapping[LineId, int], usable: Collection[LineId], words: Mapping[LineId, Word]) -> bool:
    """Whether the observers' own plane is broken: every usable line turned bad within one tick, and calls go well on all
    that have enough of them, half of the lines at least.

    One line alone is no plane: there the business simply disagrees.
    """
    if len(usable) < 2 or any(line not in turned for line in usable):
        return False
    moments = [turned[line] for line in usable]
    known = [zone for line in usable if (zone := words.get(line, UNKNOWN).zone) is not Zone.N]
    return (
        max(moments) - min(moments) <= _AT_ONCE_MS
        and 2 * len(known) >= len(usable)
        and all(zone is Zone.H for zone in known)
    )
