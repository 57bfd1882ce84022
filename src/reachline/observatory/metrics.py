"""The `metrics` address: plain HTTP, one page, as Go's expvar serves it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from reachline.errors import ConfigError
from reachline.model import Seconds
from reachline.net.binding import refused

__all__ = ["metrics"]

_MOST_HEAD: Final = 8_192
"""Bytes of a request: what a panel asks has a fortieth of it."""
_MOST: Final = 64
"""Requests at once: a panel makes one."""
_PATIENCE: Final[Seconds] = 5.0
"""For a request to come and its answer to go: the most patient panel waits as long."""


@asynccontextmanager
async def metrics(
    address: str, page: Callable[[], Awaitable[bytes]], *, place: str, patience: Seconds = _PATIENCE
) -> AsyncIterator[int]:
    """Serve `page()` at `/debug/vars` inside the block; the port. ConfigError where the address cannot be had."""
    host, _, port = address.rpartition(":")
    serving: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(writer)
        writer.transport.set_write_buffer_limits(0)  # an answer is out when all of it is
        try:
            if len(serving) <= _MOST:
                async with asyncio.timeout(patience):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(await _answer(head, page))
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.transport.abort()  # whoever asks so gets no answer, and no memory for one that is not read
        finally:
            serving.discard(writer)
            writer.close()

    try:
        server = await asyncio.start_server(serve, host.strip("[]"), int(port), limit=_MOST_HEAD)
    except OSError as error:
        raise ConfigError(refused(error, address, path="metrics.listen", place=place)) from error
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for each in tuple(serving):
            each.transport.abort()


async def _answer(head: bytes, page: Callable[[], Awaitable[bytes]]) -> bytes:
    words = head.split(b"\r\n", 1)[0].split(b" ")
    if len(words) != 3:
        return _whole(b"400 Bad Request", b"")
    method, target, _ = words
    if target.split(b"?")[0] != b"/debug/vars":
        return _whole(b"404 Not Found", b"")
    if method not in {b"GET", b"HEAD"}:
        return _whole(b"405 Method Not Allowed", b"")
    return _whole(b"200 OK", await page(), is_head=method == b"HEAD")


def _whole(status: bytes, body: bytes, *, is_head: bool = False) -> bytes:
    head = b"HTTP/1.1 %b\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    return head % (status, len(body)) + (b"" if is_head else body)
