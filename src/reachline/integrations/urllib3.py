"""urllib3 by lines: `LinesManager(client)` is a pool manager in which a host that is a cluster is one of its lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.util import Timeout, Url, parse_url

from reachline.integrations.exchange import LIMIT, Exchange, Lines, Route, aim, is_proxy
from reachline.integrations.pools import Pools
from reachline.model import Seconds
from reachline.upstream import Pick
from reachline.upstream.tries import TRIES, Plan

__all__ = ["LinesManager", "paced"]

M = TypeVar("M", bound=urllib3.PoolManager)


class LinesManager(urllib3.PoolManager):
    """As urllib3's, which it is for every host that is no cluster of `lines`; other settings are urllib3's own.

    What holds for one request alone is in `reachline={"deadline": 2.0, "idempotent": True}`. Requests to a cluster are tried
    again as Reachline does it, on another line, and never by `retries`. An answer that is not preloaded is counted by its head.
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
        found = parse_url(url)
        body = more.get("body")
        exchange = self._route.exchange(
            found.host or "", method, reachline, is_replayable=body is None or isinstance(body, bytes | str)
        )
        if exchange is None:
            return super().urlopen(method, url, redirect, **more)
        answer = exchange.run(
            lambda: self._send(exchange, method, found, more), status=lambda each: each.status, close=_discard
        )
        exchange.ended()
        return answer

    def clear(self) -> None:
        super().clear()
        if hasattr(self, "_lines"):
            for each in self._lines.take_all():
                each.clear()

    def _send(self, exchange: Exchange, method: str, url: Url, more: Mapping[str, Any]) -> urllib3.BaseHTTPResponse:
        pick = exchange.begin()
        if pick is None:
            return super().urlopen(method, url.url, redirect=False, **more)
        lease, closing = self._lines.borrow(pick)
        if closing is not None:
            closing.clear()
        scheme, host, port = aim(pick, url.scheme or "http")
        settings = {**more, "retries": False, "assert_same_host": False}
        settings["timeout"] = _timeout(exchange, more.get("timeout", self.connection_pool_kw.get("timeout")))
        if self._route.keep_host:
            settings["headers"] = {**(more.get("headers") or self.headers), "host": url.netloc or ""}
        token = LIMIT.set(exchange.limit)
        try:
            aimed = url._replace(scheme=scheme, host=host, port=port, auth=None)
            return lease.pool.urlopen(method, aimed.url, redirect=False, **settings)
        finally:
            LIMIT.reset(token)
            if (closing := self._lines.give_back(lease)) is not None:
                closing.clear()


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
    if is_proxy(pick.via):
        return paced(urllib3.ProxyManager(pick.via, **settings))
    return paced(urllib3.PoolManager(**settings))


def _timeout(exchange: Exchange, usual: object) -> Timeout:
    """The caller's timeout within what is left of the deadline."""
    given = (
        usual if isinstance(usual, Timeout) else Timeout.from_float(usual if isinstance(usual, int | float) else None)
    )
    connect, read = given.connect_timeout, given.read_timeout
    return Timeout(connect=exchange.timeout(_seconds(connect)), read=exchange.timeout(_seconds(read)))


def _seconds(given: object) -> Seconds | None:
    return float(given) if isinstance(given, int | float) else None


def _discard(answer: urllib3.BaseHTTPResponse) -> None:
    answer.drain_conn()
    answer.release_conn()
