"""How carefully one client meets a line that comes back: calls in flight while it is on trial, new connections while it returns.

Pure: integer milliseconds of any monotonic clock. No lock: each step is one operation that threads cannot see half done, and no
race lets more through than the limit says.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from reachline.core.measures import LocalRules

__all__ = ["Flight", "Pace", "calls_most"]

_SECOND_MS: Final = 1_000


def calls_most(rules: LocalRules, concurrency: int) -> int:
    """Calls in flight that a line on trial may have from a client that had `concurrency` of them, to all lines, of late.

    A few, so that a trial comes to an end at all, and a share, so that calls that hang cannot pile up.
    """
    return max(rules.trial_calls + concurrency * rules.trial_calls_milli // 1_000, 1)


class Flight:
    """Calls in flight to one line."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: Final[deque[None]] = deque()

    def __len__(self) -> int:
        return len(self._calls)

    def enter(self, most: int | None) -> bool:
        """Whether one more call may begin, which then is counted; None: any number may."""
        self._calls.append(None)
        # Counted first and looked at then: of two that come at once, both may be sent away, but never both let in.
        if most is None or len(self._calls) <= most:
            return True
        self.leave()
        return False

    def leave(self) -> None:
        """A call has ended."""
        if self._calls:
            self._calls.pop()


class Pace:
    """So many in any second, and no more."""

    __slots__ = ("_free",)

    def __init__(self, most: int, now_ms: int) -> None:
        self._free: Final[deque[int]] = deque([now_ms] * most)
        """When each of them may be used again."""

    def take(self, now_ms: int) -> bool:
        """Whether one more may begin now; if so, it is counted."""
        try:
            free_ms = self._free.popleft()
        except IndexError:
            return False
        if free_ms > now_ms:
            self._free.appendleft(free_ms)
            return False
        self._free.append(now_ms + _SECOND_MS)
        return True
