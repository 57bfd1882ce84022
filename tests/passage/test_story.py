"""One of three socks outbounds fails half its connections, dies and recovers, while clients go on: real proxies, real connections."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.passage.test_carried import carrying, tunnelled

from reachline.core.observing import Status
from reachline.observatory.running import Running
from reachline.testing import proxies
from reachline.testing.serving import serving
from reachline.testing.wait import until

pytestmark = pytest.mark.real

_PROMISE = 10
"""Seconds from a change to what is known of it, by the times that the observer itself tells."""


class Faulty(NamedTuple):
    """Where a proxy is reached that can be made to fail, and how often it does: every n-th connection, 0: none."""

    port: int
    every: list[int]


@contextlib.asynccontextmanager
async def faulty(port: int) -> AsyncIterator[Faulty]:
    every, number = [0], 0

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal number
        number += 1
        if every[0] and number % every[0] == 0:
            writer.transport.abort()
            return
        there, to = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_copied(reader, to))
            tasks.create_task(_copied(there, writer))

    async with serving(relay) as service:
        yield Faulty(service.port, every)


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
    await writer.drain()


async def _clients(door: int, web: int, failed: list[str]) -> None:
    """One request after the other, until cancelled."""
    said = b"GET http://127.0.0.1:%d/ HTTP/1.1\r\nHost: x\r\n\r\n" % web
    while True:
        async with tunnelled(door, said) as (reader, _):
            answer = await reader.read()
        if not answer.startswith(b"HTTP/1.1 204"):
            failed.append(answer.decode())
        await asyncio.sleep(0.02)


def _told(running: Running, tag: str) -> Status:
    (found,) = [each for each in running.statuses() or () if each.tag == tag]
    return found


def test_an_outbound_that_fails_half_dies_and_recovers_is_avoided_and_taken_again(tmp_path: Path) -> None:
    async def main() -> list[str]:
        failed: list[str] = []
        async with contextlib.AsyncExitStack() as stack:
            real = [stack.enter_context(proxies.microsocks(tmp_path)).port for _ in range(3)]
            third = await stack.enter_async_context(faulty(real[2]))
            web = await stack.enter_async_context(serving(answering))
            ports = (*real[:2], third.port)
            outbounds = [
                {"tag": f"p-{n}", "protocol": "socks", "settings": {"address": "127.0.0.1", "port": port}}
                for n, port in enumerate(ports)
            ]
            document: dict[str, Any] = {
                "burstObservatory": {
                    "subjectSelector": ["p-"],
                    "pingConfig": {"destination": f"http://127.0.0.1:{web.port}/", "interval": "10s", "sampling": 3},
                },
                "routing": {
                    "balancers": [{"tag": "b", "selector": ["p-"], "strategy": {"type": "random"}}],
                    "rules": [{"network": "tcp", "balancerTag": "b"}],
                },
            }
            door = await stack.enter_async_context(carrying(outbounds, **document))
            running = door.running
            await until(
                lambda: [each.alive for each in running.shown() or ()] == [True] * 3, within=60, what="all are known"
            )
            await until(lambda: len(running.targets("b")) == 3, within=60, what="all three share the traffic")
            task = asyncio.create_task(_clients(door.ports["in"], web.port, failed))

            began = int(time.time())
            third.every[0] = 2
            await until(lambda: "p-2" not in running.targets("b"), within=60, what="who fails half is avoided")
            assert _told(running, "p-2").tried - began <= _PROMISE
            began = int(time.time())
            third.every[0] = 1
            await until(lambda: not _told(running, "p-2").alive, within=60, what="who died is dead")
            assert _told(running, "p-2").tried - began <= _PROMISE
            began = int(time.time())
            third.every[0] = 0
            await until(lambda: _told(running, "p-2").alive, within=60, what="who recovered is alive")
            assert _told(running, "p-2").seen - began <= _PROMISE

            task.cancel()
            await asyncio.wait((task,))
        return failed

    assert asyncio.run(main()) == [], "no client saw anything of it"
