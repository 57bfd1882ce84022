"""The smallest HTTP there is, both sides, for the demo's services and its callers: keep-alive, no body worth the name."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from reachline.errors import RemoteProtocolError
from reachline.model import Seconds
from reachline.testing.serving import serving

__all__ = ["Caller", "service"]

_ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nok\n"
_IDLE: Final = 8
"""Connections kept per address: what 250 calls a second need at the demo's ordinary latency."""
_MOST_HEADER: Final = 16 * 1024


@asynccontextmanager
async def service(host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[tuple[str, int]]:
    """A service that answers 200 to everything, and where it listens."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.LimitOverrunError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(_ANSWER)
                await writer.drain()

    async with serving(serve, host, port, limit=_MOST_HEADER) as found:
        yield found.address


class Caller:
    """GETs over kept connections. Written by the loop it runs on; a call that fails closes its connection."""

    def __init__(self) -> None:
        self._idle: dict[tuple[str, int], list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]] = {}

    async def get(self, address: tuple[str, int], path: str, *, timeout: Seconds) -> int:
        """The status of one GET; OSError, TimeoutError or RemoteProtocolError where there is none."""
        async with asyncio.timeout(timeout):
            reader, writer = await self._connection(address)
            is_whole = False
            try:
                writer.write(f"GET {path} HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\n\r\n".encode())
                status, length = _head(await reader.readuntil(b"\r\n\r\n"))
                await reader.readexactly(length)
                is_whole = True
            except asyncio.IncompleteReadError as error:
                raise ConnectionResetError("closed before the answer") from error
            finally:
                self._put_back(address, reader, writer, is_whole=is_whole)
            return status

    def close(self) -> None:
        """Close what is idle."""
        for kept in self._idle.values():
            for _, writer in kept:
                writer.close()
        self._idle.clear()

    async def _connection(self, address: tuple[str, int]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        kept = self._idle.get(address, [])
        while kept:
            reader, writer = kept.pop()
            if not reader.at_eof() and not writer.is_closing():
                return reader, writer
            writer.close()
        return await asyncio.open_connection(*address)

    def _put_back(
        self, address: tuple[str, int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_whole: bool
    ) -> None:
        kept = self._idle.setdefault(address, [])
        if is_whole and len(kept) < _IDLE:
            kept.append((reader, writer))
        else:
            writer.close()


def _head(head: bytes) -> tuple[int, int]:
    """Status and content length of an answer's head."""
    first, *rest = head.decode("latin-1").split("\r\n")
    parts = first.split(" ", 2)
    if len(parts) < 2 or not parts[1].isdigit():
        raise RemoteProtocolError(f"status line: {first[:60]!r}")
    lengths = [line.partition(":")[2].strip() for line in rest if line.lower().startswith("content-length:")]
    return int(parts[1]), int(lengths[0]) if lengths and lengths[0].isdigit() else 0
