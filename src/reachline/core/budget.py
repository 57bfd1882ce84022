"""How many tries a process may make beyond the first of each call, and how long it waits before each.

Pure, integers, milliseconds of any monotonic clock. A retry helps where little fails and harms where much does: the budget is a
share of recent calls, so that a service that answers nothing is asked a fifth more often, never twice or three times as often.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Budget", "back_off_us"]

MILLI: Final = 1_000
RECENT_S: Final = 10
"""Calls of this many seconds earn retries: a service that stops calling keeps no savings."""
SHARE_MILLI: Final = 200
"""Each call earns a fifth of a retry…"""
FLOOR: Final = 10
"""…and each second this many, so that a process that calls rarely may retry at all. What a second leaves of them is gone."""
FIRST_US: Final = 25_000
"""The first wait is anywhere below this, each further one below twice as much: Envoy's numbers."""
MOST_US: Final = 250_000
_DOUBLINGS_MOST: Final = 10


class Budget:
    """Retries earned and not yet spent. Written by whoever holds the lock of its owner."""

    __slots__ = ("_floor", "_second", "_slots")

    def __init__(self) -> None:
        self._second = 0
        self._floor = FLOOR
        self._slots = [0] * RECENT_S
        """Thousandths of retries that the calls of a second earned, by second modulo ten."""

    def earn(self, now_ms: int, calls: int = 1) -> None:
        """So many calls are made for the first time; told late, they count for the second of `now_ms` if that is not forgotten."""
        self._move(now_ms)
        second = now_ms // 1_000
        if second > self._second - RECENT_S:
            self._slots[second % RECENT_S] += SHARE_MILLI * calls

    def spend(self, now_ms: int) -> bool:
        """Whether one more try may be made now; if so, it is paid for."""
        self._move(now_ms)
        if self._floor:
            self._floor -= 1
            return True
        if sum(self._slots) < MILLI:
            return False
        left = MILLI
        # The oldest first: they would be lost soonest.
        for second in range(self._second + 1, self._second + 1 + RECENT_S):
            taken = min(left, self._slots[second % RECENT_S])
            self._slots[second % RECENT_S] -= taken
            left -= taken
        return True

    def left(self, now_ms: int) -> int:
        """How many tries could be made now."""
        self._move(now_ms)
        return self._floor + sum(self._slots) // MILLI

    def _move(self, now_ms: int) -> None:
        second = now_ms // 1_000
        passed = second - self._second
        if passed <= 0:
            return
        for each in range(self._second + 1, self._second + 1 + min(passed, RECENT_S)):
            self._slots[each % RECENT_S] = 0
        self._second, self._floor = second, FLOOR


def back_off_us(retries: int, chance: int) -> int:
    """Microseconds to wait before the next try, when `retries` were made already; `chance` is 0…999 999, all alike likely."""
    most = min(FIRST_US << min(retries, _DOUBLINGS_MOST), MOST_US)
    return most * chance // 1_000_000
