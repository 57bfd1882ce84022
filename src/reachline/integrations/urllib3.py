"""urllib3 by lines: `LinesManager(client)` is a pool manager in which a host that is a cluster is one of its lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.util import Retry, Timeout, parse_url

from reachline.integrations.exchange import LIMIT, Exchange, Lines, Route, aim, place, way
from reachline.integrations.pools import Pools
from reachline.model import Seconds
from reachline.upstream import Pick
from reachline.upstream.tries import TRIES, Plan

__all__ = ["LinesManager", "paced", "within"]

M = TypeVar("M", bound=urllib3.PoolManager)


class LinesManager(urllib3.PoolManager):
    """As urllib3's, which it is for every host that is no cluster of `lines`; other settings are urllib3's own.

    What holds for one request alone is in `reachline={"deadline": 2.0, "idempotent": True}`. Requests to a cluster are tried
    again as Reachline does it, on another line; `retries` says how many redirects are followed, and no more. An answer that is not preloaded is counted by its head.
    """

    def __init__(
        self,
        lines: Lines,
        *,
        tries: int = TRIES,
        deadline: Seconds | None = None,
        keep_host: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self._route: Final = Route(lines, tries=tries, deadline=deadline, keep_host=keep_host)
        self._lines: Final = Pools(lambda pick: _manager(pick, settings))

    def urlopen(  # type: ignore[override]  # urllib3 types what passes through as Any, and so do we
        self, method: str, url: str, redirect: bool = True, *, reachline: Plan | None = None, **more: Any
    ) -> urllib3.BaseHTTPResponse:
        if self._route.knows(parse_url(url).host or ""):
            more["reachline"] = reachline
        return super().urlopen(method, url, redirect, **more)

    def connection_from_host(
        self, host: str | None, port: int | None = None, scheme: str | None = "http", pool_kwargs: Any = None
    ) -> Any:
        """As urllib3's; for a cluster, all of its lines."""
        plain = super().connection_from_host(host, port, scheme, pool_kwargs)
        if host is None or not self._route.knows(host):
            return plain
        return _Lines(self, self._route, self._lines, plain, (scheme or "http", host, port))

    def clear(self) -> None:
        super().clear()
        for each in self._lines.take_all():
            each.clear()


class _Lines:
    """What a pool manager needs of a connection pool, of a whole cluster. Redirects are the manager's."""

    def __init__(
        self,
        manager: LinesManager,
        route: Route,
        lines: Pools[urllib3.PoolManager],
        plain: HTTPConnectionPool,
        asked: tuple[str, str, int | None],
    ) -> None:
        self._manager, self._route, self._lines, self._plain, self._asked = manager, route, lines, plain, asked

    def urlopen(self, method: str, url: str, *, reachline: Plan | None = None, **more: Any) -> urllib3.BaseHTTPResponse:
        """The last try's answer; `url` is path and query."""
        body = more.get("body")
        is_replayable = body is None or isinstance(body, bytes | str)
        exchange = self._route.exchange(self._asked[1], method, reachline, is_replayable=is_replayable)
        assert exchange is not None
        answer = exchange.run(
            lambda: self._send(exchange, method, url, more), status=lambda each: each.status, close=_discard
        )
        exchange.ended()
        # How many redirects may follow: the tries of this request were ours.
        usual = self._manager.connection_pool_kw.get("retries")
        answer.retries = Retry.from_int(more.get("retries"), default=usual)
        return answer

    def is_same_host(self, url: str) -> bool:
        """Whether a redirect stays in the cluster."""
        found = parse_url(url)
        return (found.scheme, found.host, found.port) == self._asked

    def _send(self, exchange: Exchange, method: str, url: str, more: Mapping[str, Any]) -> urllib3.BaseHTTPResponse:
        pick = exchange.begin()
        if pick is None:
            return self._plain.urlopen(method, url, **more)
        scheme, host, port = aim(pick, self._asked[0])
        usual = self._manager.connection_pool_kw.get("timeout", Timeout.DEFAULT_TIMEOUT)
        settings = {**more, "retries": False, "timeout": within(exchange, more.get("timeout", usual))}
        if self._route.keep_host:
            settings["headers"] = {**(more.get("headers") or {}), "host": place(*self._asked[1:])}
        # Last, for what is borrowed is to be given back.
        lease, closing = self._lines.borrow(pick)
        token = LIMIT.set(exchange.limit)
        try:
            if closing is not None:
                closing.clear()
            return lease.pool.urlopen(method, f"{scheme}://{place(host, port)}{url}", **settings)
        finally:
            LIMIT.reset(token)
            if (closing := self._lines.give_back(lease)) is not None:
                closing.clear()


def within(exchange: Exchange, usual: Any) -> Timeout:
    """The caller's timeout, all of it within what is left of the deadline."""
    found = usual.clone() if isinstance(usual, Timeout) else Timeout.from_float(usual)
    total = exchange.timeout(found.total if isinstance(found.total, int | float) else None)
    found.total = total
    return found


def paced(manager: M) -> M:
    """The manager, whose new connections ask `LIMIT` first."""
    manager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
    return manager


class _Connection(HTTPConnection):
    def connect(self) -> None:
        _ask()
        super().connect()


class _TlsConnection(HTTPSConnection):
    def connect(self) -> None:
        _ask()
        super().connect()


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


def _ask() -> None:
    if (limit := LIMIT.get()) is not None:
        limit()


def _manager(pick: Pick, settings: Mapping[str, Any]) -> urllib3.PoolManager:
    if (via := way(pick, "urllib3", "http", "https")) is not None:
        return paced(urllib3.ProxyManager(via, **settings))
    return paced(urllib3.PoolManager(**settings))


def _discard(answer: urllib3.BaseHTTPResponse) -> None:
    answer.drain_conn()
    answer.release_conn()
