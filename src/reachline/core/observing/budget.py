"""How many requests may be made beside the schedule: a rate with a reserve, one number."""

from __future__ import annotations

from typing import Final

__all__ = ["Budget"]

_MINUTE: Final = 60_000_000_000


class Budget:
    """Written by its observer. It begins full."""

    __slots__ = ("_cost", "_full", "_spent")

    def __init__(self, a_minute: int, reserve: int) -> None:
        self._cost: Final = _MINUTE // a_minute
        self._full: Final = reserve * self._cost
        self._spent = 0
        """When all that was taken is earned back."""

    def ready(self, requests: int) -> int:
        """From when on so many may be made at once: more than the reserve go once it is full."""
        return self._spent + min(requests * self._cost, self._full) - self._full

    def take(self, requests: int, now: int) -> None:
        self._spent = max(self._spent, now) + requests * self._cost
