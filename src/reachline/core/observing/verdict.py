"""Whether one outbound is alive: a failure is a doubt, a few quick requests settle it. Knows no time and no chance."""

from __future__ import annotations

from typing import Final

from reachline.core.observing.rules import Care

__all__ = ["Verdict"]


_CALM: Final = 5
"""Passes in a row after a failure until an outbound is as good as any: one that fails half its requests gets there once in 32."""


class Verdict:
    """Written by its observer. While nothing is settled yet, `alive` is None."""

    __slots__ = ("_bad", "_care", "_good", "_has_called", "_passes", "alive", "in_doubt", "left")

    def __init__(self, care: Care) -> None:
        self._care: Final = care
        self.alive: bool | None = None
        self.in_doubt = False
        self.left = 0
        """Quick requests that may still be made in this doubt."""
        self._bad = self._good = 0
        self._passes = _CALM
        """In a row until now; enough of them where it never failed."""
        self._has_called = False
        """Whether a call has said its part in this doubt: all of them together say one thing."""

    def heard(self, passed: bool) -> bool:
        """One request ended; whether `alive` is another now."""
        self._passes = self._passes + 1 if passed else 0
        if self.alive is False:
            return self._hoped(passed)
        if not self.in_doubt:
            if passed:
                return self._settle(True)
            return self._doubt()
        return self._weighed(passed)

    def called(self, passed: bool) -> bool:
        """Somebody's connections: the first one in a doubt counts, for many fail or pass for one reason. None makes alive whom no
        request has measured.
        """
        if self.alive is False:
            if passed and not self._has_called:
                self._has_called = True
                return self._hoped(True)
            return False
        if not self.in_doubt:
            if passed:
                return False
            found = self._doubt()
            self._has_called = True
            return found
        if self._has_called:
            return False
        self._has_called = True
        return self._weighed(passed)

    def _doubt(self) -> bool:
        self.in_doubt, self._bad, self._good = True, 1, 0
        self.left, self._has_called = self._care.rechecks, False
        return self._decided()

    def _weighed(self, passed: bool) -> bool:
        if passed:
            self._good += 1
        else:
            self._bad += 1
        return self._decided()

    def _decided(self) -> bool:
        """Dead by enough failures, alive by as many passes; where all re-checks are through, by who has more."""
        fall = self._care.fall
        if self._bad >= fall:
            return self._settle(False)
        if self._good >= fall or (self._good + self._bad > self._care.rechecks and self._good >= self._bad):
            return self._settle(True)
        if self._good + self._bad > self._care.rechecks:
            return self._settle(False)
        return False

    def _hoped(self, passed: bool) -> bool:
        self._good = self._good + 1 if passed else 0
        if not passed:
            self._has_called = False
        return self._good >= self._care.rise and self._settle(True)

    @property
    def is_shaky(self) -> bool:
        """Alive, and failed not long ago: it is to be watched."""
        return self.alive is True and not self.in_doubt and self._passes < _CALM

    @property
    def is_hopeful(self) -> bool:
        """Dead, and its last request passed."""
        return self.alive is False and self._good > 0

    def _settle(self, alive: bool) -> bool:
        changed = self.alive is not alive
        self.alive, self.in_doubt, self._has_called = alive, False, False
        self._bad = self._good = self.left = 0
        return changed
