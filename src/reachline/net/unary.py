"""gRPC methods of one request and one answer, at addresses of their own. Knows bytes, not messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from reachline.errors import ConfigError, RemoteProtocolError
from reachline.net.binding import refused, why_refused
from reachline.net.quiet import grpc

__all__ = ["answering"]

Method = Callable[[bytes], bytes | Awaitable[bytes]]
_OPTIONS: Final = (("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", 1 << 20))
"""A second server at the same port is refused; no request is a thousandth of a MiB."""


@asynccontextmanager
async def answering(address: str, methods: Mapping[str, Method], *, place: str) -> AsyncIterator[int]:
    """Answer at `host:port` inside the block; the port. `methods` by full name; a LookupError's text is told as UNKNOWN.

    ConfigError where the address cannot be had.
    """
    server = grpc.aio.server(options=_OPTIONS)
    by_service: dict[str, dict[str, Any]] = {}
    for name, method in methods.items():
        _, service, short = name.split("/")
        by_service.setdefault(service, {})[short] = grpc.unary_unary_rpc_method_handler(_told(method))
    server.add_generic_rpc_handlers(
        tuple(grpc.method_handlers_generic_handler(service, found) for service, found in by_service.items())
    )
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        reason = why_refused(address) or OSError("gRPC refuses it")
        raise ConfigError(refused(reason, address, path="api.listen", place=place)) from error
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)


def _told(method: Method) -> Any:
    async def handle(request: bytes, context: Any) -> bytes:
        try:
            found = method(request)
            return found if isinstance(found, bytes) else await found
        except LookupError as error:
            await context.abort(grpc.StatusCode.UNKNOWN, str(error.args[0]))
        except RemoteProtocolError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        raise AssertionError  # abort raises

    return handle
