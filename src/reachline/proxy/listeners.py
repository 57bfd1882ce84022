"""All listeners of a proxy, added, changed and taken away while they run: a change loses no connection and no request."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Final

from reachline.doors.envoy.chain import FilterChain, HttpManager, Listener, RouteSource, TcpProxy
from reachline.doors.envoy.logged import AccessLog
from reachline.doors.envoy.routes import RouteConfig
from reachline.errors import ConfigError
from reachline.model import Seconds
from reachline.proxy.backend import Backend
from reachline.proxy.doorway import Doorway, Handling, Serving
from reachline.proxy.downstream import Downstream, Other
from reachline.proxy.front import Front
from reachline.proxy.logs import File, Logged
from reachline.proxy.multiplexed import Multiplexed, limits_of
from reachline.proxy.routing import Router, retriable
from reachline.proxy.securing import Servers
from reachline.proxy.tcp import TcpFront, Tunnel

__all__ = ["Listeners", "chains_of"]

_SWEEP_LEAST: Final[Seconds] = 0.02
_SWEEP_MOST: Final[Seconds] = 0.5
"""Between two looks at what is silent: an eighth of the shortest time, within these."""
_NO_ROUTES: Final = RouteConfig()


class Listeners:
    """Written by whoever follows the document, in one thread."""

    def __init__(self, backend: Callable[[str], Backend | None], rng: Random, place: str) -> None:
        self._backend: Final = backend
        self._rng: Final = rng
        self._place: Final = place
        self._files: Final[dict[str, File]] = {}
        self._counts: Final[dict[str, Counter[str]]] = {}
        self._doorways: Final[dict[str, Doorway]] = {}
        self._leaving: Final[list[Doorway]] = []
        """Of listeners that are no more, while connections of theirs are, or are being made."""
        self._routes: Final[dict[str, RouteConfig]] = {}
        """By name, of those that come so."""
        self._routers: Final[list[tuple[Front, Router, str]]] = []
        self._is_open = False

    @property
    def doorways(self) -> tuple[Doorway, ...]:
        """Those of now."""
        return tuple(self._doorways.values())

    @property
    def routes(self) -> Mapping[str, RouteConfig]:
        """Route configurations that came by name."""
        return self._routes

    @property
    def pause(self) -> Seconds:
        """How often silence is to be looked for."""
        return min((_shortest(each.listener) for each in self._doorways.values()), default=_SWEEP_MOST)

    @property
    def is_busy(self) -> bool:
        """Whether anybody is connected."""
        return any(_is_busy(each) for each in self._all())

    def put(self, listener: Listener) -> None:
        """Have this listener in the place of the one of its name, if any. ConfigError where it cannot be: then all stays as it was.

        Who waits to be accepted, and who is connected, is served on: the latter by the listener of before, until it ends.
        """
        key = listener.name or str(listener.address)
        before = self._doorways.get(key)
        if not listener.bind or (before is not None and before.listener == listener):
            return
        known = len(self._routers)
        try:
            made = self._made(listener, before)
        except ConfigError:
            del self._routers[known:]
            raise
        self._doorways[key] = made
        if self._is_open:
            made.open()
        if before is not None:
            before.close()
            self._let_go(before)

    def _made(self, listener: Listener, before: Doorway | None) -> Doorway:
        handlings = tuple(self._handlings(listener))
        is_moved = before is None or before.listener.address != listener.address
        is_moved |= before is not None and before.listener.more_addresses != listener.more_addresses
        sockets = () if before is None or is_moved else before.release()
        return Doorway(listener, handlings, sockets)

    def remove(self, name: str) -> None:
        """Listen there no more; who is connected is served on."""
        doorway = self._doorways.pop(name, None)
        if doorway is not None:
            doorway.close()
            self._let_go(doorway)

    def route(self, config: RouteConfig | None, name: str) -> None:
        """Have requests go by this configuration from now on, wherever it is named; None: there is none any more."""
        if config is None:
            self._routes.pop(name, None)
        else:
            self._routes[name] = config
        for at, (front, router, wanted) in enumerate(self._routers):
            if wanted == name:
                made = Router(config or _NO_ROUTES, front.manager, self._backend, self._rng.getrandbits)
                front.decide_route = made.decide
                self._routers[at] = (front, made, wanted)
                router.forget()

    def forget(self) -> None:
        """Clusters came or went: what was decided by them is decided anew."""
        for _, router, _name in self._routers:
            router.forget()

    def open(self) -> None:
        """Take connections from now on."""
        self._is_open = True
        for doorway in self._doorways.values():
            doorway.open()

    def tend(self, now: Seconds, *, flush: bool) -> None:
        """End what was silent for too long; `flush`: write logs out."""
        for serving in list(self._servings()):
            serving.sweep(now)
        for doorway in [each for each in self._leaving if not _is_busy(each)]:
            self._leaving.remove(doorway)
            gone = [each.serving for each in doorway.handlings]
            self._routers[:] = [each for each in self._routers if each[0] not in gone]
        for file in self._files.values() if flush else ():
            file.flush()

    def drain(self) -> None:
        """Take nothing new; connections end with their answer, idle ones now."""
        for doorway in self._doorways.values():
            doorway.close()
        for serving in list(self._servings()):
            serving.drain()

    def reopen(self) -> None:
        """Begin log files anew: they were moved away."""
        for file in self._files.values():
            file.reopen()

    def close(self) -> None:
        """Let go of everything."""
        for doorway in self._all():
            doorway.close()
            doorway.abandon()
        for serving in list(self._servings()):
            serving.close()
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _all(self) -> tuple[Doorway, ...]:
        """Those of now, and of before."""
        return (*self._doorways.values(), *self._leaving)

    def _servings(self) -> Iterator[Serving]:
        for doorway in self._all():
            for handling in doorway.handlings:
                yield handling.serving

    def _let_go(self, doorway: Doorway) -> None:
        for handling in doorway.handlings:
            handling.serving.retire()
        self._leaving.append(doorway)

    def _handlings(self, listener: Listener) -> Iterator[tuple[FilterChain, Handling]]:
        for each in chains_of(listener):
            place = f"{self._place}: listeners.{listener.name}"
            handler = each.handler
            without = ("h2",) if isinstance(handler, HttpManager) and handler.codec == "HTTP1" else ()
            servers = None if each.tls is None else Servers(each.tls, place=place, without=without)
            if isinstance(handler, TcpProxy):
                yield each, self._tcp(handler, servers, each)
            else:
                yield each, self._http(handler, servers, each, listener)

    def _http(self, manager: HttpManager, servers: Servers | None, chain: FilterChain, listener: Listener) -> Handling:
        name = manager.routes.name if isinstance(manager.routes, RouteSource) else ""
        config = manager.routes if isinstance(manager.routes, RouteConfig) else self._routes.get(name, _NO_ROUTES)
        router = Router(config, manager, self._backend, self._rng.getrandbits)
        front = Front(
            manager,
            router.decide,
            counts=self._counts.setdefault(manager.stat_prefix, Counter()),
            rng=Random(self._rng.random()),
            wall=time.time,
            retriable=retriable,
            buffer_limit=listener.buffer_limit,
            logs=[Logged(each, self._file(each), Random(self._rng.random())) for each in manager.access_logs],
        )
        self._routers.append((front, router, name))
        limits = limits_of(manager)
        other = Other(lambda: Multiplexed(front, limits), always=manager.codec == "HTTP2")
        spoken = None if manager.codec == "HTTP1" else other
        return Handling(front, lambda: Downstream(front, spoken), servers, chain.handshake_timeout)

    def _tcp(self, settings: TcpProxy, servers: Servers | None, chain: FilterChain) -> Handling:
        front = TcpFront(settings, lambda rng: self._drawn(settings, rng), rng=Random(self._rng.random()))
        return Handling(front, lambda: Tunnel(front).client, servers, chain.handshake_timeout)

    def _drawn(self, settings: TcpProxy, rng: Random) -> Backend | None:
        name = settings.cluster
        if settings.weighted:
            weights = [each.weight for each in settings.weighted]
            name = rng.choices([each.name for each in settings.weighted], weights)[0]
        return self._backend(name)

    def _file(self, access: AccessLog) -> File:
        found = self._files.get(access.path)
        if found is None:
            found = self._files[access.path] = File(access.path)
        return found


def chains_of(listener: Listener) -> tuple[FilterChain, ...]:
    """All filter chains, the default one too."""
    return (*listener.chains, *(() if listener.default is None else (listener.default,)))


def _is_busy(doorway: Doorway) -> bool:
    return doorway.is_greeting or any(_serves(each.serving) for each in doorway.handlings)


def _serves(serving: Serving) -> bool:
    return bool(
        serving.connections if isinstance(serving, Front) else isinstance(serving, TcpFront) and serving.tunnels
    )


def _shortest(listener: Listener) -> Seconds:
    times: list[Seconds] = []
    for each in chains_of(listener):
        handler = each.handler
        if isinstance(handler, TcpProxy):
            times += [handler.idle_timeout, handler.max_connection_duration]
            continue
        times += [handler.idle_timeout, handler.stream_idle_timeout, handler.request_timeout]
        times += [handler.request_headers_timeout, handler.max_stream_duration, handler.max_connection_duration]
        if not isinstance(handler.routes, RouteSource):
            actions = [route.action for host in handler.routes.hosts for route in host.routes]
            names = ("idle_timeout", "max_stream_duration")
            times += [getattr(action, name, None) or 0 for action in actions for name in names]
    return min(_SWEEP_MOST, max(_SWEEP_LEAST, min((each for each in times if each), default=_SWEEP_MOST) / 8))
