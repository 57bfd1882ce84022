"""gRPC for the agent's stream, and for further ones beside it: frames as bytes both ways, options and errors in one place.

Refuses to know what a frame says. Works over TCP (`host:port`) and Unix sockets (`unix:/path`).

Nothing else but `methods`, its own part, imports gRPC: what it does at its import, and what it prints, is decided here.

Errors, mapped once: ConnectionError (the peer is away, or went), TimeoutError (it did not take a frame in time),
RemoteProtocolError (it refuses what we do), ConfigError (an address that cannot be had).
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final

from reachline.abc import Transport
from reachline.errors import ConfigError, LocalProtocolError, RemoteProtocolError
from reachline.model import Seconds
from reachline.net.binding import refused, why_refused
from reachline.net.methods import Call, Conversation, Service, Write, handlers, shown
from reachline.net.quiet import grpc
from reachline.net.renewed import Files, authorities, pair
from reachline.wire.size import MAX_FRAME

__all__ = [
    "ATTACH",
    "Attached",
    "Attachment",
    "Call",
    "Conversation",
    "Credentials",
    "Server",
    "ServerCredentials",
    "Service",
    "Write",
    "attach",
    "certificate_of",
    "client_credentials",
    "serve",
    "server_credentials",
]

_SERVICE: Final = "reachline.v1.Center"
_METHOD: Final = "Attach"
Credentials = grpc.ChannelCredentials
"""What a client's TLS needs; made by `client_credentials`."""
ServerCredentials = grpc.ServerCredentials
"""What a server's TLS needs; made by `server_credentials`."""
ATTACH: Final = f"/{_SERVICE}/{_METHOD}"

_KEEPALIVE_MS: Final = 5_000
"""A peer that vanished without a FIN is noticed within twice this: before its votes go stale at 25 s."""
_SHARED: Final[tuple[tuple[str, int], ...]] = (
    ("grpc.max_send_message_length", MAX_FRAME),
    ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", _KEEPALIVE_MS),
    # gRPC gives any ping a minute, and the keepalive's timeout nothing beside it: without this a dead peer is noticed after 65 s.
    ("grpc.http2.ping_timeout_ms", _KEEPALIVE_MS),
    ("grpc.http2.max_pings_without_data", 0),
)
_CHANNEL: Final = (
    *_SHARED,
    ("grpc.max_receive_message_length", MAX_FRAME),
    # The center is ours: an http_proxy of the environment is for the world outside.
    ("grpc.enable_http_proxy", 0),
    # Else a new channel inherits the back-off of the last one's dead connection, and our own back-off means nothing.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
)
_SERVER: Final = (
    *_SHARED,
    # Agents' frames are bounded before they are sent; a whole configuration may be larger. As much as our own client takes.
    ("grpc.max_send_message_length", 64 << 20),
    # Twice what is allowed comes in, so that the codec can refuse it by name; gRPC would end the stream without a word to us.
    ("grpc.max_receive_message_length", 2 * MAX_FRAME),
    # Two centers on one port would share its agents by chance; the second one must fail instead.
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    # Half of the client's interval: its pings never count as abuse ("too_many_pings").
    ("grpc.http2.min_ping_interval_without_data_ms", _KEEPALIVE_MS // 2),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", _KEEPALIVE_MS // 2),
)
_UNIX: Final = "unix:"
_LAST_ERROR: Final = re.compile(r"last error: [A-Z_]+: (?:(?:ipv4|ipv6|unix):\S+: )?(.*)", re.DOTALL)
_REFUSALS: Final = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)


@contextmanager
def _mapped(peer: str) -> Iterator[None]:
    try:
        yield
    except grpc.aio.AioRpcError as error:
        text = f"{peer}: {(error.details() or error.code().name).splitlines()[0]}"
        if error.code() in _REFUSALS:
            raise RemoteProtocolError(text) from error
        raise ConnectionError(text) from error
    except (grpc.aio.UsageError, grpc.aio.InternalError, asyncio.InvalidStateError) as error:
        raise ConnectionError(f"{peer}: the stream is over") from error


