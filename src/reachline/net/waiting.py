"""One way to wait for an event no longer than a limit, for every task of a role. Knows nothing of what is waited for."""

from __future__ import annotations

import asyncio

from reachline.model import Seconds

__all__ = ["within"]


async def within(event: asyncio.Event, limit: Seconds) -> bool:
    """True as soon as the event is set, also if it is already; False once `limit` has passed first. 0 or less: no wait."""
    try:
        async with asyncio.timeout(limit):
            await event.wait()
    except TimeoutError:
        return event.is_set()
    return True
