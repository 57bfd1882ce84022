"""Which clock to believe: the kernel's stamp, our own watch, or neither. Knows when we were away and when time jumped."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from reachline.model import Clock

__all__ = ["STEP_NS", "Clocks"]

STEP_NS: Final = 1_000_000
"""The wall clock may move by this much against the monotonic one during an attempt; beyond it, stamps are not believed."""
_NEAR_NS: Final = 20_000
"""Two readings this near to each other are of one moment: a fifth of what a round trip may be off. Undisturbed they are 0.2 us apart."""
_READINGS: Final = 3
"""At most, for one such pair: whoever is sent away in all of them takes the nearest."""


class Clocks:
    """Written by the engine's thread only."""

    __slots__ = ("_away", "_least", "_looked", "blurred", "ns", "offset", "stepped", "wall")

    def __init__(self, wall: Callable[[], int], *, away: int) -> None:
        """An absence longer than `away` ns, two pulses of the engine, may have hidden when an answer came: our watch is not believed."""
        self._least: Final = away
        self.ns = time.monotonic_ns
        self.wall = wall
        """CLOCK_REALTIME, the kernel's clock for stamps."""
        self.offset = self._apart()
        """Wall minus monotonic clock, as of the newest look…"""
        self.blurred = 0
        """RTTs of our own watch dropped because we were away."""
        self.stepped = 0
        """Stamps not used because the wall clock moved."""
        self._looked = 0
        self._away = 0

    def look(self, *, alive: bool) -> None:
        """We are about to look for answers. `alive`: attempts were waiting since the last look, so its age matters."""
        now = self.ns()
        self._away = now - self._looked if alive else 0
        self._looked = now
        self.offset = self._apart()

    def sync(self) -> None:
        """Bring `offset` up to now, where something is sent without a look before."""
        self.offset = self._apart()

    def elapsed(self, mono: int) -> int:
        """Microseconds since `mono` by our own watch, the time we were away given to the line's favour."""
        return max(self.ns() - mono - self._absence(mono), 0) // 1_000

    def measure(self, mono: int, wall: int, stamp: int | None) -> tuple[int | None, Clock, int]:
        """(us, clock, us for judging lateness) since a moment known by both clocks.

        By the kernel's stamp where there is one and the wall clock ran evenly; None where we were away while it happened.
        """
        now = self.ns()
        if stamp is not None:
            if stamp >= wall and -STEP_NS <= self._apart() - wall + mono <= STEP_NS:
                took = (stamp - wall) // 1_000
                return took, Clock.RX_STAMP, took
            self.stepped += 1
        took = (now - mono) // 1_000
        if absence := self._absence(mono):
            self.blurred += 1
            return None, Clock.APP, max(took - absence // 1_000, 0)
        return took, Clock.APP, took

    def stamped(self, mono: int, wall: int, stamp: int | None) -> int | None:
        """Microseconds between a moment known by both clocks and the kernel's stamp; None where `measure` must say more."""
        if stamp is None or stamp < wall:
            return None
        return (stamp - wall) // 1_000 if -STEP_NS <= self.offset - wall + mono <= STEP_NS else None

    def _apart(self) -> int:
        """Wall minus monotonic clock, now. Read again where we were sent away between the two: that is no step, and no time of a line."""
        best = gap = 0
        for number in range(_READINGS):
            before = self.ns()
            wall = self.wall()
            took = self.ns() - before
            if not number or took < gap:
                best, gap = wall - before, took
            if gap <= _NEAR_NS:
                break
        return best

    def _absence(self, mono: int) -> int:
        """How long nobody looked while something that began at `mono` was under way, in ns; 0 where that is short."""
        away = min(self._away, self._looked - mono)
        return away if away > self._least else 0
