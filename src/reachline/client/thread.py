"""The one thread of a client: a daemon with its own loop, started on first use, left behind in a forked child."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final

from reachline.model import Seconds

__all__ = ["Background"]

_log: Final = logging.getLogger("reachline.client")

_LEFT_BEHIND: Final[list[object]] = []
"""Loops of threads that a fork did not copy, and what ran on them. Kept, for dropping one would close what the parent still waits
on: its epoll is the parent's too, and so are its connections."""


class Background:
    """One daemon thread that runs one coroutine to its end. Started and stopped by its owner, once.

    `failed` is called in the thread where the coroutine raised.
    """

    def __init__(
        self, main: Callable[[], Coroutine[Any, Any, None]], *, name: str, failed: Callable[[], None] = lambda: None
    ) -> None:
        self._main, self._failed = main, failed
        self._loop: Final = asyncio.new_event_loop()
        self._thread: Final = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """The coroutine begins; this returns at once. RuntimeError where the system has no thread to spare.

        (Making one already asks for descriptors: OSError where there are none.)
        """
        try:
            self._thread.start()
        except RuntimeError:
            self._loop.close()
            raise

    def call(self, function: Callable[[], None]) -> None:
        """Have the thread call `function` soon; nothing happens where it has ended."""
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            # Closed between our caller's look and now: there is nobody left to tell.
            return

    def join(self, timeout: Seconds) -> bool:
        """Whether the thread has ended, waited for at most this long. Never from the thread itself."""
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def leave_behind(self, *ran: object) -> None:
        """In a forked child: the thread is not here, and neither its loop nor what `ran` there must be touched again."""
        _LEFT_BEHIND.extend((self._loop, *ran))

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._main())
        except Exception:  # noqa: BLE001 - the thread's edge: whatever it is, the user's process goes on
            _log.exception("client_thread_failed")
            self._failed()
        finally:
            self._loop.close()
