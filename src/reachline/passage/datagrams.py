"""UDP of a SOCKS5 client: each target routed as a connection is, straight or by a SOCKS5 proxy's own association.

Lives as long as the client's control connection, and no longer than its patience. Bounded: targets, datagrams that wait while a
target is routed, and their bytes. Who was not written to is not heard. What could not be had, and what went by a proxy that is gone,
is tried again; by where nothing came back for a while it is asked whether it is still the outbound to go by.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from reachline.doors.observatory.carrying import Exit, Way
from reachline.errors import RemoteProtocolError
from reachline.model import Seconds
from reachline.net.resolve import Resolver
from reachline.passage.dialing import resolve
from reachline.passage.leaving import Path, bound, leaving
from reachline.passage.relays import Relays
from reachline.talk.hop import Scheme
from reachline.talk.secure import is_address
from reachline.wire import socks5
from reachline.wire.entering import is_target

__all__ = ["Association", "Routed"]

Routed = Callable[[str, int, Way | None], Awaitable[Way | None]]
"""The outbound for datagrams to a host and port, None: none. The one they go by, where there is one, stays while it may."""

_MOST_TARGETS: Final = 256
"""Of one client: a browser has some dozen, a DNS forwarder its servers; the one that is longest known goes."""
_MOST_WAITING: Final = 16
"""Datagrams of one target while it is routed: a QUIC client's first flight has up to ten."""
_MOST_BYTES: Final = 1 << 20
"""Of all datagrams of one client that wait: first flights of fifty QUIC connections."""
_AGAIN: Final[Seconds] = 5.0
"""Until what could not be had is tried again, by a datagram that comes: as long as a name that was not found is not asked for. And of
silence until it is asked whether a target goes by its outbound still: those who answer seldom take longer."""
_LARGEST: Final = 65_535
_MOST_READ: Final = 64
"""Datagrams of one turn."""
_PIECE: Final = 512
_ANY: Final = 0


class _Flow:
    """One target."""

    __slots__ = ("asked", "is_ready", "path", "until", "waiting", "way")

    def __init__(self) -> None:
        self.way: Way | None = None
        self.path: Path | None = None
        self.asked: Seconds = 0.0
        """When it was routed last."""
        self.is_ready = False
        self.until: Seconds = 0.0
        """When it is tried again where there is no path."""
        self.waiting: list[bytes] = []


