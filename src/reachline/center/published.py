"""A value that one writer replaces whole and many read: a reference, no lock, and a way to wait for the next."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from reachline.model import Seconds
from reachline.net import waiting

__all__ = ["Published"]

Value = TypeVar("Value")


class Published(Generic[Value]):
    """One cell. The owner's task writes it by `replace`; everybody else reads `value` or waits."""

    __slots__ = ("_next", "value")

    def __init__(self, value: Value) -> None:
        self.value = value
        self._next = asyncio.Event()

    def replace(self, value: Value) -> None:
        """The new value stands for every reader from now on, and all who wait wake up."""
        self.value = value
        ended, self._next = self._next, asyncio.Event()
        ended.set()

    async def changed(self, *, within: Seconds) -> bool:
        """True as soon as the value is replaced, False when `within` passes first."""
        return await waiting.within(self._next, within)
