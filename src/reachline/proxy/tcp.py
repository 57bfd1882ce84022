"""A connection passed on byte by byte: to a cluster's endpoint and back, each side no faster than the other takes it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

from reachline.core.hashing import xxh64
from reachline.doors.envoy.chain import TcpProxy
from reachline.errors import Shed
from reachline.model import Seconds
from reachline.net.pausing import hold
from reachline.proxy import flags
from reachline.proxy.ends import Leaving, half_close, reading_room
from reachline.proxy.flags import Lost
from reachline.upstream.listing import Pick
from reachline.upstream.outcome import Column, column_of, failure_of

if TYPE_CHECKING:
    from reachline.proxy.backend import Backend

__all__ = ["TcpFront", "TcpSide", "Tunnel"]

_TAKES_NOTHING: Final[Seconds] = 30.0
"""After the other side is gone: a network that is away for longer than half a minute hardly comes back for the rest."""
_ROOM: Final = 1 << 18
"""Bytes of one read: of more, a kernel seldom has them at once."""


class TcpFront:
    """What all connections of one TCP proxy share."""

    def __init__(
        self,
        settings: TcpProxy,
        backend: Callable[[Random], Backend | None],
        *,
        rng: Random,
        told: Callable[[Tunnel], None] = lambda _: None,
    ) -> None:
        """`backend` draws the cluster of a new connection; None: there is none of that name."""
        self.settings: Final = settings
        self.backend: Final = backend
        self.rng: Final = rng
        self.told: Final = told
        self.counts: Final[Counter[str]] = Counter()
        self.loop: Final = asyncio.get_running_loop()
        self.tunnels: Final[set[Tunnel]] = set()
        self.room: Final = reading_room(_ROOM)
        self.leaving: Final = Leaving(self.loop, _TAKES_NOTHING)
        self.is_draining = False

    def sweep(self, now: Seconds) -> None:
        """End what was silent for too long."""
        idle, most = self.settings.idle_timeout, self.settings.max_connection_duration
        for tunnel in list(self.tunnels):
            if idle and now - tunnel.active_at >= idle:
                self.counts["idle_timeout"] += 1
                tunnel.end("")
            elif most and now - tunnel.began >= most:
                self.counts["max_downstream_connection_duration"] += 1
                tunnel.end("DT")

    def retire(self) -> None:
        """Connections go on until they end by themselves."""
        self.is_draining = True

    def drain(self) -> None:
        """Connections go on until they end by themselves."""
        self.is_draining = True

    def close(self) -> None:
        """End everything at once."""
        for tunnel in list(self.tunnels):
            tunnel.end("DC")
        self.leaving.close()


class Tunnel:
    """One client's connection and the one to its endpoint. Ends once, by `end`."""

    __slots__ = (
        "_backend", "_column", "_is_over", "_task", "_tried", "active_at", "began", "bytes_in", "bytes_out", "client", "endpoint",
        "flag", "front", "pick",
    )  # fmt: skip

    def __init__(self, front: TcpFront) -> None:
        self.front: Final = front
        self.client: Final = TcpSide(self, is_client=True)
        self.endpoint: TcpSide | None = None
        self.pick: Pick | None = None
        self.flag = ""
        self.bytes_in = self.bytes_out = 0
        self.began = self.active_at = front.loop.time()
        self._backend: Backend | None = None
        self._column: Column | None = Column.NONE
        self._is_over = False
        self._task: asyncio.Task[None] | None = None
        self._tried: tuple[Pick, ...] = ()

    def opened(self) -> None:
        """The client is there: find an endpoint."""
        front = self.front
        front.tunnels.add(self)
        front.counts["downstream_cx_total"] += 1
        self.client.hold(True)
        self._backend = backend = front.backend(front.rng)
        if backend is None:
            front.counts["downstream_cx_no_route"] += 1
            self.end("NC")
            return
        if backend.pool.connections + backend.tunnels >= backend.cluster.thresholds.max_connections:
            backend.counts["upstream_cx_overflow"] += 1
            self.end("UO")
            return
        backend.tunnels += 1
        self._task = front.loop.create_task(self._connect(backend))

    def passed(self, data: memoryview | bytes, *, from_client: bool) -> None:
        """Bytes of one side for the other; empty: it sends no more."""
        self.active_at = self.front.loop.time()
        other = self.endpoint if from_client else self.client
        if from_client:
            self.bytes_in += len(data)
        else:
            self.bytes_out += len(data)
        if other is None:
            return
        if data:
            other.write(data)
        else:
            other.write_eof()

    def writable(self, is_so: bool, *, is_client: bool) -> None:
        """One side takes more, or no more for now."""
        other = self.endpoint if is_client else self.client
        if other is not None:
            other.hold(not is_so)

    def closed(self, *, is_client: bool, is_reset: bool) -> None:
        """One side is gone: what it sent is written out to the other, which goes too."""
        if self._is_over:
            return
        self.end("UC" if is_reset and not is_client else "")

    def end(self, flag: str) -> None:
        """Both ends go."""
        if self._is_over:
            return
        self._is_over = True
        self.flag = self.flag or flag
        front = self.front
        front.tunnels.discard(self)
        if self._task is not None:
            self._task.cancel()
        self.client.close()
        if self.endpoint is not None:
            self.endpoint.close()
        if self._backend is not None and self._task is not None:
            self._backend.tunnels -= 1
        front.told(self)

    async def _connect(self, backend: Backend) -> None:
        for _ in range(max(1, self.front.settings.connect_attempts)):
            try:
                pick = backend.kept.another(self._tried, self._key()) if self._tried else None
                pick = backend.kept.begin(self._key(), self.front.settings.metadata_match or None, pick)
            except Shed:
                self.end("DO")
                return
            if pick is None:
                backend.counts["upstream_cx_none_healthy"] += 1
                self.end("UH")
                return
            self.pick = pick
            began = self.front.loop.time()
            lost = await self._dial(backend, pick)
            took = self.front.loop.time() - began
            if lost is None:
                backend.kept.finish(pick, Column.OK, took)
                self.active_at = self.front.loop.time()
                self.client.hold(False)
                return
            backend.kept.finish(pick, column_of(lost.failure), took)
            self._tried += (pick,)
            self.flag = lost.flag
        self.flag = "URX,UF" if self.front.settings.connect_attempts > 1 else self.flag
        self.end(self.flag)

    async def _dial(self, backend: Backend, pick: Pick) -> Lost | None:
        backend.counts["upstream_cx_total"] += 1
        side = TcpSide(self, is_client=False)
        assert pick.address is not None
        secured = None if backend.secure is None else backend.secure(pick, "")
        try:
            async with asyncio.timeout(backend.cluster.connect_timeout):
                transport, _ = await self.front.loop.create_connection(
                    lambda: side,
                    *pick.address,
                    ssl=None if secured is None else secured.context,
                    server_hostname=None if secured is None else secured.name,
                )
                if secured is not None and (why := secured.distrust(transport.get_extra_info("ssl_object"))):
                    transport.abort()
                    return flags.tls_failed(why)
        except TimeoutError:
            backend.counts["upstream_cx_connect_timeout"] += 1
            return flags.CONNECT_TIMEOUT
        except ssl.SSLError as error:
            backend.counts["upstream_cx_connect_fail"] += 1
            return flags.tls_failed(error.reason or "handshake failed")
        except OSError as error:
            backend.counts["upstream_cx_connect_fail"] += 1
            return flags.REFUSED if failure_of(error) is not None else flags.LOCAL
        self.endpoint = side
        return None

    def _key(self) -> int | None:
        return xxh64(self.client.address.encode()) if self.front.settings.hash else None


