"""httpx2 by lines: `httpx2.Client(transport=Transport(client))`, and a URL whose host is a cluster goes to one of its lines."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from functools import lru_cache
from typing import Final

import httpx2

from reachline.integrations.exchange import Exchange, Lines, Route, aim, is_proxy
from reachline.integrations.pools import Lease, Pools
from reachline.model import Seconds
from reachline.upstream import Pick
from reachline.upstream.tries import TRIES

__all__ = ["AsyncTransport", "Transport"]


_KNOWN: Final = 1_024
"""URLs of lines that are kept: paths without an id in them."""


class Transport(httpx2.BaseTransport):
    """For `httpx2.Client`. A host that is no cluster of `lines` is called as without Reachline.

    What holds for one request alone is in `extensions={"reachline": {"deadline": 2.0, "idempotent": True}}`; the answer's
    `extensions["reachline"]` is its last try. `make` makes the transport of a line, if it needs more than TLS and a proxy.
    """

    def __init__(
        self,
        lines: Lines,
        *,
        tries: int = TRIES,
        deadline: Seconds | None = None,
        keep_host: bool = False,
        verify: ssl.SSLContext | bool = True,
        make: Callable[[Pick], httpx2.BaseTransport] | None = None,
    ) -> None:
        self._route: Final = Route(lines, tries=tries, deadline=deadline, keep_host=keep_host)
        context = _context(verify)
        self._pools: Final = Pools(
            make or (lambda pick: httpx2.HTTPTransport(verify=context, proxy=_proxy(pick), trust_env=False))
        )
        self._plain: Final = httpx2.HTTPTransport(verify=context)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        exchange = _exchange(self._route, request)
        if exchange is None:
            return self._plain.handle_request(request)
        return exchange.run(
            lambda: self._send(exchange, request), status=_status, close=lambda response: response.close()
        )

    def close(self) -> None:
        for each in (self._plain, *self._pools.take_all()):
            each.close()

    def _send(self, exchange: Exchange, request: httpx2.Request) -> httpx2.Response:
        pick = exchange.begin()
        if pick is None:
            return self._plain.handle_request(request)
        lease, closing = self._pools.borrow(pick)
        if closing is not None:
            closing.close()
        try:
            response = lease.pool.handle_request(_aimed(exchange, pick, request, keep_host=self._route.keep_host))
        except BaseException:
            self._give_back(lease)
            raise
        assert isinstance(response.stream, httpx2.SyncByteStream)
        response.stream = _Body(response.stream, exchange, lambda: self._give_back(lease))
        response.extensions["reachline"] = exchange.call
        return response

    def _give_back(self, lease: Lease[httpx2.BaseTransport]) -> None:
        closing = self._pools.give_back(lease)
        if closing is not None:
            closing.close()


class AsyncTransport(httpx2.AsyncBaseTransport):
    """`Transport` for `httpx2.AsyncClient`, under asyncio or trio."""

    def __init__(
        self,
        lines: Lines,
        *,
        tries: int = TRIES,
        deadline: Seconds | None = None,
        keep_host: bool = False,
        verify: ssl.SSLContext | bool = True,
        make: Callable[[Pick], httpx2.AsyncBaseTransport] | None = None,
    ) -> None:
        self._route: Final = Route(lines, tries=tries, deadline=deadline, keep_host=keep_host)
        context = _context(verify)
        self._pools: Final = Pools(
            make or (lambda pick: httpx2.AsyncHTTPTransport(verify=context, proxy=_proxy(pick), trust_env=False))
        )
        self._plain: Final = httpx2.AsyncHTTPTransport(verify=context)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        exchange = _exchange(self._route, request)
        if exchange is None:
            return await self._plain.handle_async_request(request)
        return await exchange.run_async(
            lambda: self._send(exchange, request), status=_status, close=lambda response: response.aclose()
        )

    async def aclose(self) -> None:
        for each in (self._plain, *self._pools.take_all()):
            await each.aclose()

    async def _send(self, exchange: Exchange, request: httpx2.Request) -> httpx2.Response:
        pick = exchange.begin()
        if pick is None:
            return await self._plain.handle_async_request(request)
        lease, closing = self._pools.borrow(pick)
        try:
            if closing is not None:
                await closing.aclose()
            aimed = _aimed(exchange, pick, request, keep_host=self._route.keep_host, is_async=True)
            response = await lease.pool.handle_async_request(aimed)
        except BaseException:
            await self._give_back(lease)
            raise
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _AsyncBody(response.stream, exchange, lambda: self._pools.give_back(lease))
        response.extensions["reachline"] = exchange.call
        return response

    async def _give_back(self, lease: Lease[httpx2.AsyncBaseTransport]) -> None:
        closing = self._pools.give_back(lease)
        if closing is not None:
            await closing.aclose()


class _Body(httpx2.SyncByteStream):
    """An answer's body, whose end is the call's end."""

    def __init__(self, stream: httpx2.SyncByteStream, exchange: Exchange, give_back: Callable[[], None]) -> None:
        self._stream, self._exchange, self._give_back = stream, exchange, give_back
        self._is_closed = False

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._stream
        except Exception as error:
            self._exchange.ended(error)
            raise

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._stream.close()
            self._exchange.ended()
            self._give_back()


class _AsyncBody(httpx2.AsyncByteStream):
    """`_Body`, awaited."""

    def __init__(
        self,
        stream: httpx2.AsyncByteStream,
        exchange: Exchange,
        give_back: Callable[[], httpx2.AsyncBaseTransport | None],
    ) -> None:
        self._stream, self._exchange, self._give_back = stream, exchange, give_back
        self._is_closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for each in self._stream:
                yield each
        except Exception as error:
            self._exchange.ended(error)
            raise

    async def aclose(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await self._stream.aclose()
        finally:
            self._exchange.ended()
            if (closing := self._give_back()) is not None:
                await closing.aclose()


def _exchange(route: Route, request: httpx2.Request) -> Exchange | None:
    is_replayable = isinstance(request.stream, httpx2.ByteStream)
    said = request.extensions.get("reachline")
    return route.exchange(request.url.host, request.method, said, is_replayable=is_replayable)


def _aimed(
    exchange: Exchange, pick: Pick, request: httpx2.Request, *, keep_host: bool, is_async: bool = False
) -> httpx2.Request:
    """The request, to the line: its own timeouts within what is left, and no connection that must not be made now."""
    url, host = _placed(aim(pick, request.url.scheme), request.url.raw_path)
    made = httpx2.Request(
        request.method, url, headers=request.headers, stream=request.stream, extensions=request.extensions
    )
    if not keep_host:
        made.headers["host"] = host
    extensions = made.extensions
    if exchange.call.remaining is not None:
        usual = extensions.get("timeout") or {}
        extensions["timeout"] = {
            name: exchange.timeout(usual.get(name)) for name in ("connect", "read", "write", "pool")
        }
    if (limit := exchange.limit) is not None:
        extensions["trace"] = _traced(limit, extensions.get("trace"), is_async=is_async)
    return made


@lru_cache(maxsize=_KNOWN)
def _placed(place: tuple[str, str, int | None], path: bytes) -> tuple[httpx2.URL, str]:
    """A path at a line, and what its `host` is: putting a URL together costs a tenth of a call."""
    scheme, host, port = place
    url = httpx2.URL(scheme=scheme, host=host, port=port, raw_path=path)
    return url, url.netloc.decode("ascii")


def _traced(limit: Callable[[], None], then: object, *, is_async: bool) -> Callable[[str, object], object]:
    """What httpcore calls at each of its steps: a new connection asks first. The caller's own trace goes on."""

    def trace(name: str, details: object) -> object:
        if name == "connection.connect_tcp.started":
            limit()
        return then(name, details) if callable(then) else None

    async def trace_async(name: str, details: object) -> None:
        told = trace(name, details)
        if hasattr(told, "__await__"):
            await told

    return trace_async if is_async else trace


def _context(verify: ssl.SSLContext | bool) -> ssl.SSLContext:
    """One TLS context for all lines: making one takes longer than a call."""
    return verify if isinstance(verify, ssl.SSLContext) else httpx2.create_ssl_context(verify=verify)


def _status(response: httpx2.Response) -> int:
    return response.status_code


def _proxy(pick: Pick) -> str | None:
    return pick.via if is_proxy(pick.via) else None
