"""A discovery's updates, awaited one by one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from reachline.members import Update

LONGEST: Final = 20.0
"""Of any wait; nothing of it is measured."""


class Watch:
    """Updates of one discovery; `names` is what it tells of its names, where it has any."""

    def __init__(self, updates: AsyncIterator[Update], names: Callable[[], tuple[Any, ...]] = tuple) -> None:
        self._updates, self.names = updates, names
        self.last: Any = None

    async def next(self) -> Any:
        async with asyncio.timeout(LONGEST):
            self.last = await anext(self._updates)
        return self.last

    async def hosts(self) -> list[str]:
        return [each.address.host for each in (await self.next()).membership.members]

    async def addresses(self) -> list[str]:
        return [str(each.address) for each in (await self.next()).membership.members]