def _check(frame: bytes) -> None:
    if len(frame) > MAX_FRAME:
        raise LocalProtocolError(f"frame of {len(frame)} bytes, at most {MAX_FRAME} may be sent")


class Attached:
    """The agent's end of one stream: a `Transport`. Written by the task that opened it."""

    def __init__(self, channel: grpc.aio.Channel, peer: str, method: str = ATTACH) -> None:
        self.peer = peer
        self._channel = channel
        self._call: Any = channel.stream_stream(method)()

    async def send(self, frame: bytes, timeout: Seconds) -> None:
        """Handed to the peer's flow control within `timeout`, or an error; after one the stream is over."""
        _check(frame)
        with _mapped(self.peer):
            async with asyncio.timeout(timeout):
                await self._call.write(frame)

    async def frames(self) -> AsyncIterator[bytes]:
        """What the peer sends, until it ends the stream (normally, or by one of the errors above)."""
        with _mapped(self.peer):
            while (frame := await self._call.read()) is not grpc.aio.EOF:
                yield frame
            code = await self._call.code()
            if code is not grpc.StatusCode.OK:
                raise grpc.aio.AioRpcError(
                    code,
                    await self._call.initial_metadata(),
                    await self._call.trailing_metadata(),
                    await self._call.details(),
                )

    async def finish(self, timeout: Seconds) -> None:
        """Nothing more comes from us; returns when the peer ended the stream too, TimeoutError where it does not."""
        with _mapped(self.peer):
            async with asyncio.timeout(timeout):
                await self._call.done_writing()
                await self._call.code()

    async def close(self) -> None:
        """Cut the stream and the connection. Idempotent."""
        self._call.cancel()
        await self._channel.close()


async def attach(
    address: str,
    *,
    timeout: Seconds,
    credentials: Credentials | None = None,
    method: str = ATTACH,
    options: Mapping[str, int] = MappingProxyType({}),
) -> Attached:
    """A stream to the center at `address`, connected; ConnectionError (with the reason) or TimeoutError where there is none.

    A Unix socket is guarded by its file's rights and never speaks TLS. `method` and `options` (of the channel) are for other
    peers than a center. Refused, as a peer that is away, in a child of a process that used gRPC before the fork.
    """
    _check_fork(address)
    chosen = tuple({**dict(_CHANNEL), **options}.items())
    if credentials is None or address.startswith(_UNIX):
        channel = grpc.aio.insecure_channel(address, chosen)
    else:
        channel = grpc.aio.secure_channel(address, credentials, chosen)
    try:
        async with asyncio.timeout(timeout):
            await _ready(channel, address)
        return Attached(channel, address, method)
    except BaseException:
        await channel.close()
        raise


_USERS: Final[set[int]] = set()
"""Processes in which gRPC runs; a child finds its parent's."""


def _check_fork(address: str) -> None:
    """A child shares with its parent the socket by which gRPC wakes its loop: it would hear nothing, and take away what the parent
    should hear.
    """
    if _USERS and os.getpid() not in _USERS:
        raise ConnectionError(f"{address}: gRPC was in use before the fork; connect after it, or with wait=0")
    _USERS.add(os.getpid())


async def _ready(channel: grpc.aio.Channel, address: str) -> None:
    state = channel.get_state(try_to_connect=True)
    while state is not grpc.ChannelConnectivity.READY:
        # gRPC would go on trying by its own clock; how often is our decision.
        if state in (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN):
            raise ConnectionError(f"{address}: {await _why(channel)}")
        await channel.wait_for_state_change(state)
        state = channel.get_state(try_to_connect=True)


async def _why(channel: grpc.aio.Channel) -> str:
    """What a call on a channel that failed to connect is told."""
    call: Any = channel.stream_stream(ATTACH)()
    told = str(await call.details() or "nobody answers there")
    found = _LAST_ERROR.search(told)
    return " ".join((found[1] if found else told).split())


def client_credentials(*, ca: str, certificate: str = "", key: str = "") -> Credentials:
    """TLS towards a center whose certificate `ca` (a PEM file; empty: the system's roots) signed.

    With `certificate` and `key` we show one too. Read anew for each stream, so that a renewed file is used. OSError names
    a file that cannot be read, or is not what it should be.
    """
    roots = authorities(ca) if ca else None
    private, chain = pair(certificate, key) if certificate and key else (None, None)
    return grpc.ssl_channel_credentials(roots, private, chain)


