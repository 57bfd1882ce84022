"""Connections to endpoints of which TLS says, in its handshake, which version of HTTP is spoken on them (ALPN, RFC 7301)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from reachline.proxy.carrier import Carrier
from reachline.proxy.channel import EndpointChannel

__all__ = ["OFFERED", "Agreeing"]

OFFERED: Final = ("h2", "http/1.1")
"""In the order of our liking; who knows nothing of ALPN speaks HTTP/1.1."""


class Agreeing(asyncio.BaseProtocol):
    """Hands its transport on as soon as it has one. Written by the transport, once."""

    def __init__(self, make: Callable[[bool], EndpointChannel | Carrier]) -> None:
        """`make` is told whether the endpoint speaks HTTP/2."""
        self._make: Final = make
        self.channel: EndpointChannel | Carrier | None = None
        """None: no handshake came to its end."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        shaken = transport.get_extra_info("ssl_object")
        is_two = shaken is not None and shaken.selected_alpn_protocol() == OFFERED[0]
        self.channel = channel = self._make(is_two)
        transport.set_protocol(channel)  # now: what the endpoint said with its handshake is read next
        channel.connection_made(transport)
