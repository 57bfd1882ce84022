"""One line list with what is made of it once: picks, weights, and, when first asked for, the terms of the group formulas. No clock."""

from __future__ import annotations

from functools import cached_property
from typing import Final

from reachline.core.regroup import Terms, own_trial_ms
from reachline.model import Gate
from reachline.upstream.listing import LineList, picks_of, terms

__all__ = ["Present"]


class Present:
    """A cluster's list of now; replaced whole."""

    def __init__(self, lines: LineList) -> None:
        self.list: Final = lines
        self.picks: Final = picks_of(lines)
        self.weights: Final = {each.line: each.weight for each in lines.lines}
        self.holds_open: Final = any(each.breaker is Gate.OPEN and not each.weight for each in lines.lines)
        """Whether the center holds a line open."""

    @cached_property
    def terms(self) -> Terms:
        """Made once a breaker or a line held open calls for them."""
        return terms(self.list)

    @property
    def own_trial_ms(self) -> int | None:
        """After how long a silence of the center a line that it holds open is tried on our own; None: it holds none."""
        return own_trial_ms(self.terms) if self.holds_open else None
