"""The role: one asyncio process that forwards by an Envoy document. Ends when `stop` is set, once what is under way is over.

Start: addresses are taken first (a taken one is a usage error), then clusters are kept; connections are taken once every cluster
has its first endpoints, as in Envoy. End: nothing new is taken, connections end with their answer, what is left is cut off.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple

from reachline.doors.envoy.chain import Chain, FilterChain, HttpManager, Listener, RouteSource, TcpProxy
from reachline.doors.envoy.logged import AccessLog
from reachline.errors import ConfigError, Problem
from reachline.members import Address
from reachline.model import Seconds
from reachline.net import collector, kernel
from reachline.proxy.admin import Admin
from reachline.proxy.backend import Backend
from reachline.proxy.clusters import Clusters
from reachline.proxy.doorway import Doorway, Handling
from reachline.proxy.downstream import Downstream
from reachline.proxy.front import Front
from reachline.proxy.logs import File, Logged
from reachline.proxy.routing import Router, retriable
from reachline.proxy.securing import Servers
from reachline.proxy.tcp import TcpFront, Tunnel

__all__ = ["Options", "Started", "run"]

log: Final = logging.getLogger("reachline.proxy")

_SWEEP_LEAST: Final[Seconds] = 0.02
_SWEEP_MOST: Final[Seconds] = 0.5
"""Between two looks at what is silent: an eighth of the shortest time, within these."""
_FLUSH: Final[Seconds] = 1.0
"""How late a line of a log may be in its file; Envoy's own is ten seconds."""


class Started(NamedTuple):
    """Where a started proxy is reached."""

    listeners: tuple[tuple[str, Address], ...]
    admin: Address | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a start adds to the document."""

    place: str = "envoy"
    """The document's name in messages."""
    grace: Seconds = 5.0
    """For what is under way when it is told to stop."""
    seed: int | None = None
    """Of all chance, so that a run repeats."""


async def run(
    chain: Chain, options: Options, *, stop: asyncio.Event, ready: Callable[[Started], None] = lambda _: None
) -> None:
    """Serves until `stop` is set or its admin is told to quit; ConfigError where an address, a file or a cluster cannot be had."""
    kernel.raise_file_limit()
    collector.calm()  # what a request is made of goes by itself when it ends
    _refuse_dynamic(chain, options.place)
    proxy = _Proxy(chain, options, stop)
    try:
        await proxy.serve(ready)
    finally:
        proxy.close()


class _Proxy:
    """All parts of one run."""

    def __init__(self, chain: Chain, options: Options, stop: asyncio.Event) -> None:
        self._options: Final = options
        self._stop: Final = stop
        self._rng: Final = Random(options.seed)
        self._files: Final[dict[str, File]] = {}
        self._clusters: Final = Clusters(chain, rng=self._rng, wall=time.time, place=options.place)
        self._doorways: Final[list[Doorway]] = []
        self._admin: Admin | None = None
        self._counts: Final[dict[str, Counter[str]]] = {}
        try:
            for listener in chain.listeners:
                if listener.bind:
                    self._doorways.append(Doorway(listener, tuple(self._handlings(listener))))
            self._admin = None if chain.admin is None else self._admin_of(chain)
        except BaseException:
            self.close()
            raise

    async def serve(self, ready: Callable[[Started], None]) -> None:
        """Until told to stop, then until what is under way is over."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._clusters.run()), group.create_task(self._tend())]
            if self._admin is not None:
                self._admin.open()
            stopping = group.create_task(self._stop.wait())
            settled = group.create_task(self._clusters.settled.wait())
            await asyncio.wait((stopping, settled), return_when=asyncio.FIRST_COMPLETED)
            if not self._stop.is_set():
                self._open()
                ready(self._started())
                await self._stop.wait()
            await self._drain()
            for task in (*tasks, stopping, settled):
                task.cancel()
        log.info("proxy_stopped")

    def close(self) -> None:
        """Let go of everything."""
        for doorway in self._doorways:
            doorway.close()
            for handling in doorway.handlings:
                handling.serving.close()
        if self._admin is not None:
            self._admin.close()
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _open(self) -> None:
        for doorway in self._doorways:
            doorway.open()
        if self._admin is not None:
            self._admin.is_live = True
        names = ", ".join(f"{each.listener.name} {','.join(map(str, each.addresses))}" for each in self._doorways)
        log.info("proxy_started", extra={"listeners": names, "clusters": len(self._clusters.backends)})

    def _started(self) -> Started:
        listeners = tuple((each.listener.name, address) for each in self._doorways for address in each.addresses)
        return Started(listeners, None if self._admin is None else self._admin.address)

    async def _drain(self) -> None:
        """Nothing new is taken; what is under way may end."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._options.grace
        for doorway in self._doorways:
            doorway.close()
            for handling in doorway.handlings:
                handling.serving.drain()
        while loop.time() < until and any(map(_is_busy, self._doorways)):  # noqa: ASYNC110 - connections are many owners'
            await asyncio.sleep(_SWEEP_LEAST)

    async def _tend(self) -> None:
        loop = asyncio.get_running_loop()
        pause = min((_shortest(each.listener) for each in self._doorways), default=_SWEEP_MOST)
        flushed = loop.time()
        while True:
            await asyncio.sleep(pause)
            now = loop.time()
            for doorway in self._doorways:
                for handling in doorway.handlings:
                    handling.serving.sweep(now)
            if now - flushed >= _FLUSH:
                flushed = now
                for file in self._files.values():
                    file.flush()

    def _handlings(self, listener: Listener) -> Iterator[tuple[FilterChain, Handling]]:
        for each in _chains(listener):
            place = f"{self._options.place}: listeners.{listener.name}"
            servers = None if each.tls is None else Servers(each.tls, place=place)
            handler = each.handler
            if isinstance(handler, TcpProxy):
                yield each, self._tcp(handler, servers, each)
            else:
                yield each, self._http(handler, servers, each, listener)

    def _http(self, manager: HttpManager, servers: Servers | None, chain: FilterChain, listener: Listener) -> Handling:
        assert not isinstance(manager.routes, RouteSource)
        router = Router(manager.routes, manager, self._clusters.get, self._rng.getrandbits)
        logs = [Logged(each, self._file(each), Random(self._rng.random())) for each in manager.access_logs]
        counts = self._counts.setdefault(f"http.{manager.stat_prefix}", Counter())
        front = Front(
            manager,
            router.decide,
            counts=counts,
            rng=Random(self._rng.random()),
            wall=time.time,
            retriable=retriable,
            buffer_limit=listener.buffer_limit,
            logs=logs,
        )
        return Handling(front, lambda: Downstream(front), servers, chain.handshake_timeout)

    def _tcp(self, settings: TcpProxy, servers: Servers | None, chain: FilterChain) -> Handling:
        front = TcpFront(settings, lambda rng: self._drawn(settings, rng), rng=Random(self._rng.random()))
        return Handling(front, lambda: Tunnel(front).client, servers, chain.handshake_timeout)

    def _drawn(self, settings: TcpProxy, rng: Random) -> Backend | None:
        name = settings.cluster
        if settings.weighted:
            weights = [each.weight for each in settings.weighted]
            name = rng.choices([each.name for each in settings.weighted], weights)[0]
        return self._clusters.get(name)

    def _file(self, access: AccessLog) -> File:
        found = self._files.get(access.path)
        if found is None:
            found = self._files[access.path] = File(access.path)
        return found

    def _reopen(self) -> None:
        for file in self._files.values():
            file.reopen()

    def _admin_of(self, chain: Chain) -> Admin:
        assert chain.admin is not None
        return Admin(
            chain,
            self._clusters,
            self._doorways,
            leave=self._stop.set,
            reopen=self._reopen,
            rng=self._rng,
        )


