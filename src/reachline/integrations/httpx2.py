"""httpx2 by lines: `httpx2.Client(transport=Transport(client))`, and a URL whose host is a cluster goes to one of its lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Unpack

import httpx2

from reachline.integrations.direct import AwaitedDirect, Direct
from reachline.integrations.exchange import Lines
from reachline.integrations.transport import Awaited, Blocking, TransportSettings, proxy_of, settled
from reachline.upstream import Pick

__all__ = ["AsyncTransport", "Transport"]


class Transport(httpx2.BaseTransport):
    """For `httpx2.Client`. A host that is no cluster of `lines` is called as without Reachline.

    What holds for one request alone is in `extensions={"reachline": {"deadline": 2.0, "idempotent": True}}`; the answer's
    `extensions["reachline"]` is its last try. `make` makes the transport of a line, if it needs more than TLS and a proxy.
    """

    def __init__(
        self,
        lines: Lines,
        *,
        make: Callable[[Pick], httpx2.BaseTransport] | None = None,
        **settings: Unpack[TransportSettings],
    ) -> None:
        route, tls = settled(httpx2, lines, **settings)

        def usual(pick: Pick) -> Any:
            proxy = proxy_of(pick)
            if proxy is None:
                return Direct(httpx2, tls)
            return httpx2.HTTPTransport(verify=tls, proxy=proxy, trust_env=False)

        self._sender: Final = Blocking(httpx2, route, make or usual, httpx2.HTTPTransport(verify=tls))

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        answer: httpx2.Response = self._sender.handle(request)
        return answer

    def close(self) -> None:
        self._sender.close()


class AsyncTransport(httpx2.AsyncBaseTransport):
    """`Transport` for `httpx2.AsyncClient`, under asyncio or trio."""

    def __init__(
        self,
        lines: Lines,
        *,
        make: Callable[[Pick], httpx2.AsyncBaseTransport] | None = None,
        **settings: Unpack[TransportSettings],
    ) -> None:
        route, tls = settled(httpx2, lines, **settings)

        def usual(pick: Pick) -> Any:
            proxy = proxy_of(pick)
            if proxy is None:
                return AwaitedDirect(httpx2, tls)
            return httpx2.AsyncHTTPTransport(verify=tls, proxy=proxy, trust_env=False)

        self._sender: Final = Awaited(httpx2, route, make or usual, httpx2.AsyncHTTPTransport(verify=tls))

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        answer: httpx2.Response = await self._sender.handle(request)
        return answer

    async def aclose(self) -> None:
        await self._sender.close()
