"""Calls through the SDK at the promised rate, and what came of them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from reachline.client import Client
from reachline.testing.services import Caller

__all__ = ["RATE", "Traffic", "is_steady"]

RATE: Final = 240
"""Calls a second: above the promised 200."""
GIVES_UP: Final = 1.0
PAUSE: Final = 0.02


class Traffic:
    """Calls through the SDK at a steady rate, on a thread of its own. Everything Reachline raises lands in `raised`."""

    def __init__(self, client: Client) -> None:
        self.client, self.calls, self.raised = client, Counter[str](), list[BaseException]()
        self.last: dict[str, float] = {}
        self.held: list[tuple[float, float]] = []
        """When, and how many seconds longer than asked for, its own loop was kept from its turn."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    async def _run(self) -> None:
        caller = Caller()
        start, made = time.monotonic(), 0
        async with asyncio.TaskGroup() as tasks:
            while not self._stop.is_set():
                due = int((time.monotonic() - start) * RATE)
                for _ in range(due - made):
                    tasks.create_task(self._call(caller))
                made = due
                asleep = time.monotonic()
                await asyncio.sleep(PAUSE)
                self.held.append((asleep, time.monotonic() - asleep - PAUSE))
        caller.close()

    async def _call(self, caller: Caller) -> None:
        try:
            attempt = self.client.cluster("shop").attempt()
            with attempt as call:
                line = str(call.line)
                self.calls[line] += 1
                self.last[line] = time.monotonic()
                assert call.address is not None
                call.status(await caller.get(call.address, "/", timeout=GIVES_UP))
        except (OSError, TimeoutError):
            self.calls["failed"] += 1
        except Exception as error:  # noqa: BLE001  whatever Reachline raises is what this test looks for
            self.raised.append(error)

    @contextmanager
    def running(self) -> Iterator[Traffic]:
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join(10)

    def held_up(self, since: float) -> float:
        """Seconds that the machine took from the callers since then."""
        return sum(late for asleep, late in self.held if asleep >= since - PAUSE)

    def over(self, seconds: float) -> Counter[str]:
        """Calls by line within a span that begins now."""
        before = Counter(self.calls)
        threading.Event().wait(seconds)
        return Counter(self.calls) - before


def is_steady(client: Client) -> bool:
    """The client has heard from the center and every line it may use."""
    return len(client.cluster("shop").lines()) == 3
