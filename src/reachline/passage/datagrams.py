"""UDP of a SOCKS5 client: each target routed as a connection is, straight or by a SOCKS5 proxy's own association.

Lives as long as the client's control connection, and no longer than its patience. Bounded: targets, datagrams that wait while a
target is routed, and their bytes. Who was not written to is not heard. What could not be had, and what went by a proxy that is gone,
is tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from reachline.doors.observatory.carrying import Exit, Way
from reachline.errors import RemoteProtocolError
from reachline.model import Seconds
from reachline.net import kernel
from reachline.net.resolve import Resolver
from reachline.passage.dialing import Dialed, dial, resolve
from reachline.talk.hop import Hop, Scheme
from reachline.talk.secure import is_address
from reachline.wire import socks5
from reachline.wire.entering import is_target

__all__ = ["Association", "Routed"]

Routed = Callable[[str, int], Awaitable[Way | None]]
"""The outbound for datagrams to a host and port, None: none."""

_MOST_TARGETS: Final = 256
"""Of one client: a browser has some dozen, a DNS forwarder its servers; the one that is longest known goes."""
_MOST_WAITING: Final = 16
"""Datagrams of one target while it is routed: a QUIC client's first flight has up to ten."""
_MOST_BYTES: Final = 1 << 20
"""Of all datagrams of one client that wait: first flights of fifty QUIC connections."""
_AGAIN: Final[Seconds] = 5.0
"""Until what could not be had is tried again, by a datagram that comes: as long as a name that was not found is not asked for."""
_LARGEST: Final = 65_535
_MOST_READ: Final = 64
"""Datagrams of one turn."""
_DIAL: Final[Seconds] = 16.0
_PIECE: Final = 512
_ANY: Final = 0


class _Path(NamedTuple):
    """By which socket datagrams go to one target, where to, and what stands before them."""

    sock: socket.socket
    address: tuple[str, int]
    before: bytes = b""


class _Flow:
    """One target."""

    __slots__ = ("is_ready", "path", "until", "waiting")

    def __init__(self) -> None:
        self.path: _Path | None = None
        self.is_ready = False
        self.until: Seconds = 0.0
        """When it is tried again where there is no path."""
        self.waiting: list[bytes] = []


class _Relay:
    """An association of our own with an outbound's proxy, as long as its control connection lasts."""

    __slots__ = ("control", "path", "until")

    def __init__(self) -> None:
        self.control: socket.socket | None = None
        self.path: _Path | None = None
        self.until: Seconds = 0.0
        """When it is tried again where there is none."""


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
        self._relays: Final[dict[tuple[Hop, str, str], _Relay]] = {}
        """By proxy, source and interface."""
        self._known: Final[Counter[tuple[str, int]]] = Counter()
        """Addresses that are written to, with the number of targets that mean them."""
        self._waiting = 0
        """Bytes that wait."""
        self._routing: asyncio.TaskGroup | None = None
        self._lock: Final = asyncio.Lock()  # guards the making of relays: one for each outbound
        self._sock: Final = _bound(host)

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
        for relay in self._relays.values():
            self._let_go(relay)
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
            way = await self._routed(host, port)
            if way is not None and way.exit is Exit.GOES:
                flow.path = await self._path(way, host, port)
        except (OSError, RemoteProtocolError, TimeoutError):
            flow.path = None
        flow.is_ready, flow.until = True, self._loop.time() + self._again
        waiting, flow.waiting = flow.waiting, []
        self._waiting -= sum(map(len, waiting))
        for content in waiting:
            self._send(flow, content)

    async def _path(self, way: Way, host: str, port: int) -> _Path | None:
        if not way.hops:
            return await self._straight(way, host, port)
        hop = way.hops[0]
        # Behind TLS the proxy takes no datagrams in it, and its password is not for others to read.
        if len(way.hops) > 1 or hop.scheme not in {Scheme.SOCKS5, Scheme.SOCKS5H} or hop.secure is not None:
            return None
        async with self._lock:
            relay = self._relays.setdefault((hop, way.source, way.interface), _Relay())
            if relay.path is None and self._loop.time() >= relay.until:
                await self._associate(relay, way, hop)
        return None if relay.path is None else relay.path._replace(before=socks5.wrapping(host, port))

    async def _straight(self, way: Way, host: str, port: int) -> _Path | None:
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
            sock = self._direct[key] = _leaving(family, way)
            self._loop.add_reader(sock, self._from_target, sock)
        self._known[address, port] += 1
        return _Path(sock, (address, port))

    async def _associate(self, relay: _Relay, way: Way, hop: Hop) -> None:
        """With the proxy; where that cannot be, nothing stays open, and it is not tried again at once."""
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

    async def _asked(self, control: socket.socket, way: Way, hop: Hop) -> _Path | None:
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
        bound = socks5.unwrapped(b"\0\0\0" + talk.bound) if talk.reply == socks5.SUCCEEDED else None
        if bound is None:
            return None
        # 0.0.0.0 means the proxy's own address, as the control connection knows it.
        host = str(control.getpeername()[0]) if bound[0] in {"0.0.0.0", "::"} else bound[0]
        if not is_address(host):
            return None
        sock = _leaving(socket.AF_INET6 if ":" in host else socket.AF_INET, way)
        try:
            sock.connect((host, bound[1]))
        except BaseException:
            sock.close()
            raise
        return _Path(sock, (host, bound[1]))

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
        """With its sockets; targets that went by it are routed again by their next datagrams."""
        path, control = relay.path, relay.control
        relay.path = relay.control = None
        for sock in (control, None if path is None else path.sock):
            if sock is not None:
                self._loop.remove_reader(sock)
                sock.close()
        for flow in self._flows.values():
            if path is not None and flow.path is not None and flow.path.sock is path.sock:
                self._lose(flow)
                flow.until = 0.0

    def _from_target(self, sock: socket.socket) -> None:
        for _ in range(_MOST_READ):
            try:
                data, peer = sock.recvfrom(_LARGEST)
            except OSError:
                return
            if peer[:2] in self._known:
                self._to_client(socks5.wrapping(peer[0].partition("%")[0], peer[1]) + data, len(data))

    def _from_relay(self, sock: socket.socket) -> None:
        """It is connected: only the relay is heard, and what it says is in a client's own form already."""
        for _ in range(_MOST_READ):
            try:
                data = sock.recv(_LARGEST)
            except OSError:
                return
            if (found := socks5.unwrapped(data)) is not None:
                self._to_client(data, len(data) - found[2])

    def _to_client(self, data: bytes, size: int) -> None:
        if self._peer is None:
            return
        with contextlib.suppress(OSError):  # a datagram may be lost
            self._sock.sendto(data, self._peer)
            self.heard += size


class _Over(Exception):  # noqa: N818  (an end, not an error)
    """The client is gone: what is still routed for it ends with it."""


def _bound(host: str) -> socket.socket:
    sock = _unbound(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        sock.bind((host, 0))
    except OSError:
        sock.close()
        raise
    return sock


def _leaving(family: int, way: Way) -> socket.socket:
    """From the outbound's address and by its interface, or not at all."""
    sock = _unbound(family)
    try:
        if way.source or way.interface:
            kernel.bind(sock, family, way.source, way.interface)
    except BaseException:
        sock.close()
        raise
    return sock


def _unbound(family: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_DGRAM)
    sock.setblocking(False)
    return sock
