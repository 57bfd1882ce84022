"""Which idle connections end, and which only look idle."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from tests.proxy.world import WITHIN

from reachline.doors.envoy.chain import HttpManager
from reachline.doors.envoy.routes import RouteConfig
from reachline.proxy.downstream import Downstream
from reachline.proxy.flags import LocalReply
from reachline.proxy.front import Front

QUESTION = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"
LATE = 100.0
"""Seconds that the loop was away."""


MANAGER = HttpManager(stat_prefix="in", routes=RouteConfig())
MANAGERS = {
    "drained": MANAGER,
    "idle": replace(MANAGER, idle_timeout=LATE / 2),
    "old": replace(MANAGER, max_connection_duration=LATE / 2),
}


def front(manager: HttpManager) -> Front:
    return Front(manager, lambda *_: LocalReply(200, b"here"), counts=Counter(), rng=Random(1), wall=time.time)


async def heard(client: socket.socket) -> bytes:
    found = b""
    async with asyncio.timeout(WITHIN):
        while data := await asyncio.get_running_loop().sock_recv(client, 1 << 16):
            found += data
            if b"here" in found:
                break
    return found


@pytest.mark.parametrize("ends", MANAGERS)
@pytest.mark.parametrize("has_asked", [True, False])
def test_who_has_asked_is_answered_where_the_loop_was_too_late_to_read_it(ends: str, has_asked: bool) -> None:
    async def main() -> bytes:
        loop = asyncio.get_running_loop()
        made = front(MANAGERS[ends])
        ours, client = socket.socketpair()
        client.setblocking(False)
        ours.setblocking(False)
        await loop.connect_accepted_socket(lambda: Downstream(made), ours)
        (down,) = made.connections
        down.since -= LATE
        down.idle_since -= LATE

        if has_asked:
            client.send(QUESTION)  # and the loop does not come to it before…
        if ends == "drained":
            made.drain()
        else:
            made.sweep(made.now())

        found = await heard(client)
        made.close()
        client.close()
        return found

    assert (b"here" in asyncio.run(main())) is has_asked
