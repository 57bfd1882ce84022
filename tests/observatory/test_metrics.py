"""The `metrics` address beside clients that do not behave."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from reachline.observatory.metrics import metrics
from reachline.testing.wait import until


def _open() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_who_does_not_read_the_answer_is_let_go_with_it() -> None:
    async def main() -> None:
        asked = asyncio.Event()

        async def page() -> bytes:
            asked.set()
            return bytes(10_000_000)  # more than the kernel holds

        async with metrics("127.0.0.1:0", page, place="test", patience=0.1) as port:
            before = _open()
            with socket.socket() as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
                client.setblocking(False)
                await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", port))
                client.send(b"GET /debug/vars HTTP/1.1\r\n\r\n")
                await asked.wait()
                await until(lambda: _open() == before + 1, what="the client to be let go")

    asyncio.run(main())
