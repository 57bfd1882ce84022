"""What a client's thread runs: a poller for each cluster, one poster, and the timers. Made anew after a fork."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING, Final

from reachline.client.cache import save
from reachline.client.options import Options
from reachline.client.poll import Poller
from reachline.client.post import Poster
from reachline.client.waiting import Flag
from reachline.model import Seconds
from reachline.upstream import Cluster

if TYPE_CHECKING:
    from reachline.client.keeping import Keeping
    from reachline.upstream.kept import KeptCluster

__all__ = ["Driver"]

_log: Final = logging.getLogger("reachline.client")

_SAVE_EVERY: Final[Seconds] = 5.0
"""Between two writes of the cache: weights may change each second, and a file that is 5 s old is as good."""
_REFRESH_EVERY: Final[Seconds] = 60.0
"""…where only the time of the last confirmation has moved on."""
_LOOK_EVERY: Final[Seconds] = 5.0
"""How late a list may be called stale, of 300 s; timers of breakers are exact."""


class Driver:
    """Everything of a client that waits. All but `hurry` and `stop` runs in the client's thread."""

    def __init__(
        self,
        options: Options,
        clusters: Mapping[str, Cluster],
        documents: dict[str, tuple[object, Seconds]],
        *,
        client: str,
        rng: Random,
        settled: Flag,
        kept: Mapping[str, KeptCluster] | None = None,
    ) -> None:
        """`clusters` are the center's, `kept` those that are kept here. ConfigError where these can no longer be followed."""
        self.ended: Final = Flag()
        """Set once everything is sent, saved and closed."""
        self._options, self._clusters, self._documents = options, clusters, documents
        self._settled: Final = settled
        self._unsettled: Final = set(clusters) | set(kept or ())
        self._moved: Final = asyncio.Event()
        self._stopping: Final = asyncio.Event()
        self._grace: Seconds = 0.0
        self._is_dirty = False
        """A list was confirmed that the file does not hold yet…"""
        self._is_confirmed = False
        """…or any was: only what a center said since the last write is worth one."""
        self._saved_at: Seconds = 0.0
        self._save_trouble = ""
        self._stale: Final[set[str]] = set()
        self.poster: Final = Poster(
            clusters,
            options.centers,
            tls=options.tls,
            token=options.token,
            service=options.service,
            client=client,
            rng=rng,
        )
        self.pollers: Final = {
            name: Poller(
                cluster,
                options.centers,
                tls=options.tls,
                token=options.token,
                rng=rng,
                confirmed=self._confirmed,
                settled=self._on_settled,
            )
            for name, cluster in clusters.items()
        }

        self._keeping: Final = self._kept(kept, rng) if kept else None

    async def run(self) -> None:
        """Until `stop`; then post what is left within its grace, save, and close."""
        try:
            async with asyncio.TaskGroup() as group:
                jobs = [poller.run() for poller in self.pollers.values()]
                jobs += [self.poster.run(), self._tend()] if self._clusters else []
                jobs += self._keeping.jobs() if self._keeping else []
                tasks = [group.create_task(job) for job in jobs]
                await self._stopping.wait()
                for task in tasks:
                    task.cancel()
            async with asyncio.timeout(self._grace):
                await self.poster.post()
        except TimeoutError:
            _log.warning("outcomes_not_flushed", extra={"grace": self._grace})
        finally:
            self._end()

    def hurry(self) -> None:
        """A local breaker moved, or an endpoint was ejected: post at once, and look at the timers again."""
        self.poster.hurry()
        self._moved.set()
        if self._keeping is not None:
            self._keeping.stir()

    def stop(self, grace: Seconds) -> None:
        """End the run, with this long to post what is left."""
        self._grace = grace
        self._stopping.set()

    def abandon(self) -> None:
        """In a forked child: close the descriptors, touching no loop."""
        self.poster.abandon()
        for poller in self.pollers.values():
            poller.abandon()

    def _kept(self, clusters: Mapping[str, KeptCluster], rng: Random) -> Keeping:
        from reachline.client.keeping import Keeping  # noqa: PLC0415  (only who keeps clusters needs it)

        return Keeping(clusters, rng=Random(rng.random()), settled=self._on_settled)

    async def _tend(self) -> None:
        """Turn breakers when they are due, name stale lists, keep the cache."""
        loop = asyncio.get_running_loop()
        while True:
            due = {name: at for name, each in self._clusters.items() if (at := each.deadline()) is not None}
            wait = min([*due.values(), loop.time() + _LOOK_EVERY]) - loop.time()
            try:
                async with asyncio.timeout(max(0.0, wait)):
                    await self._moved.wait()
            except TimeoutError:
                pass
            self._moved.clear()
            for name, cluster in self._clusters.items():
                if due.get(name, math.inf) <= loop.time():
                    cluster.turn()
                self._name_stale(cluster)
            self._keep(loop.time())

    def _name_stale(self, cluster: Cluster) -> None:
        is_news = cluster.is_stale is not (cluster.name in self._stale)
        if not is_news or cluster.published.version is None:
            return
        if cluster.is_stale:
            self._stale.add(cluster.name)
            _log.warning("lines_stale", extra={"cluster": cluster.name, "version": str(cluster.version)})
        else:
            self._stale.discard(cluster.name)

    def _confirmed(self, name: str, document: object) -> None:
        """A center stands by a list: the new `document`, or None for the one it sent before."""
        if self._options.cache is None:
            return
        self._is_dirty |= document is not None
        self._is_confirmed = True
        known = document if document is not None else self._documents.get(name, (None, 0.0))[0]
        self._documents[name] = (known, time.time())

    def _on_settled(self, name: str) -> None:
        self._unsettled.discard(name)
        if not self._unsettled:
            self._settled.set()

    def _keep(self, now: Seconds) -> None:
        """Write the cache where there is news for it, or where the time of a center's last word has moved on."""
        if now - self._saved_at >= (_SAVE_EVERY if self._is_dirty else _REFRESH_EVERY):
            self._saved_at = now
            self._save()

    def _save(self) -> None:
        if self._options.cache is None or not self._is_confirmed:
            return
        trouble = save(self._options.cache, self._documents)
        # What could not be written is tried again, as seldom as an old time is.
        self._is_dirty, self._is_confirmed = False, bool(trouble)
        if trouble and trouble != self._save_trouble:
            _log.warning("cache_not_written", extra={"path": str(self._options.cache), "reason": trouble})
        self._save_trouble = trouble

    def _end(self) -> None:
        self._save()
        self.poster.close()
        for poller in self.pollers.values():
            poller.close()
        self._settled.set()
        self.ended.set()
