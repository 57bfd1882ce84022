"""An ASGI application on a socket: binding with clear refusals, serving until told to stop. Knows nothing of any API."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import uvicorn

from reachline.errors import ConfigError, Problem
from reachline.model import Seconds
from reachline.net.binding import refused
from reachline.net.hush import hush
from reachline.net.renewed import Files, renewing

__all__ = ["Application", "Bound", "Identity", "bind", "proven", "serving", "split_address"]

Message = MutableMapping[str, Any]
Application = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]
"""What ASGI calls an application."""

_BACKLOG: Final = 512
"""Connections the kernel holds while one turn of the loop runs; a fleet of clients reconnects at once."""
_ACCEPTS: Final = 32
"""Connections taken in one turn of the loop: asyncio asks as often for each that waits, also once no descriptor is left."""
_KEEP_ALIVE: Final = 75
"""Seconds an idle connection stays: longer than a client's long poll of 30 s and its pause."""


class Bound(NamedTuple):
    """A listening socket and the address people reach it by."""

    socket: socket.socket
    url: str


class Identity(NamedTuple):
    """PEM files by which a server proves who it is."""

    certificate: str
    key: str


def proven(identity: Identity) -> Identity:
    """The identity, once its files are read and fit each other; ConfigError where they do not."""
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(identity.certificate, identity.key)
    except OSError as error:  # ssl.SSLError is one
        rule = f"the certificate or its key cannot be used ({error.strerror or error})"
        hint = "PEM files, the key without a password"
        raise ConfigError(
            Problem(place="tls", path="center.tls", value=identity.certificate, rule=rule, hint=hint)
        ) from error
    return identity


def split_address(address: str, *, path: str, place: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[v6]:port`; ConfigError where it is neither."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65_535 or not host:
        raise ConfigError(
            Problem(place=place, path=path, value=address, rule="must be host:port", hint="for example 127.0.0.1:7680")
        )
    return host.strip("[]"), int(port)


def bind(address: str, *, path: str, place: str = "bind", scheme: str = "http") -> Bound:
    """A listening socket on `host:port` (port 0: any free one) or `unix:/path`; ConfigError says who holds it and what to do."""
    if address.startswith("unix:"):
        return _bind_path(address.removeprefix("unix:"), path=path, place=place)
    host, port = split_address(address, path=path, place=place)
    try:
        family, kind, proto, _, where = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise ConfigError(refused(error, address, path=path, place=place)) from error
    listener = socket.socket(family, kind, proto)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(where)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(refused(error, address, path=path, place=place)) from error
    listener.setblocking(False)
    shown = f"[{host}]" if ":" in host else host
    return Bound(listener, f"{scheme}://{shown}:{listener.getsockname()[1]}")


def _bind_path(name: str, *, path: str, place: str) -> Bound:
    """A Unix socket; a file that a killed process left there makes room, one that answers does not."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            if asking.connect_ex(name) == errno.ECONNREFUSED:
                Path(name).unlink()
        listener.bind(name)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(refused(error, f"unix:{name}", path=path, place=place)) from error
    listener.setblocking(False)
    return Bound(listener, f"unix:{name}")


@asynccontextmanager
async def serving(
    app: Application, listener: socket.socket, *, grace: Seconds, identity: Identity | None = None
) -> AsyncIterator[None]:
    """The application answers on `listener` inside the block, over TLS with an identity (each handshake with what its files hold
    then); afterwards open requests get `grace` to end.

    Signals, logging and the loop stay the caller's. The socket is closed in any case.
    """
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=_ACCEPTS,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=max(1, round(grace)),
        ssl_certfile=identity.certificate if identity else None,
        ssl_keyfile=identity.key if identity else None,
        ws="websockets-sansio",
        ws_per_message_deflate=False,
        ws_ping_interval=20.0,
        ws_max_size=65_536,
    )
    config.load()
    if identity:
        assert config.ssl is not None
        renewing(config.ssl, Files(identity.certificate, identity.key))
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    try:
        await server.startup(sockets=[listener])
        listener.listen(_BACKLOG)  # asyncio has just made the kernel's queue as short as its own turn
        async with asyncio.TaskGroup() as tasks:
            ticking = tasks.create_task(server.main_loop(), name="http")
            try:
                yield
            finally:
                server.should_exit = True
                await asyncio.wait((ticking,))
                for each in server.servers:
                    await hush(each)
                await server.shutdown(sockets=[listener])
    finally:
        listener.close()
