"""httpx by lines: `httpx.Client(transport=Transport(client))`, and a URL whose host is a cluster goes to one of its lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Unpack

import httpx

from reachline.integrations.direct import AwaitedDirect, Direct
from reachline.integrations.exchange import Lines
from reachline.integrations.transport import Awaited, Blocking, TransportSettings, proxy_of, settled
from reachline.upstream import Pick

__all__ = ["AsyncTransport", "Transport"]


class Transport(httpx.BaseTransport):
    """For `httpx.Client`. A host that is no cluster of `lines` is called as without Reachline.

    What holds for one request alone is in `extensions={"reachline": {"deadline": 2.0, "idempotent": True}}`; the answer's
    `extensions["reachline"]` is its last try. `make` makes the transport of a line, if it needs more than TLS and a proxy.
    """

    def __init__(
        self,
        lines: Lines,
        *,
        make: Callable[[Pick], httpx.BaseTransport] | None = None,
        **settings: Unpack[TransportSettings],
    ) -> None:
        route, tls = settled(httpx, lines, **settings)

        def usual(pick: Pick) -> Any:
            proxy = proxy_of(pick)
            if proxy is None:
                return Direct(httpx, tls)
            return httpx.HTTPTransport(verify=tls, proxy=proxy, trust_env=False)

        self._sender: Final = Blocking(httpx, route, make or usual, httpx.HTTPTransport(verify=tls))

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer: httpx.Response = self._sender.handle(request)
        return answer

    def close(self) -> None:
        self._sender.close()


class AsyncTransport(httpx.AsyncBaseTransport):
    """`Transport` for `httpx.AsyncClient`, under asyncio or trio."""

    def __init__(
        self,
        lines: Lines,
        *,
        make: Callable[[Pick], httpx.AsyncBaseTransport] | None = None,
        **settings: Unpack[TransportSettings],
    ) -> None:
        route, tls = settled(httpx, lines, **settings)

        def usual(pick: Pick) -> Any:
            proxy = proxy_of(pick)
            if proxy is None:
                return AwaitedDirect(httpx, tls)
            return httpx.AsyncHTTPTransport(verify=tls, proxy=proxy, trust_env=False)

        self._sender: Final = Awaited(httpx, route, make or usual, httpx.AsyncHTTPTransport(verify=tls))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer: httpx.Response = await self._sender.handle(request)
        return answer

    async def aclose(self) -> None:
        await self._sender.close()