class Association:
    """Written by its loop; `run` owns the control connection as long as it runs, and all sockets it makes."""

    def __init__(
        self,
        control: socket.socket,
        host: str,
        client: str,
        *,
        routed: Routed,
        resolver: Resolver,
        events: Counter[str],
        idle: Seconds,
        again: Seconds = _AGAIN,
    ) -> None:
        """Takes datagrams at `host` from the address `client`. OSError where that cannot be."""
        self.sent = self.heard = 0
        self._loop: Final = asyncio.get_running_loop()
        self._control: Final = control
        self._client: Final = client
        self._peer: tuple[str, int] | None = None
        """Where the client's datagrams come from: its first one says."""
        self._routed: Final = routed
        self._resolver: Final = resolver
        self._events: Final = events
        self._idle: Final = idle
        self._again: Final = again
        self._flows: Final[dict[tuple[str, int], _Flow]] = {}
        self._direct: Final[dict[tuple[str, str, int], socket.socket]] = {}
        """By source, interface and family."""
        self._relays: Final = Relays(resolver, events, heard=self._to_client, gone=self._gone, again=again)
        self._heard_at: Final[dict[socket.socket, Seconds]] = {}
        """When something last came back by a socket."""
        self._known: Final[Counter[tuple[str, int]]] = Counter()
        """Addresses that are written to, with the number of targets that mean them."""
        self._waiting = 0
        """Bytes that wait."""
        self._routing: asyncio.TaskGroup | None = None
        self._sock: Final = bound(host)

    @property
    def address(self) -> tuple[str, int]:
        """Where datagrams are taken."""
        host, port = self._sock.getsockname()[:2]
        return str(host), int(port)

    async def run(self) -> None:
        """Until the client's control connection ends, or nothing stirs for too long."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._routing = tasks
                self._loop.add_reader(self._sock, self._from_client)
                await self._kept()
                self._routing = None
                raise _Over
        except* _Over:
            pass
        finally:
            self._close()

    async def _kept(self) -> None:
        before = -1
        while self.sent + self.heard != before:
            before = self.sent + self.heard
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._idle):
                    while await self._loop.sock_recv(self._control, _PIECE):
                        pass
                    return
        self._events["idle"] += 1

    def _close(self) -> None:
        self._relays.close()
        for sock in (self._sock, *self._direct.values()):
            self._loop.remove_reader(sock)
            sock.close()

    def _from_client(self) -> None:
        for _ in range(_MOST_READ):
            try:
                data, peer = self._sock.recvfrom(_LARGEST)
            except OSError:
                return
            if peer[0] != self._client or (self._peer is not None and peer[:2] != self._peer):
                self._events["strange_datagrams"] += 1
                continue
            found = socks5.unwrapped(data)
            if found is None or not is_target(found[0], found[1]):
                self._events["bad_datagrams"] += 1
                continue
            self._peer = peer[:2]
            self._for(found[0], found[1], data[found[2] :])

    def _for(self, host: str, port: int, content: bytes) -> None:
        flow = self._flows.get((host, port)) or self._new(host, port)
        if flow is None:
            self._events["dropped_datagrams"] += 1
        elif not flow.is_ready:
            self._keep(flow, content)
        elif flow.path is None and self._loop.time() >= flow.until and self._routing is not None:
            flow.is_ready = False
            self._keep(flow, content)
            self._routing.create_task(self._find(flow, host, port))
        else:
            self._send(flow, content)
            self._doubt(flow, host, port)

    def _doubt(self, flow: _Flow, host: str, port: int) -> None:
        """Nothing came back for a while by where it goes: it may be that nobody goes there any more."""
        now = self._loop.time()
        if flow.path is None or self._routing is None:
            return
        if now - max(flow.asked, self._heard_at.get(flow.path.sock, 0.0)) >= self._again:
            flow.asked = now
            self._routing.create_task(self._change(flow, host, port))

    def _new(self, host: str, port: int) -> _Flow | None:
        """In place of the target that is known longest and routed; None: all are being routed, and each of them costs a task."""
        if self._routing is None:
            return None
        if len(self._flows) >= _MOST_TARGETS:
            oldest = next((key for key, each in self._flows.items() if each.is_ready), None)
            if oldest is None:
                return None
            self._lose(self._flows.pop(oldest))
        flow = self._flows[host, port] = _Flow()
        self._routing.create_task(self._find(flow, host, port))
        return flow

    def _keep(self, flow: _Flow, content: bytes) -> None:
        if len(flow.waiting) >= _MOST_WAITING or self._waiting + len(content) > _MOST_BYTES:
            self._events["dropped_datagrams"] += 1
            return
        flow.waiting.append(content)
        self._waiting += len(content)

    def _lose(self, flow: _Flow) -> None:
        """It has no path from now on."""
        path, flow.path = flow.path, None
        self._forget(path)

    def _forget(self, path: Path | None) -> None:
        """One target less is written to."""
        if path is None or path.before:
            return
        self._known[path.address] -= 1
        if not self._known[path.address]:
            del self._known[path.address]

    def _send(self, flow: _Flow, content: bytes) -> None:
        path = flow.path
        if path is None:
            self._events["dropped_datagrams"] += 1
            return
        try:
            path.sock.sendto(path.before + content, path.address)
        except OSError:  # a datagram may be lost; so is one that the kernel does not take
            self._events["dropped_datagrams"] += 1
            return
        self.sent += len(content)

    async def _find(self, flow: _Flow, host: str, port: int) -> None:
        try:
            flow.way = await self._routed(host, port, None)
            if flow.way is not None and flow.way.exit is Exit.GOES:
                flow.path = await self._path(flow.way, host, port)
        except (OSError, RemoteProtocolError, TimeoutError):
            flow.path = None
        flow.asked = self._loop.time()
        flow.is_ready, flow.until = True, self._loop.time() + self._again
        waiting, flow.waiting = flow.waiting, []
        self._waiting -= sum(map(len, waiting))
        for content in waiting:
            self._send(flow, content)

    async def _change(self, flow: _Flow, host: str, port: int) -> None:
        """Its outbound is another one from now on, where it is; where that one cannot be had it stays."""
        before, path = flow.path, None
        try:
            way = await self._routed(host, port, flow.way)
            if way == flow.way:
                return
            if way is not None and way.exit is Exit.GOES:
                path = await self._path(way, host, port)
        except (OSError, RemoteProtocolError, TimeoutError):
            return
        is_gone = flow.path is not before or self._flows.get((host, port)) is not flow
        if is_gone or (path is None and way is not None and way.exit is Exit.GOES):
            self._forget(path)
            return
        self._lose(flow)
        flow.way, flow.path, flow.until = way, path, self._loop.time() + self._again
        self._events["moved_targets"] += 1

    async def _path(self, way: Way, host: str, port: int) -> Path | None:
        if not way.hops:
            return await self._straight(way, host, port)
        hop = way.hops[0]
        # Behind TLS the proxy takes no datagrams in it, and its password is not for others to read.
        if len(way.hops) > 1 or hop.scheme not in {Scheme.SOCKS5, Scheme.SOCKS5H} or hop.secure is not None:
            return None
        return await self._relays.path(way, hop, host, port)

    async def _straight(self, way: Way, host: str, port: int) -> Path | None:
        addresses: tuple[str, ...] = (host,)
        if not is_address(host):
            found: list[str] = []
            for family in way.families or (_ANY,):
                found += (await resolve(self._resolver, host, family)).addresses
            addresses = tuple(found)
        if not addresses:
            return None
        address = addresses[0]
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        key = way.source, way.interface, family
        sock = self._direct.get(key)
        if sock is None:
            sock = self._direct[key] = leaving(family, way)
            self._loop.add_reader(sock, self._from_target, sock)
        self._known[address, port] += 1
        return Path(sock, (address, port))

    def _gone(self, sock: socket.socket) -> None:
        """Targets that went by it are routed again by their next datagrams."""
        for flow in self._flows.values():
            if flow.path is not None and flow.path.sock is sock:
                self._lose(flow)
                flow.until = 0.0
        self._heard_at.pop(sock, None)

    def _from_target(self, sock: socket.socket) -> None:
        for _ in range(_MOST_READ):
            try:
                data, peer = sock.recvfrom(_LARGEST)
            except OSError:
                return
            if peer[:2] in self._known:
                self._to_client(sock, socks5.wrapping(peer[0].partition("%")[0], peer[1]) + data, len(data))

    def _to_client(self, sock: socket.socket, data: bytes, size: int) -> None:
        self._heard_at[sock] = self._loop.time()
        if self._peer is None:
            return
        with contextlib.suppress(OSError):  # a datagram may be lost
            self._sock.sendto(data, self._peer)
            self.heard += size


class _Over(Exception):  # noqa: N818  (an end, not an error)
    """The client is gone: what is still routed for it ends with it."""