def _chains(listener: Listener) -> tuple[FilterChain, ...]:
    return (*listener.chains, *(() if listener.default is None else (listener.default,)))


def _is_busy(doorway: Doorway) -> bool:
    for handling in doorway.handlings:
        serving = handling.serving
        if isinstance(serving, Front) and serving.connections:
            return True
        if isinstance(serving, TcpFront) and serving.tunnels:
            return True
    return False


def _shortest(listener: Listener) -> Seconds:
    """How often silence is to be looked for."""
    times: list[Seconds] = []
    for each in _chains(listener):
        handler = each.handler
        if isinstance(handler, TcpProxy):
            times += [handler.idle_timeout, handler.max_connection_duration]
            continue
        times += [handler.idle_timeout, handler.stream_idle_timeout, handler.request_timeout]
        times += [handler.request_headers_timeout, handler.max_stream_duration, handler.max_connection_duration]
        if not isinstance(handler.routes, RouteSource):
            actions = [route.action for host in handler.routes.hosts for route in host.routes]
            times += [
                getattr(action, name, None) or 0
                for action in actions
                for name in ("idle_timeout", "max_stream_duration")
            ]
    return min(_SWEEP_MOST, max(_SWEEP_LEAST, min((each for each in times if each), default=_SWEEP_MOST) / 8))


def _refuse_dynamic(chain: Chain, place: str) -> None:
    """What comes by name from elsewhere is not followed yet."""
    problems = []
    hint = "write it into static_resources; endpoints may come by EDS"
    for path, source in (("dynamic_resources.lds_config", chain.lds), ("dynamic_resources.cds_config", chain.cds)):
        if source is not None:
            problems.append(Problem(place=place, path=path, value="", rule="is not followed by this proxy", hint=hint))
    for listener in chain.listeners:
        at = f"listeners.{listener.name}"
        if listener.proxy_protocol:
            problems.append(Problem(place=place, path=at, value="", rule="PROXY headers are not read by this proxy"))
        for each in _chains(listener):
            handler = each.handler
            if isinstance(handler, HttpManager) and isinstance(handler.routes, RouteSource):
                name = handler.routes.name
                problems.append(
                    Problem(place=place, path=f"{at}.rds", value=name, rule="is not followed by this proxy", hint=hint)
                )
            if isinstance(handler, HttpManager) and handler.codec == "HTTP2":
                problems.append(
                    Problem(
                        place=place, path=f"{at}.codec_type", value="HTTP2", rule="HTTP/1.1 alone is spoken to clients"
                    )
                )
    if problems:
        raise ConfigError(*problems)
