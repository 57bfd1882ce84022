"""A transport by lines, blocking and awaited: all of it but the base classes, in which httpx and httpx2 differ and nothing else.

`library` is the one or the other as a module: the same classes under the same names, so requests, answers and pools are `Any` here.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import lru_cache
from typing import Any, Final, TypedDict

from reachline.integrations.direct import AwaitedDirect, Direct, core_url, named
from reachline.integrations.exchange import Exchange, Lines, Route, is_proxy
from reachline.integrations.exchange import placed as aim
from reachline.integrations.pools import Lease, Pools
from reachline.model import Seconds
from reachline.upstream import Pick
from reachline.upstream.tries import TRIES

__all__ = ["Awaited", "Blocking", "TransportSettings", "proxy_of", "settled"]

_KNOWN: Final = 1_024
"""URLs of lines that are kept: paths without an id in them…"""
_PATH_MOST: Final = 256
"""…of this many bytes at most. What is longer carries a query of its own, is not asked again, and may be sixty kilobytes."""


class TransportSettings(TypedDict, total=False):
    """What holds for all requests of a transport."""

    tries: int
    """Of one request at most; 3 unless said."""
    deadline: Seconds | None
    """For all its tries together."""
    keep_host: bool
    """Whether the far side is told the host in the URL, not the line's own name."""
    verify: ssl.SSLContext | bool
    """TLS of the lines and of what is no line."""


def settled(
    library: Any,
    lines: Lines,
    *,
    tries: int = TRIES,
    deadline: Seconds | None = None,
    keep_host: bool = False,
    verify: ssl.SSLContext | bool = True,
) -> tuple[Route, ssl.SSLContext]:
    """Settings as what does them. One TLS context for all lines: making one takes longer than a call."""
    context = verify if isinstance(verify, ssl.SSLContext) else library.create_ssl_context(verify=verify)
    return Route(lines, tries=tries, deadline=deadline, keep_host=keep_host), context


class Blocking:
    """What a `Transport` does. `plain` calls what is no cluster."""

    def __init__(self, library: Any, route: Route, make: Callable[[Pick], Any], plain: Any) -> None:
        self._library, self._route, self._plain = library, route, plain
        self._body: Final = body_of(library)
        self._pools: Final[Pools[Any]] = Pools(make)

    def handle(self, request: Any) -> Any:
        """The last try's answer."""
        exchange = _exchange(self._library, self._route, request)
        if exchange is None:
            return self._plain.handle_request(request)
        try:
            return self._tried(exchange, request)
        except BaseException:
            exchange.give_up()
            raise

    def close(self) -> None:
        """All connections."""
        for each in (self._plain, *self._pools.take_all()):
            each.close()

    def _tried(self, exchange: Exchange, request: Any) -> Any:
        while True:  # as `Exchange.run`, and without its calls: this is on the way of every request
            try:
                answer = self._send(exchange, request)
            except BaseException as error:
                wait = exchange.failed(error)
                if wait is None:
                    raise
            else:
                wait = exchange.answered(answer.status_code, answer)
                if wait is None:
                    return answer
                answer.close()
            time.sleep(wait)

    def _send(self, exchange: Exchange, request: Any) -> Any:
        pick = exchange.begin()
        if pick is None:
            return self._plain.handle_request(request)
        lease, closing = self._pools.borrow(pick)
        pool = lease.pool
        try:
            if closing is not None:
                closing.close()
            if type(pool) is Direct:
                found = pool.ask(request, *_direct(self._library, self._route, exchange, request))
                return _answered(self._library, found, exchange, self._body, self._pools, lease)
            answer = pool.handle_request(
                _aimed(self._library, exchange, pick, request, keep_host=self._route.keep_host)
            )
        except BaseException:
            closing = self._pools.give_back(lease)
            if closing is not None:
                closing.close()
            raise
        answer.stream = self._body(answer.stream, exchange, self._pools.give_back, lease)
        answer.extensions["reachline"] = exchange.call
        return answer


class Awaited:
    """`Blocking`, awaited under asyncio or trio."""

    def __init__(self, library: Any, route: Route, make: Callable[[Pick], Any], plain: Any) -> None:
        self._library, self._route, self._plain = library, route, plain
        self._body: Final = awaited_body_of(library)
        self._pools: Final[Pools[Any]] = Pools(make)

    async def handle(self, request: Any) -> Any:
        """The last try's answer."""
        exchange = _exchange(self._library, self._route, request)
        if exchange is None:
            return await self._plain.handle_async_request(request)
        return await exchange.run_async(
            lambda: self._send(exchange, request), status=_status, close=lambda answer: answer.aclose()
        )

    async def close(self) -> None:
        """All connections."""
        for each in (self._plain, *self._pools.take_all()):
            await each.aclose()

    async def _send(self, exchange: Exchange, request: Any) -> Any:
        pick = exchange.begin()
        if pick is None:
            return await self._plain.handle_async_request(request)
        lease, closing = self._pools.borrow(pick)
        pool = lease.pool
        try:
            if closing is not None:
                await closing.aclose()
            if type(pool) is AwaitedDirect:
                found = await pool.ask(request, *_direct(self._library, self._route, exchange, request, is_async=True))
                return _answered(self._library, found, exchange, self._body, self._pools, lease)
            aimed = _aimed(self._library, exchange, pick, request, keep_host=self._route.keep_host, is_async=True)
            answer = await pool.handle_async_request(aimed)
        except BaseException:
            closing = self._pools.give_back(lease)
            if closing is not None:
                await closing.aclose()
            raise
        answer.stream = self._body(answer.stream, exchange, self._pools.give_back, lease)
        answer.extensions["reachline"] = exchange.call
        return answer


