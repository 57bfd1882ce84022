"""Keeping one cluster's list current by long poll. One task of the client's thread; every answer is doubted."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final
from urllib.parse import quote

from reachline.client.answer import line_list, parsed
from reachline.client.backoff import pause
from reachline.client.http import Answer, Connection, Lost, Request
from reachline.client.options import CenterAddress
from reachline.errors import RemoteProtocolError
from reachline.model import Seconds
from reachline.upstream import Cluster

__all__ = ["PollCounts", "Poller"]

_log: Final = logging.getLogger("reachline.client")

_HOLD: Final[Seconds] = 30.0
"""How long a center may hold a poll: below the 60 s at which proxies in between hang up. Half a list's `ttl` at most, for a
list whose center merely has no news is not stale."""
_ANSWER: Final[Seconds] = 10.0
"""How long an answer may take beyond that."""
_BACKOFF_MOST: Final[Seconds] = 5.0
"""Between tries while no center answers: ten thousand clients are then 2 700 requests a second at most."""
_UNKNOWN_MOST: Final[Seconds] = 30.0
"""…while centers answer, but not with a list: only an operator can change that."""
_SPACING: Final[Seconds] = 0.1
"""Between two lists: a cut is published at once, and ten a second are as fast as anybody need follow."""
_QUIET: Final[Seconds] = 1.0
"""Between two polls of a center that will not hold them."""


@dataclass(slots=True)
class PollCounts:
    """Of one cluster's polls since the thread started; written by its task."""

    answers: int = 0
    unchanged: int = 0
    lost: int = 0
    malformed: int = 0
    refused: int = 0


class Poller:
    """Asks one center after another for one cluster's list, for as long as its task runs."""

    def __init__(
        self,
        cluster: Cluster,
        centers: tuple[CenterAddress, ...],
        *,
        tls: ssl.SSLContext | None,
        token: str,
        rng: Random,
        confirmed: Callable[[str, object], None],
        settled: Callable[[str], None],
    ) -> None:
        self.counts = PollCounts()
        self._cluster: Final = cluster
        self._connections: Final = [Connection(each, tls) for each in centers]
        self._token: Final = token
        self._rng: Final = rng
        self._confirmed, self._settled = confirmed, settled
        self._at = rng.randrange(len(centers))
        self._failures = 0
        """In a row, over all centers."""
        self._holds = False
        """The last exchange went well: the next poll may be held until there is news."""

    async def run(self) -> None:
        """Poll until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            wait = await self._poll()
            if wait > loop.time() - began:
                await asyncio.sleep(wait - (loop.time() - began))

    def close(self) -> None:
        """Let go of the connections."""
        for connection in self._connections:
            connection.close()

    def abandon(self) -> None:
        """In a forked child: close the descriptors alone."""
        for connection in self._connections:
            connection.abandon()

    async def _poll(self) -> Seconds:
        """One poll; how long after its beginning the next one may start."""
        asked = min(_HOLD, self._cluster.published.ttl / 2) if self._holds else 0.0
        found = await self._connections[self._at].exchange(self._request(asked), timeout=asked + _ANSWER)
        if isinstance(found, Lost):
            self.counts.malformed += found.is_malformed
            self.counts.lost += not found.is_malformed
            return self._trouble(f"no answer: {found.reason}", most=_BACKOFF_MOST)
        self.counts.answers += 1
        match found.status:
            case 200:
                return self._take(found)
            case 304 if self._cluster.version is not None:
                self.counts.unchanged += 1
                return self._well(_QUIET)
            case 404:
                return self._answered("unknown cluster")
            case 401 | 403:
                return self._answered("not authorised")
            case _:
                return self._trouble(f"status {found.status}", most=_UNKNOWN_MOST)

    def _request(self, wait: Seconds) -> Request:
        headers = {"accept": "application/json"}
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        path = f"/api/v1/clusters/{quote(self._cluster.name, safe='')}/lines"
        version = self._cluster.version
        if version is None:
            return Request("GET", path, headers)
        headers["if-none-match"] = f'"{version}"'
        hold = f"wait={wait:g}&" if wait else ""
        return Request("GET", f"{path}?{hold}version={version}", headers)

    def _take(self, answer: Answer) -> Seconds:
        try:
            document = parsed(answer.body)
            lines = line_list(document, cluster=self._cluster.name)
        except RemoteProtocolError as error:
            self.counts.malformed += 1
            return self._trouble(f"malformed answer: {error}", most=_UNKNOWN_MOST)
        was = self._cluster.version
        if not self._cluster.replace(lines, source="center"):
            self.counts.refused += 1
            return self._trouble(f"version {lines.version} is older than {was}", most=_BACKOFF_MOST)
        return self._well(_QUIET if lines.version == was else _SPACING, document)

    def _well(self, spacing: Seconds, document: object = None) -> Seconds:
        """A center stands by the present list; `document` is what it said, where it said it anew."""
        self._cluster.heard()
        self._confirmed(self._cluster.name, document)
        if self._cluster.trouble:
            _log.info("center_answers_again", extra={"cluster": self._cluster.name, "center": self._url})
        self._cluster.trouble = ""
        self._failures, self._holds = 0, True
        self._settled(self._cluster.name)
        return spacing

    def _answered(self, trouble: str) -> Seconds:
        """A definite no: there is no use in waiting for a list."""
        wait = self._trouble(trouble, most=_UNKNOWN_MOST)
        self._settled(self._cluster.name)
        return wait

    def _trouble(self, trouble: str, *, most: Seconds) -> Seconds:
        """Note what is wrong, turn to the next center, and say how long to wait first."""
        if trouble != self._cluster.trouble:
            fields = {"cluster": self._cluster.name, "center": self._url, "trouble": trouble}
            _log.warning("lines_not_fetched", extra=fields)
        self._cluster.trouble = trouble
        self._failures, self._holds = self._failures + 1, False
        self._connections[self._at].close()
        self._at = (self._at + 1) % len(self._connections)
        rounds, rest = divmod(self._failures, len(self._connections))
        if rounds and self._cluster.published.lines:
            self._settled(self._cluster.name)
        # Each center is asked once before any is left alone.
        return pause(rounds, self._rng, most=most) if not rest else 0.0

    @property
    def _url(self) -> str:
        return self._connections[self._at].center.url