class TcpSide(asyncio.BufferedProtocol):
    """One end of a tunnel."""

    __slots__ = ("_descriptor", "_is_client", "_transport", "_tunnel", "address", "is_ended", "is_gone")

    def __init__(self, tunnel: Tunnel, *, is_client: bool) -> None:
        self._tunnel: Final = tunnel
        self._is_client: Final = is_client
        self._transport: asyncio.Transport | None = None
        self._descriptor: int | None = None
        """Of a socket that is written to without TLS."""
        self.is_gone = False
        self.is_ended = False
        """Whether we send it no more."""
        self.address = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if transport.get_extra_info("ssl_object") is None:
            self._descriptor = transport.get_extra_info("socket").fileno()
        if self._is_client:
            name = transport.get_extra_info("peername")
            self.address = str(name[0]) if isinstance(name, tuple) else ""
            self._tunnel.opened()

    def get_buffer(self, _: int) -> memoryview:
        return self._tunnel.front.room

    def buffer_updated(self, size: int) -> None:
        self._tunnel.passed(self._tunnel.front.room[:size], from_client=self._is_client)

    def eof_received(self) -> bool:
        self._tunnel.passed(b"", from_client=self._is_client)
        # Half closed, until the other half is too; TLS knows no such thing.
        return not self.is_ended and self._transport is not None and self._transport.can_write_eof()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_gone = True
        if self._transport is not None:
            self._tunnel.front.leaving.forget(self._transport)
        self._tunnel.closed(is_client=self._is_client, is_reset=error is not None)

    def pause_writing(self) -> None:
        self._tunnel.writable(False, is_client=self._is_client)

    def resume_writing(self) -> None:
        self._tunnel.writable(True, is_client=self._is_client)

    def write(self, data: memoryview | bytes) -> None:
        """Send it on. What the kernel takes at once is not copied; the rest is, for where it stands the next read goes."""
        transport, sent = self._transport, 0
        if transport is None or transport.is_closing():
            return
        if self._descriptor is not None and not transport.get_write_buffer_size():
            with contextlib.suppress(OSError):  # what is wrong with it, the transport finds too
                sent = os.write(self._descriptor, data)
        if sent < len(data):
            transport.write(bytes(data[sent:]))

    def write_eof(self) -> None:
        """Send no more."""
        transport = self._transport
        if transport is None or self.is_gone or self.is_ended:
            return
        self.is_ended = True
        half_close(transport)

    def hold(self, is_held: bool) -> None:
        """Stop reading, or go on."""
        hold(self._transport, is_held)

    def close(self) -> None:
        """End it, once what was written is taken; who takes nothing is cut off."""
        if self._transport is not None and not self.is_gone:
            self._transport.close()
            self._tunnel.front.leaving.watch(self._transport)
