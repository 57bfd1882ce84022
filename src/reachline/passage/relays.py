"""Associations of our own with outbounds' SOCKS5 proxies: one for each proxy, for as long as its control connection lasts."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable
from typing import Final

from reachline.doors.observatory.carrying import Way
from reachline.model import Seconds
from reachline.net.resolve import Resolver
from reachline.passage.dialing import Dialed, dial
from reachline.passage.leaving import Path, leaving
from reachline.talk.hop import Hop
from reachline.talk.secure import is_address
from reachline.wire import socks5

__all__ = ["Relays"]

_DIAL: Final[Seconds] = 16.0
_PIECE: Final = 512
_LARGEST: Final = 65_535
_MOST_READ: Final = 64
"""Datagrams of one turn."""


class _Relay:
    """One of them."""

    __slots__ = ("control", "path", "until")

    def __init__(self) -> None:
        self.control: socket.socket | None = None
        self.path: Path | None = None
        self.until: Seconds = 0.0
        """When it is tried again where there is none."""


class Relays:
    """Written by its loop. `heard` gets the socket, a datagram in a client's own form and the size of its content; `gone` the socket
    of a proxy that went.
    """

    def __init__(
        self,
        resolver: Resolver,
        events: Counter[str],
        *,
        heard: Callable[[socket.socket, bytes, int], None],
        gone: Callable[[socket.socket], None],
        again: Seconds,
    ) -> None:
        self._loop: Final = asyncio.get_running_loop()
        self._resolver: Final = resolver
        self._events: Final = events
        self._heard: Final = heard
        self._gone: Final = gone
        self._again: Final = again
        self._relays: Final[dict[tuple[Hop, str, str], _Relay]] = {}
        """By proxy, source and interface."""
        self._lock: Final = asyncio.Lock()  # guards the making of relays: one for each outbound

    async def path(self, way: Way, hop: Hop, host: str, port: int) -> Path | None:
        """To a target by this proxy; None: it could not be had, and is not tried again at once."""
        async with self._lock:
            relay = self._relays.setdefault((hop, way.source, way.interface), _Relay())
            if relay.path is None and self._loop.time() >= relay.until:
                await self._associate(relay, way, hop)
        return None if relay.path is None else relay.path._replace(before=socks5.wrapping(host, port))

    def close(self) -> None:
        """All of them."""
        for relay in self._relays.values():
            self._let_go(relay)

    async def _associate(self, relay: _Relay, way: Way, hop: Hop) -> None:
        """With the proxy; where that cannot be, nothing stays open."""
        straight = way._replace(hops=())
        made = await dial(straight, hop.endpoint.host, hop.endpoint.port, resolver=self._resolver, timeout=_DIAL)
        try:
            if isinstance(made, Dialed):
                relay.control = made.sock
                relay.path = await self._asked(made.sock, way, hop)
        finally:
            if relay.path is None:
                self._let_go(relay)
                relay.until = self._loop.time() + self._again
        if relay.path is not None and relay.control is not None:
            self._loop.add_reader(relay.path.sock, self._from_relay, relay.path.sock)
            self._loop.add_reader(relay.control, self._from_proxy, relay, relay.control)

    async def _asked(self, control: socket.socket, way: Way, hop: Hop) -> Path | None:
        """Where the proxy takes datagrams, None: nowhere."""
        talk = socks5.Connect("0.0.0.0", 0, user=hop.user, password=hop.password, command=socks5.ASSOCIATE)
        async with asyncio.timeout(_DIAL):
            said: bytes | None = talk.begin()
            while said is not None:
                await self._loop.sock_sendall(control, said)
                data = await self._loop.sock_recv(control, _PIECE)
                if not data:
                    return None
                said = talk.received(data)
        at = socks5.unwrapped(b"\0\0\0" + talk.bound) if talk.reply == socks5.SUCCEEDED else None
        if at is None:
            return None
        # 0.0.0.0 means the proxy's own address, as the control connection knows it.
        host = str(control.getpeername()[0]) if at[0] in {"0.0.0.0", "::"} else at[0]
        if not is_address(host):
            return None
        sock = leaving(socket.AF_INET6 if ":" in host else socket.AF_INET, way)
        try:
            sock.connect((host, at[1]))
        except BaseException:
            sock.close()
            raise
        return Path(sock, (host, at[1]))

    def _from_proxy(self, relay: _Relay, control: socket.socket) -> None:
        """Its association lasts as long as its control connection, on which it has nothing to say."""
        try:
            data = control.recv(_PIECE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._events["relays_gone"] += 1
            self._let_go(relay)

    def _let_go(self, relay: _Relay) -> None:
        """With its sockets."""
        path, control = relay.path, relay.control
        relay.path = relay.control = None
        for sock in (control, None if path is None else path.sock):
            if sock is not None:
                self._loop.remove_reader(sock)
                sock.close()
        if path is not None:
            self._gone(path.sock)

    def _from_relay(self, sock: socket.socket) -> None:
        """It is connected: only the relay is heard, and what it says is in a client's own form already."""
        for _ in range(_MOST_READ):
            try:
                data = sock.recv(_LARGEST)
            except OSError:
                return
            if (found := socks5.unwrapped(data)) is not None:
                self._heard(sock, data, len(data) - found[2])
