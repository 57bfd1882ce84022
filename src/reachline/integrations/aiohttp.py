"""aiohttp by lines: `session(client)` is a ClientSession in which a host that is a cluster is one of its lines.

A line is chosen by a middleware, for each request anew; the connector only keeps connections by line. One that chose by
connection would hold calls on the lines of long ago.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final

import aiohttp
from yarl import URL

from reachline.integrations.exchange import LIMIT, Exchange, Lines, Route, aim, way
from reachline.integrations.pools import Pools
from reachline.model import Seconds
from reachline.upstream import Pick
from reachline.upstream.tries import TRIES, Plan

__all__ = ["Connector", "Middleware", "session"]

_PICK: Final[ContextVar[Pick | None]] = ContextVar("reachline_pick", default=None)
"""The line of the call that is being made, from the middleware to the connector."""

Handler = Callable[[aiohttp.ClientRequest], Awaitable[aiohttp.ClientResponse]]


def session(
    lines: Lines,
    *,
    tries: int = TRIES,
    deadline: Seconds | None = None,
    keep_host: bool = False,
    **settings: Any,
) -> aiohttp.ClientSession:
    """A ClientSession with `Connector` and `Middleware`; `settings` are aiohttp's own."""
    middleware = Middleware(lines, tries=tries, deadline=deadline, keep_host=keep_host)
    own = (middleware, *settings.pop("middlewares", ()))
    return aiohttp.ClientSession(connector=Connector(), middlewares=own, **settings)


class Middleware:
    """Chooses a line for each request to a cluster of `lines`. For one request alone: `middlewares=[Middleware(…)]` beside it."""

    def __init__(
        self,
        lines: Lines,
        *,
        tries: int = TRIES,
        deadline: Seconds | None = None,
        keep_host: bool = False,
        idempotent: bool | None = None,
    ) -> None:
        self._route: Final = Route(lines, tries=tries, deadline=deadline, keep_host=keep_host)
        self._said: Final = Plan() if idempotent is None else Plan(idempotent=idempotent)

    async def __call__(self, request: aiohttp.ClientRequest, handler: Handler) -> aiohttp.ClientResponse:
        body = request.body
        is_replayable = isinstance(body, bytes | aiohttp.payload.BytesPayload)
        asked = request.url
        exchange = self._route.exchange(asked.host or "", request.method, self._said, is_replayable=is_replayable)
        if exchange is None:
            return await handler(request)
        try:
            answer = await exchange.run_async(
                lambda: self._send(exchange, request, asked, handler), status=lambda each: each.status, close=_close
            )
        finally:
            request.url = asked
        _watch(answer, exchange)
        return answer

    async def _send(
        self, exchange: Exchange, request: aiohttp.ClientRequest, asked: URL, handler: Handler
    ) -> aiohttp.ClientResponse:
        pick = exchange.begin()
        if pick is not None:
            scheme, host, port = aim(pick, asked.scheme)
            request.url = asked.with_scheme(scheme).with_host(host).with_port(port)
            if not self._route.keep_host:
                request.headers["Host"] = request.url.host_port_subcomponent or host
            # Either way: a try before this one may have gone by way of another line's.
            via = way(pick, "aiohttp", "http", "https")
            request.update_proxy(None if via is None else URL(via), None, None)
        tokens = _PICK.set(pick), LIMIT.set(exchange.limit)
        try:
            async with asyncio.timeout(exchange.timeout(None)):
                return await handler(request)
        finally:
            _PICK.reset(tokens[0])
            LIMIT.reset(tokens[1])


class Connector(aiohttp.TCPConnector):
    """A TCPConnector that keeps the connections of each line apart. `settings` are aiohttp's, and hold for each line."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._lines: Final = Pools(lambda _: _LineConnector(**settings))
        self._closings: Final[set[asyncio.Task[None]]] = set()
        """Of pools that are used no more."""

    async def connect(self, req: aiohttp.ClientRequest, traces: Any, timeout: aiohttp.ClientTimeout) -> Any:
        """A connection of the present call's line."""
        pick = _PICK.get()
        if pick is None:
            return await super().connect(req, traces, timeout)
        lease, closing = self._lines.borrow(pick)
        try:
            if closing is not None:
                await closing.close()
            connection = await lease.pool.connect(req, traces, timeout)
        except BaseException:
            await self._give_back(lease)
            raise
        connection.add_callback(lambda: self._released(lease))
        return connection

    def close(self, **how: Any) -> Any:
        """Close the connections of all lines."""
        return _all([super().close(**how), *(each.close(**how) for each in self._lines.take_all()), *self._closings])

    async def _give_back(self, lease: Any) -> None:
        closing = self._lines.give_back(lease)
        if closing is not None:
            await closing.close()

    def _released(self, lease: Any) -> None:
        closing = self._lines.give_back(lease)
        if closing is not None:
            # In a task, for it is to take its last connection back first.
            task = self._loop.create_task(_later(closing))
            self._closings.add(task)
            task.add_done_callback(self._closings.discard)


class _LineConnector(aiohttp.TCPConnector):
    """One line's connections; new ones ask first."""

    async def _create_connection(self, req: aiohttp.ClientRequest, traces: Any, timeout: aiohttp.ClientTimeout) -> Any:
        if (limit := LIMIT.get()) is not None:
            limit()
        return await super()._create_connection(req, traces, timeout)


def _watch(answer: aiohttp.ClientResponse, exchange: Exchange) -> None:
    """The call ends when its answer is read, given up or broken off."""

    def ended() -> None:
        error = answer.content.exception()
        # Of this very class: the caller let go of a body it did not want. What breaks off is told by a class of its own.
        exchange.ended(None if type(error) is aiohttp.ClientConnectionError else error)

    connection = answer.connection
    if connection is None:
        ended()
    else:
        connection.add_callback(ended)


async def _close(answer: aiohttp.ClientResponse) -> None:
    answer.release()


async def _later(connector: aiohttp.BaseConnector) -> None:
    await connector.close()


async def _all(closings: list[Awaitable[None]]) -> None:
    for each in closings:
        await each
