"""Which of a line's newest probe rounds got through. A round is one burst; its attempts end in any order.

Knows no time: a round is known by how its attempts ended.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Rounds"]

_ROUNDS: Final = 3
"""What the connect limit looks at."""
_NEWEST: Final = (1 << _ROUNDS) - 1
"""The newest three in a row, as bits."""
_SPAN: Final = 8
"""Rounds back from the newest that still count: as many as may be in flight. A byte, so a line pays for no object."""
_MASK: Final = (1 << _SPAN) - 1


class Rounds:
    """The newest three rounds of which the end is known: ok as soon as one attempt is, not ok once all have failed.

    Rounds still in flight are left out: with a patience longer than the interval there would always be some, and a dead
    line would never have three known ones.
    """

    __slots__ = ("_known", "_newest", "_ok", "_open", "known", "last_ok", "ok")

    def __init__(self) -> None:
        self._newest = 0
        self._known = self._ok = 0
        """Bit n stands for round `_newest - n`."""
        self._open: dict[int, tuple[int, int]] | None = None
        """Round in flight: attempts ended, and failed."""
        self.known = 0
        """How many are known, at most three…"""
        self.ok = 0
        """…and how many of them got through."""
        self.last_ok: bool | None = None
        """How the newest known round ended; None while there is none."""

    def ended(self, number: int, burst: int, ok: bool | None) -> None:
        """One of the `burst` attempts of round `number` ended; None: by our own fault, which tells nothing."""
        back = self._newest - number
        if ok and back < 0 and self._open is None:
            # Nearly always: a newer round, nothing else in flight. What follows would say the same, at twice the cost.
            self._newest = number
            ahead, known = -back if back > -_SPAN else _SPAN, self._known
            if ahead > 1 or known != _NEWEST:
                known = known << ahead & _MASK | 1
                if known.bit_count() > _ROUNDS:
                    known ^= 1 << known.bit_length() - 1
                self._known, self.known = known, known.bit_count()
            self._ok = got_through = (self._ok << ahead | 1) & known
            self.ok, self.last_ok = got_through.bit_count(), True
            return
        if back >= _SPAN or (back >= 0 and self._known >> back & 1):
            return
        if ok:
            self._settle(number, ok=True)
            return
        done, failed = (self._open or {}).get(number, (0, 0))
        done, failed = done + 1, failed + (ok is False)
        if done < burst:
            self._open = {**(self._open or {}), number: (done, failed)}
        elif failed:
            self._settle(number, ok=False)
        else:
            self._close(number)

    def forget(self) -> None:
        """Nothing is known any more."""
        self._known = self._ok = 0
        self._open = None
        self._count()

    def _settle(self, number: int, *, ok: bool) -> None:
        ahead = min(max(0, number - self._newest), _SPAN)
        self._known = self._known << ahead & _MASK
        self._ok = self._ok << ahead & _MASK
        self._newest = max(number, self._newest)
        bit = 1 << self._newest - number
        self._known |= bit
        self._ok |= bit if ok else 0
        while self._known.bit_count() > _ROUNDS:
            self._known &= ~(1 << self._known.bit_length() - 1)
        self._ok &= self._known
        self._count()
        self._close(number)

    def _count(self) -> None:
        known = self._known
        self.known, self.ok = known.bit_count(), self._ok.bit_count()
        self.last_ok = bool(self._ok & known & -known) if known else None

    def _close(self, number: int) -> None:
        """Round `number` is no longer in flight, nor is any that cannot matter again."""
        if self._open:
            oldest = self._newest - _SPAN
            self._open = {key: value for key, value in self._open.items() if key != number and key > oldest} or None
