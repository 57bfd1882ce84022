"""requests by lines: `session.mount("http://payments", Adapter(client))`, and the host of such a URL is one of its lines."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import requests
from requests.adapters import BaseAdapter, HTTPAdapter
from requests.structures import CaseInsensitiveDict
from urllib3.util import Timeout

from reachline.integrations.exchange import LIMIT, Exchange, Lines, Route, is_proxy, place, placed
from reachline.integrations.pools import Pools
from reachline.integrations.urllib3 import paced, within
from reachline.model import Seconds
from reachline.upstream import Pick
from reachline.upstream.tries import TRIES, Plan

__all__ = ["Adapter"]

_KNOWN: Final = 1_024
"""URLs of lines that are kept…"""
_URL_MOST: Final = 256
"""…of this many characters at most: what is longer carries a query of its own, and is not asked again."""

Timeouts = float | tuple[float | None, float | None] | Timeout | None


class Adapter(BaseAdapter):
    """To be mounted at `http://CLUSTER` for each cluster; other hosts under its prefix are called as ever.

    Every request through one adapter may be made twice as its method says, or as `idempotent` does. Proxies of the environment
    are not for lines: a line says itself how it is reached. An answer that is streamed is counted by its head.
    """

    def __init__(
        self,
        lines: Lines,
        *,
        tries: int = TRIES,
        deadline: Seconds | None = None,
        keep_host: bool = False,
        idempotent: bool | None = None,
    ) -> None:
        super().__init__()
        self._route: Final = Route(lines, tries=tries, deadline=deadline, keep_host=keep_host)
        self._said: Final = None if idempotent is None else Plan(idempotent=idempotent)
        self._plain: Final = HTTPAdapter()
        self._pools: Final[Pools[HTTPAdapter]] = Pools(lambda _: _LineAdapter())

    def send(  # noqa: PLR0917 - as HTTPAdapter's
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Timeouts = None,
        verify: bool | str = True,
        cert: Any = None,
        proxies: Mapping[str, str] | None = None,
    ) -> requests.Response:
        host = urlsplit(str(request.url)).hostname or ""
        is_replayable = request.body is None or isinstance(request.body, bytes | str)
        exchange = self._route.exchange(host, str(request.method), self._said, is_replayable=is_replayable)
        settings: dict[str, Any] = {"stream": stream, "timeout": timeout, "verify": verify, "cert": cert}
        if exchange is None:
            return self._plain.send(request, proxies=proxies, **settings)
        answer = exchange.run(
            lambda: self._send(exchange, request, settings),
            status=lambda each: each.status_code,
            close=lambda each: each.close(),
        )
        exchange.ended()
        return answer

    def close(self) -> None:
        for each in (self._plain, *self._pools.take_all()):
            each.close()

    def _send(
        self, exchange: Exchange, request: requests.PreparedRequest, settings: Mapping[str, Any]
    ) -> requests.Response:
        pick = exchange.begin()
        if pick is None:
            return self._plain.send(request, **settings)
        aimed = _aimed(pick, request, keep_host=self._route.keep_host)
        own = settings
        if exchange.has_deadline:
            given = settings["timeout"]
            usual = Timeout(connect=given[0], read=given[1]) if isinstance(given, tuple) else given
            own = {**settings, "timeout": within(exchange, usual)}
        proxies = {urlsplit(str(aimed.url)).scheme: pick.via} if is_proxy(pick.via) else {}
        # Last, for what is borrowed is to be given back.
        lease, closing = self._pools.borrow(pick)
        token = LIMIT.set(exchange.limit)
        try:
            if closing is not None:
                closing.close()
            answer = lease.pool.send(aimed, proxies=proxies, **own)
            if not settings["stream"]:
                # Read here, so that a body that breaks off is this try's failure.
                answer.content  # noqa: B018
        finally:
            LIMIT.reset(token)
            if (closing := self._pools.give_back(lease)) is not None:
                closing.close()
        answer.request, answer.url = request, str(request.url)
        return answer


class _LineAdapter(HTTPAdapter):
    """One line's connections; new ones ask first."""

    def init_poolmanager(self, *arguments: Any, **settings: Any) -> None:
        super().init_poolmanager(*arguments, **settings)
        paced(self.poolmanager)


def _aimed(pick: Pick, request: requests.PreparedRequest, *, keep_host: bool) -> requests.PreparedRequest:
    """The request, to the line. Cookies are the caller's own, for they are only read: a copy of their jar takes longer than a pick."""
    text = str(request.url)
    known = _placed if len(text) <= _URL_MOST else _placed.__wrapped__
    url, netloc = known(text, pick.url, pick.address, pick.target)
    found = requests.PreparedRequest()
    vars(found).update(vars(request))
    found.url = url
    if keep_host:
        found.headers = CaseInsensitiveDict(request.headers)
        found.headers["host"] = netloc
    return found


@lru_cache(maxsize=_KNOWN)
def _placed(text: str, line: str, address: tuple[str, int] | None, target: str) -> tuple[str, str]:
    """A URL at a line, and the host that it names itself."""
    url = urlsplit(text)
    scheme, host, port = placed(line, address, target, url.scheme)
    return urlunsplit((scheme, place(host, port), url.path, url.query, "")), url.netloc.rpartition("@")[2]
