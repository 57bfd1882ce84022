"""Real calls at a steady rate through the real SDK: what the demo's weights move. A process of its own.

`python -m reachline.testing.traffic --center http://… --cluster shop` says each second, as one JSON line, how many calls
went over which line and how many failed. Open loop: a slow line does not slow the callers down.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import signal
import sys
from collections import Counter
from typing import Final

import reachline
from reachline.client import Client
from reachline.errors import RemoteProtocolError
from reachline.model import Seconds
from reachline.testing.services import Caller

__all__ = ["Traffic", "main"]

RATE: Final = 240
"""Calls a second: above the 200 that are promised, far below what a core can do (about 2 000)."""
_SLOT: Final[Seconds] = 0.025
"""Calls start in small groups: 40 wake-ups a second instead of 240."""
_PATIENCE: Final[Seconds] = 1.0
"""A caller gives up after this long, as the SDK assumes."""
_MOST_OPEN: Final = 400
"""Calls under way. A line that never answers holds 80 calls/s for one second: this is five times that."""


class Traffic:
    """Callers of one cluster. Written by its own loop; `counted` hands out and forgets."""

    def __init__(self, client: Client, cluster: str, *, path: str = "/") -> None:
        self._client = client
        self._cluster = cluster
        self._path = path
        self._caller = Caller()
        self._calls: Counter[str] = Counter()
        self._failed = 0
        self._skipped = 0
        self._open = 0

    async def run(self, rate: int = RATE) -> None:
        """Call until cancelled."""
        loop = asyncio.get_running_loop()
        start, made = loop.time(), 0
        try:
            async with asyncio.TaskGroup() as calls:
                while True:
                    due = int((loop.time() - start) * rate)
                    for _ in range(due - made):
                        self._begin(calls)
                    made = due
                    await asyncio.sleep(_SLOT)
        finally:
            self._caller.close()

    def counted(self, over: Seconds) -> dict[str, object]:
        """What the calls since the last time came to, per second, and whose lines the callers' own breaker refuses now."""
        report = {
            "rates": {line: round(count / over, 1) for line, count in sorted(self._calls.items())},
            "failed": round(self._failed / over, 1),
            "skipped": round(self._skipped / over, 1),
            "open": list(self._client.stats().clusters[self._cluster].open),
        }
        # Lines stay in the list with rate 0: that nothing goes there any more is the news.
        self._calls = Counter(dict.fromkeys(self._calls, 0))
        self._failed = self._skipped = 0
        return report

    def _begin(self, calls: asyncio.TaskGroup) -> None:
        if self._open >= _MOST_OPEN:
            self._skipped += 1
            return
        self._open += 1
        calls.create_task(self._call())

    async def _call(self) -> None:
        attempt = self._client.cluster(self._cluster).attempt()
        try:
            async with attempt:
                if attempt.address is None:
                    self._failed += 1
                    return
                self._calls[str(attempt.line)] += 1
                attempt.status(await self._caller.get(attempt.address, self._path, timeout=_PATIENCE))
        except (OSError, TimeoutError, RemoteProtocolError):
            self._failed += 1
        finally:
            self._open -= 1


async def _run(center: str, cluster: str, rate: int, path: str) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    # The SDK warns when a breaker of its own opens: here that is the play, and the console tells it.
    logging.getLogger("reachline").setLevel(logging.ERROR)
    async with await reachline.connect(center, clusters=[cluster], service="demo") as client:
        traffic = Traffic(client, cluster, path=path)
        calling = asyncio.create_task(traffic.run(rate))
        last = loop.time()
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), 1.0)
            now = loop.time()
            print(json.dumps(traffic.counted(now - last)), flush=True)
            last = now
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)


def main() -> int:
    """The process; its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--center", required=True)
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--rate", type=int, default=RATE)
    parser.add_argument("--path", default="/")
    asked = parser.parse_args()
    with contextlib.suppress(BrokenPipeError):
        asyncio.run(_run(asked.center, asked.cluster, asked.rate, asked.path))
    return 0


if __name__ == "__main__":
    sys.exit(main())
