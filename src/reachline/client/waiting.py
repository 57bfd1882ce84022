"""Waiting for the client's thread without blocking the caller's own loop, be it asyncio's or trio's."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

from reachline.model import Seconds

__all__ = ["Flag"]


class Flag:
    """Set once by one thread, awaited by any number of threads and tasks. `_lock` guards `_callbacks`."""

    def __init__(self) -> None:
        self._event: Final = threading.Event()
        self._lock: Final = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []

    def set(self) -> None:
        """Wake everybody, now and later."""
        with self._lock:
            self._event.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, timeout: Seconds) -> bool:
        """Whether it was set, blocking this thread for at most `timeout`."""
        return self._event.wait(timeout)

    async def wait_async(self, timeout: Seconds) -> bool:
        """The same, blocking only this task, under asyncio or trio; under any other loop it blocks the thread."""
        if _in_trio():
            return await self._wait_trio(timeout)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return self.wait(timeout)
        woken = asyncio.Event()
        self._on_set(lambda: _soon(loop, woken))
        try:
            async with asyncio.timeout(timeout):
                await woken.wait()
        except TimeoutError:
            return self.is_set
        return True

    async def _wait_trio(self, timeout: Seconds) -> bool:
        # Only reached where the caller has imported trio and runs under it.
        trio: Any = sys.modules["trio"]
        woken, token = trio.Event(), trio.lowlevel.current_trio_token()

        def tell() -> None:
            try:
                token.run_sync_soon(woken.set)
            except trio.RunFinishedError:
                return

        self._on_set(tell)
        with trio.move_on_after(timeout):
            await woken.wait()
        return self.is_set

    def _on_set(self, callback: Callable[[], None]) -> None:
        with self._lock:
            if not self._event.is_set():
                self._callbacks.append(callback)
                return
        callback()


def _soon(loop: asyncio.AbstractEventLoop, woken: asyncio.Event) -> None:
    try:
        loop.call_soon_threadsafe(woken.set)
    except RuntimeError:
        # The waiter's loop has ended: nobody waits any more.
        return


def _in_trio() -> bool:
    trio: Any = sys.modules.get("trio")
    return trio is not None and bool(trio.lowlevel.in_trio_task())
