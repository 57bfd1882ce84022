"""Timers for many that wait equally long: one of the loop's for all of them, two dictionary operations for each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from reachline.model import Seconds

__all__ = ["Alarm"]

T = TypeVar("T", bound=Hashable)

_GRAIN: Final[Seconds] = 0.001
"""Who is due within a millisecond is rung now: the loop's own clock is no finer."""


class Alarm(Generic[T]):
    """Rings for each `who` once `after` seconds have passed since `set`, unless `clear` came first. Of one loop's thread."""

    __slots__ = ("_after", "_handle", "_loop", "_ring", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop, after: Seconds, ring: Callable[[T], None]) -> None:
        self._loop: Final = loop
        self._after: Final = after
        self._ring: Final = ring
        self._waiting: Final[dict[T, Seconds]] = {}
        """Until when, the soonest first: all wait equally long."""
        self._handle: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def set(self, who: T) -> None:
        """Begin, or begin anew."""
        waiting = self._waiting
        waiting.pop(who, None)
        due = waiting[who] = self._loop.time() + self._after
        if self._handle is None:
            self._handle = self._loop.call_at(due, self._due)

    def clear(self, who: T) -> None:
        """No longer; nothing where it does not wait."""
        self._waiting.pop(who, None)

    def close(self) -> None:
        """Nobody waits any more."""
        self._waiting.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _due(self) -> None:
        self._handle = None
        waiting, soon = self._waiting, self._loop.time() + _GRAIN
        while waiting:
            who, due = next(iter(waiting.items()))
            if due > soon:
                if self._handle is None:
                    self._handle = self._loop.call_at(due, self._due)
                return
            del waiting[who]
            self._ring(who)
