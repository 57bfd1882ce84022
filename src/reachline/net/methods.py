"""Methods of a gRPC server beside the agents' stream, as functions of bytes. A part of `rpc`, by which it is imported."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, NamedTuple

from reachline.errors import RemoteProtocolError
from reachline.net.quiet import grpc

__all__ = ["Call", "Conversation", "Service", "Write", "handlers", "shown"]


class Call(NamedTuple):
    """Who makes a call of a further service."""

    peer: str
    metadata: Mapping[str, str]
    """What came with it as text; the last of several values of one key."""
    certificate: bytes = b""
    """What it showed, PEM; empty where it was asked for none."""


Service = Callable[[AsyncIterator[bytes], Call], AsyncIterator[bytes]]
"""One call of a method: an async generator that takes what the peer sends (until it ends its half) and gives what it is sent.

It waits where the peer takes nothing. The call is over when the generator is; it is cancelled when the peer is gone.
PermissionError, RemoteProtocolError and ConnectionError that it raises are told to the peer, the last as "come again".
"""


Write = Callable[[bytes], Awaitable[None]]
"""Hands a message to the peer's flow control; ConnectionError where it is gone."""


class Conversation(NamedTuple):
    """One call of a method whose messages come and go by themselves: cheaper than a `Service` where there are many calls.

    `hold` returns or raises when it is over, as a service does. One message at a time is written.
    """

    hold: Callable[[AsyncIterator[bytes], Call, Write], Awaitable[None]]


async def _heard(context: Any) -> AsyncIterator[bytes]:
    while (frame := await context.read()) is not grpc.aio.EOF:
        yield frame


def _method(service: Service | Conversation) -> Any:
    async def handle(_: Any, context: Any) -> None:
        said = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
        call = Call(context.peer(), said, shown(context))
        try:
            if isinstance(service, Conversation):
                await service.hold(_heard(context), call, partial(_write, context))
            else:
                await _answered(service, context, call)
        except PermissionError as error:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
        except RemoteProtocolError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except ConnectionError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))

    return grpc.stream_stream_rpc_method_handler(handle)


async def _answered(service: Service, context: Any, call: Call) -> None:
    async with aclosing(service(_heard(context), call)) as answers:  # type: ignore[type-var]
        async for answer in answers:
            await context.write(answer)
            del answer  # while nothing follows it would be kept


async def _write(context: Any, message: bytes) -> None:
    try:
        await context.write(message)
    except (grpc.aio.UsageError, grpc.aio.InternalError, asyncio.InvalidStateError) as error:
        raise ConnectionError(f"{context.peer()}: the stream is over") from error


def handlers(services: Mapping[str, Service | Conversation]) -> tuple[Any, ...]:
    """gRPC's handlers for full method names (`/package.Service/Method`)."""
    by_service: dict[str, dict[str, Any]] = {}
    for name, service in services.items():
        _, package, method = name.split("/")
        by_service.setdefault(package, {})[method] = _method(service)
    return tuple(grpc.method_handlers_generic_handler(package, methods) for package, methods in by_service.items())


def shown(context: Any) -> bytes:
    """The certificate that came with a call, PEM; empty where none did."""
    found: Sequence[bytes] = (context.auth_context() or {}).get("x509_pem_cert", ())
    return found[0] if found else b""
