"""Sending what calls came to: summed each second, at once when a breaker moved, and never the same call twice.

A request that a center may have read is not repeated: its calls are counted as unconfirmed. Calls that found no center
within ten seconds are dropped and counted, for old evidence would be taken for news.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple

from reachline.client.backoff import pause
from reachline.client.http import Answer, Connection, Lost, Request
from reachline.client.options import CenterAddress
from reachline.model import LineId, Outcome, Seconds
from reachline.upstream import Cluster

__all__ = ["PostCounts", "Poster"]

_log: Final = logging.getLogger("reachline.client")

_EVERY: Final[Seconds] = 1.0
_SPACING: Final[Seconds] = 0.2
"""Between two posts, however many breakers move."""
_ANSWER: Final[Seconds] = 5.0
"""A center answers once its journal has the batch: 20 ms of group commit, and a slow disk."""
_KEEP: Final[Seconds] = 10.0
_BACKOFF_MOST: Final[Seconds] = 4.0
"""Well below `_KEEP`: each batch gets more than one try."""
_ROWS_MOST: Final = 1_000
"""Rows of one post, as many as a center takes."""
_LATER: Final = (429, 502, 503, 504)
"""Answers that say: not now. The batch is kept."""


@dataclass(slots=True)
class PostCounts:
    """Calls by what became of their outcome since the thread started; written by its task."""

    posts: int = 0
    confirmed: int = 0
    unconfirmed: int = 0
    dropped: int = 0
    refused: int = 0


class _Batch(NamedTuple):
    at: Seconds
    outcomes: tuple[Outcome, ...]
    shed: int = 0
    """Calls that the plan across regions refused: no outcomes, but asked for."""


class Poster:
    """Takes outcomes out of all clusters and posts them. One task of the client's thread; `pending` is its alone."""

    def __init__(
        self,
        clusters: Mapping[str, Cluster],
        centers: tuple[CenterAddress, ...],
        *,
        tls: ssl.SSLContext | None,
        token: str,
        service: str,
        client: str,
        rng: Random,
    ) -> None:
        self.counts = PostCounts()
        self._clusters: Final = clusters
        self._connections: Final = [Connection(each, tls) for each in centers]
        self._headers: Final = {"content-type": "application/json", **_authorization(token)}
        self._service, self._client = service, client
        self._rng: Final = rng
        self._pending: Final[dict[str, deque[_Batch]]] = {name: deque() for name in clusters}
        self._told: Final[dict[str, tuple[LineId, ...]]] = dict.fromkeys(clusters, ())
        """Open breakers as last posted."""
        self._hurried: Final = asyncio.Event()
        self._at = 0
        self._failures = 0
        self._trouble = ""

    def hurry(self) -> None:
        """A breaker moved: post now. From the thread's own loop."""
        self._hurried.set()

    async def run(self) -> None:
        """Post each second until cancelled."""
        while True:
            await self._due()
            await self.post()

    async def post(self) -> None:
        """Collect, and post all there is; what cannot be sent stays for the next time."""
        now = asyncio.get_running_loop().time()
        for name, cluster in self._clusters.items():
            taken, shed = cluster.take(self._service), cluster.tally.take_shed()
            if taken or shed:
                self._pending[name].append(_Batch(now, taken, shed))
        self._expire(now)
        for name in self._clusters:
            if not await self._post_cluster(name):
                return

    def close(self) -> None:
        """Let go of the connections; what is still pending is counted as dropped."""
        for connection in self._connections:
            connection.close()
        self._expire(float("inf"))

    def abandon(self) -> None:
        """In a forked child: close the descriptors alone."""
        for connection in self._connections:
            connection.abandon()

    async def _due(self) -> None:
        wait = _EVERY if not self._failures else max(_EVERY, pause(self._failures, self._rng, most=_BACKOFF_MOST))
        await asyncio.sleep(_SPACING)
        try:
            async with asyncio.timeout(wait - _SPACING):
                await self._hurried.wait()
        except TimeoutError:
            pass
        self._hurried.clear()

    def _expire(self, now: Seconds) -> None:
        for batches in self._pending.values():
            while batches and now - batches[0].at > _KEEP:
                self.counts.dropped += _calls(batches.popleft().outcomes)

    async def _post_cluster(self, name: str) -> bool:
        """Whether a center could be talked to: everything pending of this cluster, in as many posts as it takes."""
        opened = self._clusters[name].open_lines()
        pending = self._pending[name]
        rows = _summed(each for batch in pending for each in batch.outcomes)
        shed = sum(batch.shed for batch in pending)
        if not (rows or shed) and opened == self._told[name]:
            return True
        since = pending[0].at if pending else 0.0
        for start in range(0, max(len(rows), 1), _ROWS_MOST):
            part, rest = rows[start : start + _ROWS_MOST], rows[start + _ROWS_MOST :]
            # Before the await: whoever is cancelled in it leaves the rest to the last post, or to be counted as dropped.
            pending.clear()
            if rest:
                pending.append(_Batch(since, rest))
            if not self._settle(part, await self._send(name, part, opened, shed)):
                if part or shed:
                    pending.appendleft(_Batch(since, part, shed))
                return False
            shed = 0
        self._told[name] = opened
        return True

    async def _send(self, name: str, rows: Sequence[Outcome], opened: tuple[LineId, ...], shed: int) -> Answer | Lost:
        document: dict[str, object] = {
            "client": self._client,
            "service": self._service,
            "cluster": name,
            "outcomes": [_row(each) for each in rows],
            "open": list(opened[:_ROWS_MOST]),
        }
        if shed:
            document["shed"] = shed
        body = json.dumps(document, separators=(",", ":")).encode()
        request = Request("POST", "/api/v1/outcomes", self._headers, body)
        self.counts.posts += 1
        try:
            return await self._connections[self._at].exchange(request, timeout=_ANSWER)
        except asyncio.CancelledError:
            self.counts.unconfirmed += _calls(rows)
            raise

    def _settle(self, rows: Sequence[Outcome], found: Answer | Lost) -> bool:
        """Count what became of a post; False where its rows are still ours to send."""
        calls = _calls(rows)
        match found:
            case Lost(was_sent=False):
                return self._failed(f"no answer: {found.reason}")
            case Lost():
                self.counts.unconfirmed += calls
                self._failed(f"no answer: {found.reason}")
            case Answer(status=status) if 200 <= status < 300:
                self.counts.confirmed += calls
                self._failures, self._trouble = 0, ""
            case Answer(status=status) if status in _LATER:
                return self._failed(f"status {status}")
            case Answer(status=status):
                self.counts.refused += calls
                self._failed(f"status {status}")
        return True

    def _failed(self, trouble: str) -> bool:
        if trouble != self._trouble:
            center = self._connections[self._at].center.url
            _log.warning("outcomes_not_posted", extra={"center": center, "trouble": trouble})
        self._trouble = trouble
        self._failures += 1
        self._at = (self._at + 1) % len(self._connections)
        return False


def _authorization(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"} if token else {}


def _row(each: Outcome) -> dict[str, str | int]:
    row: dict[str, str | int] = {
        "line": each.line,
        "window": each.window,
        "ok": each.ok,
        "failed": each.failed,
        "late": each.late,
        "errors": each.errors,
    }
    if each.timed:
        row |= {"timed": each.timed, "slow": each.slow, "crawl": each.crawl}
    return row


def _calls(rows: Iterable[Outcome]) -> int:
    return sum(each.ok + each.failed + each.late + each.errors for each in rows)


def _summed(rows: Iterable[Outcome]) -> tuple[Outcome, ...]:
    """One row a line and window."""
    found: dict[tuple[LineId, int], Outcome] = {}
    for each in rows:
        key = (each.line, each.window)
        was = found.get(key)
        found[key] = each if was is None else _added(was, each)
    return tuple(found.values())


def _added(one: Outcome, other: Outcome) -> Outcome:
    return one._replace(
        ok=one.ok + other.ok,
        failed=one.failed + other.failed,
        late=one.late + other.late,
        errors=one.errors + other.errors,
        timed=one.timed + other.timed,
        slow=one.slow + other.slow,
        crawl=one.crawl + other.crawl,
    )
