"""Ways to wait, for every task of a role: for an event, no longer than a limit; for work that is done aside. Knows nothing of what is waited for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from reachline.model import Seconds

__all__ = ["aside", "within"]


async def within(event: asyncio.Event, limit: Seconds) -> bool:
    """True as soon as the event is set, also if it is already; False once `limit` has passed first. 0 or less: no wait."""
    try:
        async with asyncio.timeout(limit):
            await event.wait()
    except TimeoutError:
        return event.is_set()
    return True


async def aside(work: Callable[[], None], *, name: str) -> None:
    """Have work done in a daemon thread of its own, and be there again once it is; what it raises is raised. It is not broken off.

    Not by `asyncio.to_thread`: executors refuse work from the end of the main thread on, and other threads may go on for hours.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def run() -> None:
        error: BaseException | None = None
        try:
            work()
        except BaseException as raised:  # noqa: BLE001 - it is raised where it is waited for
            error = raised
        try:
            loop.call_soon_threadsafe(_end, done, error)
        except RuntimeError:
            return  # the loop is gone, and with it who waited

    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError:
        work()  # the system has no thread to spare
    else:
        await done


def _end(done: asyncio.Future[None], error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
