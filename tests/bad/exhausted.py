"""A process whose descriptors run out beside a good line, twice: `python -m tests.bad.exhausted` prints what came of the second time.

It is one of its own because the limit is the process's.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import resource
import socket
from collections.abc import Iterable

from tests.bad.room import held, settled
from tests.net.conftest import Ended, Lab, make_job, serving

from reachline.net.engine import Job
from reachline.testing.wait import until

GOOD, STUCK, LEFT = 20, 300, 40
"""Attempts of each kind on the good line; silent targets; descriptors that are left for them."""
PARTS = ("stuck", "pings", "answered", "unsent", "beside", "later")
"""By hundreds of tokens: silent targets; of the good line pings while there is no descriptor, what was under way before, connects
while there is none, connects once its own are back and the silent ones still hold theirs, and connects later."""
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Scene:
    """An engine, a peer that never answers, one that answers when told. Written by one task."""

    def __init__(self, engine: Lab, *, mute: int) -> None:
        self.engine, self.mute, self.slow = engine, mute, 0
        self.arrived: list[bytes] = []
        self.told = asyncio.Event()

    async def patient(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The good line's peer."""
        self.arrived.append(await reader.read(4096))
        await self.told.wait()
        writer.write(OK)
        await writer.drain()

    def start(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            self.engine.engine.start(job, at=self.engine.engine.now())

    async def ended(self, count: int) -> None:
        await until(lambda: len(self.engine.ended) >= count, within=30, every=0.002, what=f"{count} results")

    async def run_out(self) -> dict[str, list[Ended]]:
        """The good line's questions are out, then the descriptors end, and its answers come while there are none."""
        self.arrived.clear()
        self.told.clear()
        self.start(make_job(f"http://127.0.0.1:{self.slow}/", token=1_200 + n) for n in range(GOOD))
        await until(lambda: len(self.arrived) == GOOD, every=0.002, what="all questions of the good line")
        await self.engine.one(make_job("icmp://127.0.0.1"))  # all pings share one socket, open from now on
        self.engine.ended.clear()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        taken = held().files
        free = (number for number in range(soft) if number not in taken)
        resource.setrlimit(resource.RLIMIT_NOFILE, (next(itertools.islice(free, LEFT, None)), hard))
        await self.without()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        self.start(make_job(f"tcp://127.0.0.1:{self.mute}", token=1_500 + n) for n in range(GOOD))
        await self.ended(STUCK + 5 * GOOD)
        parts: dict[str, list[Ended]] = {name: [] for name in PARTS}
        for result in self.engine.ended:
            parts[PARTS[max(0, result.token // 100 - 10)]].append(result)
        self.engine.ended.clear()
        return parts

    async def without(self) -> None:
        """What happens while all descriptors are taken."""
        silent = f"http://127.0.0.1:{self.mute}/"
        self.start(make_job(silent, token=n, timeout=1.0, patience=0.2) for n in range(STUCK))
        await self.ended(STUCK - LEFT - 2)
        self.start(make_job("icmp://127.0.0.1", token=1_100 + n) for n in range(GOOD))
        self.start(make_job(f"tcp://127.0.0.1:{self.mute}", token=1_300 + n) for n in range(GOOD))
        await self.ended(STUCK - LEFT - 2 + 2 * GOOD)
        self.told.set()
        await self.ended(STUCK - LEFT - 2 + 3 * GOOD)
        self.start(make_job(f"tcp://127.0.0.1:{self.mute}", token=1_400 + n) for n in range(GOOD))
        await self.ended(STUCK + 4 * GOOD)


def shown(result: Ended) -> tuple[object, ...]:
    return result.failure and result.failure.name, result.note, result.clock.name, result.late, result.sent, result.lost


async def main() -> None:
    """The first time makes what is made once; the second is measured."""
    with socket.create_server(
        ("127.0.0.1", 0), backlog=1024
    ) as listener:  # the kernel accepts: that takes no descriptor
        async with Lab(limit=1_000) as engine:
            scene = Scene(engine, mute=listener.getsockname()[1])
            async with serving(scene.patient) as scene.slow:
                await scene.run_out()
                before = await settled(held())
                parts = await scene.run_out()
                after = await settled(before)
    found = {name: [shown(result) for result in results] for name, results in parts.items()}
    print(json.dumps([found, sorted(after.files - before.files), after.memory - before.memory]))


if __name__ == "__main__":
    asyncio.run(main())
