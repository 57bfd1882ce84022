"""Servers at the far end of a lab's network: TCP that accepts, HTTP, and UDP echo.

    with impaired({}) as box, serving(box.inside, "accept:7", "http:80", directory=tmp_path):
        probe(f"http://{box.address(3)}/")

They listen on every address of their namespace, IPv4 and IPv6 where it has both.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from reachline.testing.parts import READY, started
from reachline.testing.services import service
from reachline.testing.wait import eventually

__all__ = ["serving"]

_BACKLOG: Final = 4096
"""Connections that wait to be accepted: a burst must meet the lab's faults, not ours."""
_LARGEST: Final = 65_535
_ANCILLARY: Final = 128
_IPV6_FREEBIND: Final = 78
"""linux/in6.h: may answer from addresses that are routed here but stand on no interface."""


@contextlib.contextmanager
def serving(inside: Callable[..., tuple[str, ...]], *servers: str, directory: Path) -> Iterator[None]:
    """Servers `what:port` behind `inside` (a box's or a veth's); ready when the block is entered, gone when it is left.

    What: `accept` (accepts and closes when the peer does), `http` (200 to everything), `echo` (UDP, says it back).
    """
    log = directory / "far.log"
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with started(inside(sys.executable, "-m", __name__, *servers), log=log, environ=environ) as process:

        def is_ready() -> bool:
            said = log.read_text(errors="replace")
            assert process.poll() is None, said
            return "ready" in said

        eventually(is_ready, within=READY, what=f"{servers} in the namespace")
        yield


async def _serve(servers: list[str]) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for text in servers:
            what, _, port = text.partition(":")
            await _begin(stack, what, int(port))
        print("ready", flush=True)
        await asyncio.Event().wait()


async def _begin(stack: contextlib.AsyncExitStack, what: str, port: int) -> None:
    match what:
        case "accept":
            await asyncio.start_server(_accepted, None, port, backlog=_BACKLOG)
        case "http":
            await stack.enter_async_context(service("", port))
        case "echo":
            sock = stack.enter_context(_echo_socket(port))
            asyncio.get_running_loop().add_reader(sock, _echo, sock)
        case _:
            raise SystemExit(f"{what}: only accept, http and echo can be served")


async def _accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while await reader.read(_LARGEST):
            pass
    writer.close()


def _echo_socket(port: int) -> socket.socket:
    """One socket for both families that says which address each datagram came to."""
    sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
    sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_FREEBIND, 1)
    sock.setblocking(False)
    sock.bind(("::", port))
    return sock


def _echo(sock: socket.socket) -> None:
    """Say everything back, from the address it came to: a namespace has many."""
    with contextlib.suppress(OSError):
        while True:
            data, ancillary, _, peer = sock.recvmsg(_LARGEST, _ANCILLARY)
            came_to = [each for each in ancillary if each[:2] == (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO)]
            sock.sendmsg([data], [(*each[:2], each[2][:16] + bytes(4)) for each in came_to], 0, peer)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1:]))
