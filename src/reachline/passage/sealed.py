"""A socket whose other end speaks TLS, as a socket that does not: what reads and writes it need not know.

Bytes take one more way through this process; nobody but `http` proxies behind TLS needs it. Such a connection has no half: who
ends one direction ends both.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Final

from reachline.net.pausing import hold
from reachline.talk.secure import Secure

__all__ = ["sealed"]


async def sealed(sock: socket.socket, context: ssl.SSLContext, secure: Secure) -> socket.socket:
    """Shakes hands over `sock`, which it takes for good, and gives the plain end. OSError where that fails, SSLError of TLS."""
    loop = asyncio.get_running_loop()
    inner, plain = socket.socketpair()
    try:
        inner.setblocking(False)
        plain.setblocking(False)
        outside, inside = _Side(), _Side()
        outside.other, inside.other = inside, outside
        await loop.create_connection(lambda: outside, sock=sock, ssl=context, server_hostname=secure.server_name)
        try:
            await loop.create_connection(lambda: inside, sock=inner)
        except BaseException:
            outside.end()
            raise
    except BaseException:
        inner.close()
        plain.close()
        raise
    return plain


class _Side(asyncio.Protocol):
    """One end: what comes is written to the other, no faster than that one takes it."""

    def __init__(self) -> None:
        self.other: _Side | None = None
        self._transport: asyncio.Transport | None = None
        self._early: Final[list[bytes]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        for data in self._early:
            transport.write(data)
        self._early.clear()

    def data_received(self, data: bytes) -> None:
        assert self.other is not None
        self.other.write(data)

    def connection_lost(self, _: Exception | None) -> None:
        if self.other is not None:
            self.other.end()

    def pause_writing(self) -> None:
        assert self.other is not None
        self.other.hold(True)

    def resume_writing(self) -> None:
        assert self.other is not None
        self.other.hold(False)

    def write(self, data: bytes) -> None:
        """Send it on; what comes before this end is there waits for it."""
        if self._transport is None:
            self._early.append(data)
        elif not self._transport.is_closing():
            self._transport.write(data)

    def hold(self, is_held: bool) -> None:
        """Stop reading, or go on."""
        hold(self._transport, is_held)

    def end(self) -> None:
        """Once what was written is taken."""
        if self._transport is not None:
            self._transport.close()