def body_of(library: Any) -> type[Any]:
    """The library's stream, of an answer's body whose end is the call's end: made of it, its exchange, and `Pools.give_back` for its lease."""

    class Body(library.SyncByteStream):  # type: ignore[misc]  # of whichever library
        """Closed once, whatever comes of it: then the call has ended and its pool is given back."""

        def __init__(self, stream: Any, exchange: Exchange, give_back: Callable[[Lease[Any]], Any], lease: Any) -> None:
            self._stream, self._exchange, self._give_back, self._lease = stream, exchange, give_back, lease

        def __iter__(self) -> Iterator[bytes]:
            try:
                yield from self._stream
            except Exception as error:
                own = named(library, error)
                self._exchange.ended(own or error)
                if own is None:
                    raise
                raise own from error

        def close(self) -> None:
            lease, self._lease = self._lease, None
            if lease is not None:
                try:
                    self._stream.close()
                finally:
                    self._exchange.ended()
                    closing = self._give_back(lease)
                    if closing is not None:
                        closing.close()

    return Body


def awaited_body_of(library: Any) -> type[Any]:
    """`body_of`, awaited."""

    class Body(library.AsyncByteStream):  # type: ignore[misc]  # of whichever library
        """As that of `body_of`."""

        def __init__(self, stream: Any, exchange: Exchange, give_back: Callable[[Lease[Any]], Any], lease: Any) -> None:
            self._stream, self._exchange, self._give_back, self._lease = stream, exchange, give_back, lease

        async def __aiter__(self) -> AsyncIterator[bytes]:
            try:
                async for each in self._stream:
                    yield each
            except Exception as error:
                own = named(library, error)
                self._exchange.ended(own or error)
                if own is None:
                    raise
                raise own from error

        async def aclose(self) -> None:
            lease, self._lease = self._lease, None
            if lease is not None:
                try:
                    await self._stream.aclose()
                finally:
                    self._exchange.ended()
                    closing = self._give_back(lease)
                    if closing is not None:
                        await closing.aclose()

    return Body


def proxy_of(pick: Pick) -> str | None:
    """The line's proxy, as both libraries take one."""
    return pick.via if is_proxy(pick.via) else None


def _exchange(library: Any, route: Route, request: Any) -> Exchange | None:
    is_replayable = isinstance(request.stream, library.ByteStream)
    said = request.extensions.get("reachline")
    return route.exchange(request.url.host, request.method, said, is_replayable=is_replayable)


def _direct(
    library: Any, route: Route, exchange: Exchange, request: Any, *, is_async: bool = False
) -> tuple[Any, list[tuple[bytes, bytes]], Any]:
    """What a direct pool is asked by: URL, headers and extensions. It needs no request made anew."""
    pick = exchange.call.pick
    assert pick is not None
    _, host, url = _place(library, pick, request.url)
    headers = request.headers.raw
    if not route.keep_host:
        headers = [(b"Host", host), *(each for each in headers if each[0].lower() != b"host")]
    return url, headers, _extended(exchange, request, is_async=is_async)


def _answered(  # noqa: PLR0917 - what a body is made of
    library: Any, found: Any, exchange: Exchange, body: type[Any], pools: Pools[Any], lease: Lease[Any]
) -> Any:
    """A direct pool's answer as the library's, whose end is the call's."""
    extensions = {**found.extensions, "reachline": exchange.call}
    stream = body(found.stream, exchange, pools.give_back, lease)
    return library.Response(found.status, headers=found.headers, stream=stream, extensions=extensions)


def _aimed(
    library: Any, exchange: Exchange, pick: Pick, request: Any, *, keep_host: bool, is_async: bool = False
) -> Any:
    """The request, to the line: its own timeouts within what is left, and no connection that must not be made now."""
    url, host, _ = _place(library, pick, request.url)
    # All that the caller's has, but for what is another's here. Made anew from its parts it would cost three times as much.
    made = library.Request.__new__(library.Request)
    vars(made).update(vars(request))
    made.url = url
    if not keep_host:
        made.headers = library.Headers(request.headers)
        made.headers["host"] = host.decode("ascii")
    made.extensions = _extended(exchange, request, is_async=is_async)
    return made


def _extended(exchange: Exchange, request: Any, *, is_async: bool = False) -> Any:
    """The request's extensions, with what this try adds to them."""
    limit = exchange.limit
    if limit is None and not exchange.has_deadline:
        return request.extensions
    extensions = dict(request.extensions)
    if exchange.has_deadline:
        usual = extensions.get("timeout") or {}
        extensions["timeout"] = {
            name: exchange.timeout(usual.get(name)) for name in ("connect", "read", "write", "pool")
        }
    if limit is not None:
        extensions["trace"] = _traced(limit, extensions.get("trace"), is_async=is_async)
    return extensions


def _place(library: Any, pick: Pick, usual_url: Any) -> tuple[Any, bytes, Any]:
    """Where the caller's URL is at the line: as the library's URL, its `host`, and as its pool's."""
    path = usual_url.raw_path
    placed = _placed if len(path) <= _PATH_MOST else _placed.__wrapped__
    return placed(library, pick.url, pick.address, pick.target, usual_url.scheme, path)


@lru_cache(maxsize=_KNOWN)
def _placed(  # noqa: PLR0917 - one look-up
    library: Any, url: str, address: tuple[str, int] | None, target: str, scheme: str, path: bytes
) -> tuple[Any, bytes, Any]:
    """A path at a line, what its `host` is, and what its pool is asked by: putting a URL together costs a tenth of a call."""
    scheme, host, port = aim(url, address, target, scheme)
    found = library.URL(scheme=scheme, host=host, port=port, raw_path=path)
    return found, found.netloc, core_url(library, found)


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


def _status(response: Any) -> int:
    return int(response.status_code)
