"""What retries do to the far side: requests that reach the lines for each call that is made, while one line is ill.

Many processes call through the SDK at a steady rate; the lines are servers that count what reaches them. One of them leaves a
share of its requests unanswered. The ratio is counted, not timed; 1.2 is what the far side is promised.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import reachline
from reachline.errors import ReachlineError
from reachline.testing.door import document, line, serving
from reachline.testing.services import Caller
from reachline.upstream import Attempt

TIMEOUT = 1.0
"""Of one try, as the source document has it; a call as a whole has four of them."""
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Counted(NamedTuple):
    """One run: calls that were made and failed for good, tries that reached each line, and those that went unanswered."""

    calls: int
    failed: int
    reached: dict[str, int]
    unanswered: int

    @property
    def amplification(self) -> float:
        """Requests at the lines for each call."""
        return sum(self.reached.values()) / self.calls


class Lines:
    """Servers in a thread of their own; the first one leaves `share` of its requests unanswered."""

    def __init__(self, count: int, share: float) -> None:
        self.reached = {chr(ord("a") + number): 0 for number in range(count)}
        self.ports: dict[str, int] = {}
        self.unanswered = 0
        self._share, self._rng = share, random.Random(1)
        self._serving: dict[asyncio.Task[None] | None, asyncio.StreamWriter] = {}
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._ready.wait(10)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join(10)

    async def _run(self) -> None:
        self._loop, self._done = asyncio.get_running_loop(), asyncio.Event()
        servers = []
        for name in self.reached:
            server = await asyncio.start_server(
                lambda *ends, name=name: self._serve(name, *ends), "127.0.0.1", 0, backlog=512
            )
            servers.append(server)
            self.ports[name] = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._done.wait()
        for each in servers:
            each.close()
        # Closed, not cancelled: asyncio reports a cancelled server task as an error.
        tasks = [each for each in self._serving if each is not None]
        for writer in tuple(self._serving.values()):
            writer.close()
        if tasks:
            await asyncio.wait(tasks, timeout=10)

    async def _serve(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._serving[task] = writer
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                self.reached[name] += 1
                if name == "a" and self._rng.random() < self._share:
                    self.unanswered += 1
                    await reader.read()  # until the caller gives up
                    break
                writer.write(ANSWER)
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            del self._serving[task]
            writer.close()


@contextmanager
def lines(count: int, share: float) -> Iterator[Lines]:
    made = Lines(count, share)
    made.start()
    try:
        yield made
    finally:
        made.stop()


def measure(
    *, processes: int, rate: float, seconds: float, count: int = 3, share: float = 0.4, breaker: bool = True
) -> Counted:
    """Calls from so many processes, `rate` a second together, to `count` lines of which one leaves `share` unanswered."""
    with lines(count, share) as far, serving() as center:
        rows = [line(name, 100, address=f"http://127.0.0.1:{port}") for name, port in far.ports.items()]
        center.door.publish(document(*rows))
        command = [sys.executable, "-m", "benchmarks.retries", "--call", center.url]
        command += ["--rate", str(rate / processes), "--seconds", str(seconds), *([] if breaker else ["--no-breaker"])]
        children = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(processes)
        ]
        # All begin together: starting twenty interpreters is more work than their calls.
        for each in children:
            assert each.stdout is not None
            each.stdout.readline()
        for each in children:
            assert each.stdin is not None
            each.stdin.write("go\n")
            each.stdin.flush()
        told = [json.loads(each.communicate(timeout=seconds + 120)[0]) for each in children]
    calls, failed = (sum(each[name] for each in told) for name in ("calls", "failed"))
    return Counted(calls, failed, dict(far.reached), far.unanswered)


async def call(center: str, rate: float, seconds: float, *, breaker: bool) -> dict[str, int]:
    """One process's calls, as the others make them: by the clock, whatever becomes of those before."""
    failed, caller = 0, Caller()
    async with await reachline.connect(center, clusters=["payments"], local_breaker=breaker) as client:
        payments = client.cluster("payments")

        async def get(attempt: Attempt) -> int:
            assert attempt.address is not None
            return await caller.get(attempt.address, "/", timeout=min(TIMEOUT, attempt.remaining or TIMEOUT))

        async def one() -> None:
            nonlocal failed
            try:
                await payments.acall(get, idempotent=True, deadline=4 * TIMEOUT)
            except (OSError, ReachlineError):
                failed += 1

        print("ready", flush=True)
        loop, made = asyncio.get_running_loop(), 0
        await asyncio.to_thread(sys.stdin.readline)
        began = loop.time()
        async with asyncio.TaskGroup() as group:
            while (now := loop.time() - began) < seconds:
                while made < now * rate:
                    group.create_task(one())
                    made += 1
                await asyncio.sleep(1 / rate)
        caller.close()
    return {"calls": made, "failed": failed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=20)
    parser.add_argument("--rate", type=float, default=1_100.0, help="calls a second, all processes together")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument(
        "--no-breaker", action="store_true", help="keep the ill line in: the budget alone holds the retries"
    )
    parser.add_argument("--call", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.call:
        print(json.dumps(asyncio.run(call(args.call, args.rate, args.seconds, breaker=not args.no_breaker))))
        return
    from reachline.testing.bench import Figure, finish  # noqa: PLC0415  (what draws tables is not for those who call)

    figures = []
    for what, breaker in [("local breaker and budget", True), ("budget alone", False)]:
        found = measure(processes=args.processes, rate=args.rate, seconds=args.seconds, breaker=breaker)
        print(f"{what}: {found}")
        ratio, lost = found.amplification, 100 * found.failed / found.calls
        figures.append(Figure(f"requests at the lines for each call: {what}", "", ratio, ratio, ratio, 1, "≤ 1.2"))
        figures.append(Figure("calls that failed for good", "%", lost, lost, lost, 1))
    finish("retries", figures)


if __name__ == "__main__":
    main()
