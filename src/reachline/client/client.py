"""The client: named clusters, one thread that keeps them current, and a clean story for forks and the end of the process."""

from __future__ import annotations

import atexit
import logging
import math
import os
import socket
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Final, Self

from reachline.client.backoff import pause
from reachline.client.cache import load
from reachline.client.driver import Driver
from reachline.client.options import Options
from reachline.client.poll import PollCounts
from reachline.client.post import PostCounts
from reachline.client.thread import Background
from reachline.client.waiting import Flag
from reachline.errors import ConfigError, LocalProtocolError
from reachline.model import Seconds
from reachline.net.forks import FORKS
from reachline.upstream import Cluster, ClusterStats

if TYPE_CHECKING:
    from reachline.upstream.kept import KeptCluster

__all__ = ["Client", "ClientStats"]

_log: Final = logging.getLogger(__name__)

_FLUSH: Final[Seconds] = 2.0
"""How long `close` may take to post the last second: a center answers in a few milliseconds, or is gone."""
_RESTART_MOST: Final[Seconds] = 5.0
"""Between two tries to start the thread: as seldom as an absent center is asked."""
_FLUSH_AT_EXIT: Final[Seconds] = 1.0
"""…at the end of the interpreter, where somebody is waiting for the prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientStats:
    """A client at a moment, for people and metrics. Counters start with the process, and anew after a fork."""

    client: str
    is_running: bool
    clusters: Mapping[str, ClusterStats]
    polls: Mapping[str, PollCounts]
    posts: PostCounts


class Client:
    """Named clusters and the thread that keeps them current. Safe from any thread, task and forked child.

    `_lock` guards the starting and ending of the thread: `_driver`, `_background`, `_is_closed`, `_falls`, `_next_start`, and whether
    clusters are awake.
    """

    def __init__(self, options: Options) -> None:
        self._options: Final = options
        self._lock = threading.Lock()
        self._is_closed = False
        self._driver: Driver | None = None
        self._background: Background | None = None
        self._falls = 0
        """How often the thread could not start, or failed."""
        self._next_start: Seconds = -math.inf
        self._settled = Flag()
        self._documents: dict[str, tuple[object, Seconds]] = {}
        self._pid = os.getpid()
        FORKS.tell_server()
        self._rng = Random(options.seed)
        self._id = _client_id(options.name, self._rng)
        self._clusters: Final = {name: self._cluster(name) for name in options.clusters}
        self._kept: Final = self._keep() if options.kept else {}
        self._all: Final[Mapping[str, Cluster | KeptCluster]] = {**self._clusters, **self._kept}
        self._fill()
        if (
            options.clusters
            and options.token
            and (open_ones := [each.url for each in options.centers if not each.is_protected])
        ):
            _log.warning("token_sent_in_the_clear", extra={"centers": ", ".join(open_ones)})
        _CLIENTS.add(self)

    def cluster(self, name: str) -> Cluster | KeptCluster:
        """One of the clusters named at `connect`; LocalProtocolError for any other."""
        try:
            return self._all[name]
        except KeyError:
            known = ", ".join(self._all)
            raise LocalProtocolError(f"cluster {name!r} was not named at connect(); known: {known}") from None

    @property
    def clusters(self) -> Mapping[str, Cluster | KeptCluster]:
        """All clusters named at `connect`, by name."""
        return MappingProxyType(self._all)

    def stats(self) -> ClientStats:
        """A moment's figures; copies, so that they stand still."""
        driver = self._driver
        return ClientStats(
            client=self._id,
            is_running=driver is not None and not driver.ended.is_set,
            clusters={name: each.stats() for name, each in self._all.items()},
            polls={name: replace(each.counts) for name, each in driver.pollers.items()} if driver else {},
            posts=replace(driver.poster.counts) if driver else PostCounts(),
        )

    def metrics(self) -> str:
        """`stats` as Prometheus reads them, and of clusters kept in process what Envoy counts, by its names."""
        from reachline.client.metrics import text  # noqa: PLC0415  (only who is scraped needs it)

        return text(self.stats(), {name: each.metrics() for name, each in self._kept.items()})

    def start(self) -> None:
        """Start the thread, where it is not running; any use of a cluster does so by itself.

        Where the last start failed, or the thread did, nothing happens until a pause is over, and the next use asks again.
        """
        trouble, falls = "", 0
        with self._lock:
            if self._background is None and not self._is_closed and time.monotonic() >= self._next_start:
                trouble = self._run()
                falls = self._falls
            # Here, so that a thread that fails at once puts them to sleep after this, not before.
            for cluster in self._all.values() if self._background is not None else ():
                cluster.wake()
        if trouble:  # once the lock is free: a log's handler may make calls itself
            _log.warning("client_thread_not_started", extra={"reason": trouble, "tries": falls})

    def wait(self, timeout: Seconds) -> bool:
        """Whether every cluster has lines, or a definite refusal, within `timeout` seconds."""
        self.start()
        return self._settled.wait(timeout)

    async def wait_async(self, timeout: Seconds) -> bool:
        """`wait` for a task of asyncio or trio."""
        self.start()
        return await self._settled.wait_async(timeout)

    def close(self, timeout: Seconds = _FLUSH) -> None:
        """Post the last outcomes within `timeout`, then end the thread. Picks go on from the last lines."""
        ending = self._stop(timeout)
        if ending is not None and not ending[1].join(timeout + 0.5):
            _log.warning("client_thread_left_running", extra={"timeout": timeout})

    async def aclose(self, timeout: Seconds = _FLUSH) -> None:
        """`close` for a task of asyncio or trio."""
        ending = self._stop(timeout)
        if ending is not None:
            await ending[0].ended.wait_async(timeout + 0.5)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def forked(self) -> None:
        """In a forked child: the lists stay; thread, connections and unsent outcomes are the parent's."""
        was_settled = self._settled.is_set
        self._lock = threading.Lock()
        self._settled = Flag()
        if was_settled:
            self._settled.set()
        if self._driver is not None:
            self._driver.abandon()
        if self._background is not None:
            self._background.leave_behind(self._driver)
        self._driver = self._background = None
        self._falls, self._next_start = 0, -math.inf
        self._pid = os.getpid()
        self._rng = Random(f"{self._options.seed}/{self._pid}" if self._options.seed is not None else None)
        self._id = _client_id(self._options.name, self._rng)
        for cluster in self._all.values():
            cluster.forked(Random(self._rng.random()))

    def _cluster(self, name: str) -> Cluster:
        return Cluster(
            name,
            clock=time.monotonic,
            rng=Random(self._rng.random()),
            patience=self._options.patience,
            local_breaker=self._options.local_breaker,
            outliers=self._options.outliers.get(name),
            awaken=self.start,
            moved=self._hurry,
        )

    def _keep(self) -> dict[str, KeptCluster]:
        from reachline.upstream.kept import KeptCluster  # noqa: PLC0415  (only who keeps clusters needs it)

        return {
            name: KeptCluster(
                settings,
                clock=time.monotonic,
                wall=time.time,
                rng=Random(self._rng.random()),
                patience=self._options.patience,
                awaken=self.start,
                stir=self._hurry,
                hear=self._options.events,
            )
            for name, settings in self._options.kept.items()
        }

    def _fill(self) -> None:
        """What is known without a center: the cache, else the lines of last resort."""
        for name, lines in self._options.static.items():
            self._clusters[name].replace(lines, source="static")
        if self._options.cache is None:
            return
        for name, (lines, document, age) in load(self._options.cache, self._clusters, wall=time.time()).items():
            self._documents[name] = (document, time.time() - age)
            self._clusters[name].replace(lines, source="cache", silence=age)

    def _run(self) -> str:
        """Make and start driver and thread, or say why not; the lock is held. A system without threads to spare only costs freshness."""
        try:
            driver = Driver(
                self._options,
                self._clusters,
                self._documents,
                client=self._id,
                rng=Random(self._rng.random()),
                settled=self._settled,
                kept=self._kept,
            )
            background = Background(driver.run, name="reachline", failed=self._fell)
            background.start()
        except (RuntimeError, OSError, ConfigError) as error:
            self._pause()
            return str(error) or type(error).__name__
        self._driver, self._background = driver, background
        return ""

    def _pause(self) -> None:
        """Before the next start, longer each time; the lock is held."""
        self._falls += 1
        self._next_start = time.monotonic() + pause(self._falls, self._rng, most=_RESTART_MOST)

    def _fell(self) -> None:
        """The thread has failed, and calls this last: whoever uses a cluster next starts another one, after a pause."""
        with self._lock:
            self._background = None
            if self._is_closed:
                return
            self._pause()
            for cluster in self._all.values():
                cluster.sleep()

    def _stop(self, grace: Seconds) -> tuple[Driver, Background] | None:
        """Tell the thread to end; None where none is running."""
        with self._lock:
            self._is_closed = True
            driver, background = self._driver, self._background
            self._background = None
        for cluster in self._all.values():
            cluster.retire()
        if driver is None or background is None:
            return None
        background.call(lambda: driver.stop(grace))
        return driver, background

    def _hurry(self) -> None:
        driver, background = self._driver, self._background
        if driver is not None and background is not None:
            background.call(driver.hurry)


_CLIENTS: Final[weakref.WeakSet[Client]] = weakref.WeakSet()
"""Those that live in this process: a fork and the end of the interpreter concern each of them."""


def _after_fork() -> None:
    for client in list(_CLIENTS):
        client.forked()


def _at_exit() -> None:
    for client in list(_CLIENTS):
        client.close(_FLUSH_AT_EXIT)


def _client_id(name: str, rng: Random) -> str:
    """One name a process: what the user calls it (or the machine), the process, and a number against reused ids."""
    return f"{name or socket.gethostname()}-{os.getpid()}-{rng.getrandbits(24):06x}"


# A library is silent where its user configured no logging: the standard library's advice.
logging.getLogger("reachline").addHandler(logging.NullHandler())
FORKS.add(_after_fork)
atexit.register(_at_exit)
