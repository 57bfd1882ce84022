"""An observation that stands still between two looks, so that what is chosen by it is worked out there and never at a pick."""

from __future__ import annotations

from typing import Final

from reachline.core.observing.protocol import Observation
from reachline.core.observing.values import Status

__all__ = ["Held"]

_FIGURES: Final = 500_000
"""Nanoseconds for each outbound and reader between two looks at figures: choosing anew takes some 5 µs, a hundredth of the time…"""
_TURNS: Final = 20_000
"""…and where one came to life or died: a quarter of the time, while many do."""


class Held:
    """Written by whoever looks. Until the first look nothing is known."""

    __slots__ = ("_edition", "_looked", "_of", "_readers", "_statuses")

    def __init__(self, of: Observation, readers: int = 1) -> None:
        self._of: Final = of
        self._readers: Final = max(1, readers)  # interfaces read where no balancer does
        self._edition = -1
        self._looked: int | None = None
        self._statuses: tuple[Status, ...] = ()

    def statuses(self, now: int) -> tuple[Status, ...]:  # noqa: ARG002  (one signature)
        """As of the last look."""
        return self._statuses

    def edition(self, now: int) -> int:  # noqa: ARG002  (one signature)
        """As of the last look."""
        return self._edition

    def due(self, *, turned: bool) -> int | None:
        """When to look next, for figures or because an outbound came to life or died; None: now, nobody has looked yet."""
        if self._looked is None:
            return None
        return self._looked + len(self._statuses) * self._readers * (_TURNS if turned else _FIGURES)

    def look(self, now: int) -> bool:
        """Whether there may be something else to choose by since the last look."""
        edition = self._of.edition(now)
        is_other = edition != self._edition
        if is_other:
            self._edition, self._statuses = edition, self._of.statuses(now)
        self._looked = now
        return is_other