def server_credentials(*, certificate: str, key: str, client_ca: str = "") -> ServerCredentials:
    """TLS of a center that shows `certificate`; with `client_ca` only those are let in whose certificate it signed.

    All are PEM files; OSError names one that is not. Each new connection is shown what they hold by then; who is connected stays.
    """
    files = Files(certificate, key, client_ca)

    def renewed() -> Any:  # called for each connection, in a thread of gRPC's
        return _configuration(files) if files.changed() else None

    asks = files.read.roots is not None
    return grpc.dynamic_ssl_server_credentials(_configuration(files), renewed, require_client_authentication=asks)


def _configuration(files: Files) -> Any:
    read = files.read
    return grpc.ssl_server_certificate_configuration([(read.key, read.certificate)], root_certificates=read.roots)


class Attachment:
    """The center's end of one agent's stream: a `Transport`. Lives as long as the handler that was given it."""

    def __init__(self, context: Any) -> None:
        self.peer: str = context.peer()
        self.certificate: bytes = shown(context)
        """What the agent showed, PEM; empty where it was asked for none."""
        self._context = context

    async def send(self, frame: bytes, timeout: Seconds) -> None:
        """Handed to the peer's flow control within `timeout`, or an error."""
        _check(frame)
        with _mapped(self.peer):
            async with asyncio.timeout(timeout):
                await self._context.write(frame)

    async def frames(self) -> AsyncIterator[bytes]:
        """What the agent sends, until it ends the stream."""
        with _mapped(self.peer):
            while (frame := await self._context.read()) is not grpc.aio.EOF:
                yield frame


def certificate_of(transport: Transport) -> bytes:
    """What the other end of a stream showed, PEM; empty where it was asked for none."""
    return transport.certificate if isinstance(transport, Attachment) else b""


class Server:
    """A listening center. Written by its owner only."""

    def __init__(self, server: grpc.aio.Server, ports: tuple[int, ...]) -> None:
        self._server = server
        self.ports = ports
        """Where it listens, in the order of the addresses; 1 for a Unix socket."""

    async def close(self, grace: Seconds) -> None:
        """Take nobody new, give the streams `grace` to end, then cut them. Idempotent."""
        await self._server.stop(grace)


async def serve(
    addresses: Sequence[str],
    attached: Callable[[Transport, str], Awaitable[None]],
    *,
    credentials: ServerCredentials | None = None,
    places: Mapping[str, str] = MappingProxyType({}),
    services: Mapping[str, Service | Conversation] = MappingProxyType({}),
    options: Mapping[str, int] = MappingProxyType({}),
) -> Server:
    """Listen at `addresses` (with TLS, except at Unix sockets); each agent's stream is one call of `attached(transport, peer)`, over when that returns.

    `services` are further methods on the same ports, by full name (`/package.Service/Method`), `options` gRPC's. ConfigError says why an address cannot be had; `places` is where addresses stand in a document.
    """

    async def handle(_: Any, context: Any) -> None:
        transport = Attachment(context)
        await attached(transport, transport.peer)

    handler: Any = grpc.stream_stream_rpc_method_handler(handle)
    server = grpc.aio.server(options=tuple({**dict(_SERVER), **options}.items()))
    agents = grpc.method_handlers_generic_handler(_SERVICE, {_METHOD: handler})
    server.add_generic_rpc_handlers((agents, *handlers(services)))
    ports = tuple(_bind(server, address, credentials, places.get(address, address)) for address in addresses)
    await server.start()
    return Server(server, ports)


def _bind(server: grpc.aio.Server, address: str, credentials: ServerCredentials | None, place: str) -> int:
    try:
        if credentials is None or address.startswith(_UNIX):
            return server.add_insecure_port(address)
        return server.add_secure_port(address, credentials)
    except RuntimeError as error:
        # gRPC tells the reason to its own log only.
        reason = why_refused(address) or OSError("gRPC refuses it")
        raise ConfigError(refused(reason, address, path="center.grpc", place=place)) from error
