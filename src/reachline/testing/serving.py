"""Scripted services on a stream: what a test starts here is gone with all its connections when it is closed.

`asyncio.start_server` alone leaves them: a handler that was cancelled before its first step never closes its writer, and a
connection accepted just now is nobody's yet. Here each is known from its first moment, and the end waits for the last of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol, Self

from reachline.model import Seconds
from reachline.net.hush import hush

__all__ = ["Serve", "Service", "serving"]

_LIMIT: Final = 1 << 20
"""Bytes of one line or head: far above what a test sends, so that it meets what it tests and no bound of ours."""
_BACKLOG: Final = 512
"""Connections that wait to be accepted: a storm of clients must meet the service, not the kernel's bound."""
_CLOSE_TIMEOUT: Final[Seconds] = 10.0
"""For aborted connections to be gone: the loop's next turns do it, on a machine however busy."""


class Serve(Protocol):
    """Talks with one client. Its connection is closed when it returns; that a client goes away is no error."""

    def __call__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, /
    ) -> Coroutine[Any, Any, object]: ...


class Service:
    """One listener and its connections. Written by the loop it was started on."""

    def __init__(self, serve: Serve, *, limit: int = _LIMIT) -> None:
        """`limit`: bytes that are read ahead of the handler, and of the longest line or head."""
        self.connections = 0
        """Ever made."""
        self._serve, self._limit = serve, limit
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens; OSError where it does not."""
        if self._server is None or not self._server.sockets:
            raise OSError("it does not listen")
        host, port = self._server.sockets[0].getsockname()[:2]
        return str(host), int(port)

    @property
    def port(self) -> int:
        """That of `address`."""
        return self.address[1]

    @property
    def open(self) -> int:
        """Connections now, until their last byte is taken or they are cut off."""
        return len(self._open)

    async def listen(
        self, host: str = "127.0.0.1", port: int = 0, *, at: str = "", tls: ssl.SSLContext | None = None
    ) -> Self:
        """Take connections from now on, at a Unix socket where `at` names one; no host: any. OSError where the address is taken."""
        if at:
            self._server = await asyncio.start_unix_server(
                self._accept, at, ssl=tls, limit=self._limit, backlog=_BACKLOG
            )
        else:
            self._server = await asyncio.start_server(
                self._accept, host or None, port, ssl=tls, limit=self._limit, backlog=_BACKLOG, reuse_address=True
            )
        return self

    async def hush(self) -> None:
        """Listen no more; connections go on. All that were accepted are among them."""
        if self._server is not None:
            await hush(self._server)
            self._server = None

    async def close(self) -> None:
        """Listen no more and cut off every connection; they are gone when this returns. Idempotent."""
        await self.hush()
        left = tuple(self._open.items())
        for task, writer in left:
            task.cancel()
            writer.transport.abort()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await asyncio.gather(*(task for task, _ in left), return_exceptions=True)
                # A task that was cancelled before its first step has waited for nothing.
                await asyncio.gather(*(writer.wait_closed() for _, writer in left), return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.get_running_loop().create_task(self._talk(reader, writer))
        self._open[task] = writer
        task.add_done_callback(self._open.pop)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            try:
                await self._serve(reader, writer)
            finally:
                writer.close()
            # Shielded: who is cancelled while it waits would cancel the wait of everybody else as well.
            await asyncio.shield(writer.wait_closed())


@asynccontextmanager
async def serving(
    serve: Serve,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    at: str = "",
    tls: ssl.SSLContext | None = None,
    limit: int = _LIMIT,
) -> AsyncIterator[Service]:
    """A service until the end of the block, after which nothing of it is left."""
    service = await Service(serve, limit=limit).listen(host, port, at=at, tls=tls)
    try:
        yield service
    finally:
        await service.close()
