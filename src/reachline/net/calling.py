"""gRPC calls of one request and one answer, as bytes. A call that fails is a value: its reason in words."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from reachline.model import Seconds
from reachline.net.quiet import grpc

__all__ = ["Call", "Called", "calling"]

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 4 << 20),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.enable_http_proxy", 0),
)
"""Five thousand tags of 255 characters fit thrice; who comes back is found within a second; no proxy of the environment stands between."""


class Called(NamedTuple):
    """The answer, or None and why there is none."""

    answer: bytes | None
    reason: str = ""
    is_refused: bool = False
    """The other side answered, and said no; else it was not reached."""


Call = Callable[[str, bytes], Awaitable[Called]]
"""By a method's full name."""


@asynccontextmanager
async def calling(address: str, *, timeout: Seconds) -> AsyncIterator[Call]:
    """Call `host:port`, in clear; `timeout` is for each call. Whoever is not there yet may come later."""
    async with grpc.aio.insecure_channel(address, options=_OPTIONS) as channel:

        async def call(method: str, request: bytes) -> Called:
            invoke: Any = channel.unary_unary(method)
            try:
                return Called(await invoke(request, timeout=timeout))
            except grpc.aio.AioRpcError as error:
                is_lost = error.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}
                return Called(None, error.details() or error.code().name.lower(), is_refused=not is_lost)

        yield call
