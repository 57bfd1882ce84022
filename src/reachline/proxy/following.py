"""Resources that come by name, from files and by ADS: what changes is in force a moment later, what is wrong is told and changes nothing."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from reachline.doors.envoy.chain import Chain, HttpManager, Listener, RouteSource, Source, Upstream
from reachline.doors.envoy.routes import RouteConfig
from reachline.doors.envoy.values import Cluster
from reachline.errors import ConfigError, Problem
from reachline.model import Seconds
from reachline.net import reload
from reachline.net.ads import Ads
from reachline.proxy import resources
from reachline.proxy.clusters import Clusters
from reachline.proxy.listeners import Listeners, chains_of
from reachline.proxy.refusing import of_listener, of_routes
from reachline.wire.ads import ALL, CDS, LDS, RDS, News, Told

__all__ = ["Following"]

log: Final = logging.getLogger("reachline.proxy")

Take = Callable[[str, str], None]
"""Puts a file's text in force, the file's name beside it; ConfigError with what of it could not be."""


class Following:
    """Written by its own tasks, in one thread. ConfigError where a file cannot be read at the start, or is not followed."""

    def __init__(self, chain: Chain, clusters: Clusters, listeners: Listeners, place: str) -> None:
        self.counts: Final[Counter[str]] = Counter()
        """By Envoy's names."""
        self._clusters, self._listeners = clusters, listeners
        self._place: Final = place
        self._fixed: Final = frozenset(chain.settings.clusters)
        self._fixed_listeners: Final = frozenset(each.name for each in chain.listeners)
        self._of_cds: frozenset[str] = frozenset()
        self._of_lds: frozenset[str] = frozenset()
        self._of_rds: Final[dict[str, frozenset[str]]] = {}
        self._known: Final[dict[str, tuple[Source, str, Take]]] = {}
        """Files by path, with the text that is in force."""
        self._named: Final[set[str]] = set()
        """Route configurations that ADS was asked for."""
        self._waiting: Final[dict[str, Listener]] = {}
        """For their routes."""
        self._unheard: Final[dict[str, Seconds]] = {}
        """What ADS was asked for and has not answered, with how long it may take."""
        self.settled: Final = asyncio.Event()
        """Set once all that was asked for at the start has been answered, or was waited for long enough."""
        self._group: asyncio.TaskGroup | None = None
        steps: list[Callable[[], None]] = [
            partial(self._begin, chain.cds, "dynamic_resources.cds_config", self._take_clusters),
            *(partial(self._put, each) for each in chain.listeners),
            partial(self._begin, chain.lds, "dynamic_resources.lds_config", self._take_listeners),
        ]
        problems: list[Problem] = []
        for step in steps:
            try:
                step()
            except ConfigError as error:
                problems += error.problems
        if problems:
            raise ConfigError(*problems)
        if not self._unheard:
            self.settled.set()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for path in self._known:
                group.create_task(self._follow(path))
            for what, patience in self._unheard.items():
                group.create_task(self._give_up(what, patience))
            await asyncio.get_running_loop().create_future()

    async def _give_up(self, what: str, patience: Seconds) -> None:
        """Wait for an answer no longer than allowed; 0: as long as it takes."""
        if not patience:
            return
        await asyncio.sleep(patience)
        self._heard(what)

    def _expect(self, what: str, patience: Seconds) -> None:
        """Something was asked of ADS: a type, or a route configuration by its name."""
        self._unheard[what] = patience
        if self._group is not None:
            self._group.create_task(self._give_up(what, patience))

    def _heard(self, what: str) -> None:
        """It was answered, or is not waited for any more."""
        self._unheard.pop(what, None)
        for waiting in [each for each in self._waiting.values() if not self._lacks(each)]:
            del self._waiting[waiting.name]
            try:
                self._listeners.put(waiting)
            except ConfigError as error:  # its address, or a file of it: nothing else ends for that
                self._refused(waiting.name, error)
        if not self._unheard and not self._waiting:
            self.settled.set()

    def _refused(self, what: str, error: ConfigError) -> None:
        self.counts["update_rejected"] += 1
        for problem in error.problems:
            log.warning("resources_refused", extra={"path": what, "reason": str(problem)})

    def _begin(self, source: Source | None, path: str, take: Take) -> None:
        """Read a file for the first time, and follow it."""
        if source is None or source.path in self._known:
            return
        if not source.path:
            kind = CDS if path.endswith("cds_config") else LDS
            self._expect(kind, source.initial_fetch_timeout)
            self._stream(path).subscribe(kind, ALL, self._told)
            return
        text = reload.text_of(source.path)
        take(text, source.path)
        self._known[source.path] = (source, text, take)
        if self._group is not None:
            self._group.create_task(self._follow(source.path))

    async def _follow(self, path: str) -> None:
        _, known, take = self._known[path]
        async for text in reload.changes(path, known=known, debounce=0.02):
            self.counts["update_attempt"] += 1
            try:
                if isinstance(text, ConfigError):
                    raise text
                take(text, path)
            except ConfigError as error:
                self._refused(path, error)
            else:
                self.counts["update_success"] += 1
                log.info("resources_changed", extra={"path": path})

    def _take_clusters(self, text: str, path: str) -> None:
        found = resources.clusters(text, path)
        problems: list[Problem] = []
        for name, (cluster, upstream) in found.items():
            try:
                self._refuse_fixed(name, self._fixed, path)
                self._clusters.put(cluster, upstream)
            except ConfigError as error:
                problems += error.problems
        for name in self._of_cds - found.keys():
            self._clusters.remove(name)
        self._of_cds = frozenset(found) - self._fixed
        if problems:
            raise ConfigError(*problems)

    def _take_listeners(self, text: str, path: str) -> None:
        found = resources.listeners(text, path)
        problems: list[Problem] = []
        for name, listener in found.items():
            try:
                self._refuse_fixed(name, self._fixed_listeners, path)
                self._put(listener)
            except ConfigError as error:
                problems += error.problems
        for name in self._of_lds - found.keys():
            self._listeners.remove(name)
        self._of_lds = frozenset(found) - self._fixed_listeners
        if problems:
            raise ConfigError(*problems)

    def _stream(self, path: str) -> Ads:
        stream = self._clusters.stream
        if stream is None:
            rule = "comes by ads, and there is no ads_config"
            raise ConfigError(Problem(place=self._place, path=path, value="", rule=rule))
        return stream

    def _told(self, told: Told | None) -> None:
        """News of a cluster, a listener or a route configuration."""
        if told is None:
            return
        self.counts["update_rejected" if told.news is News.REFUSED else "update_success"] += 1
        try:
            self._obey(told)
        except ConfigError as error:
            self._refused(told.name, error)
        self._heard(told.name if told.type_url == RDS else told.type_url)

    def _obey(self, told: Told) -> None:
        is_gone = told.news in (News.GONE, News.EXPIRED)
        match told.value:
            case (Cluster() as cluster, Upstream() as upstream):
                self._refuse_fixed(told.name, self._fixed, "ads")
                self._clusters.put(cluster, upstream)
            case Listener() as listener:
                self._refuse_fixed(told.name, self._fixed_listeners, "ads")
                self._put(listener)
            case RouteConfig() as config:
                _refuse(of_routes(config, "ads"))
                self._listeners.route(config, told.name)
            case _ if is_gone and told.type_url == CDS and told.name not in self._fixed:
                self._clusters.remove(told.name)
            case _ if is_gone and told.type_url == LDS and told.name not in self._fixed_listeners:
                self._waiting.pop(told.name, None)
                self._listeners.remove(told.name)
            case _ if is_gone and told.type_url == RDS:
                self._listeners.route(None, told.name)
            case _:
                return

    def _lacks(self, listener: Listener) -> bool:
        """Whether routes of it were asked for and not said yet."""
        return any(name in self._unheard for name, source in _named(listener).items() if not source.path)

    def _put(self, listener: Listener) -> None:
        """A listener, once its routes are known."""
        _refuse(of_listener(listener, self._place))
        path = f"listeners.{listener.name}.rds"
        for name, source in _named(listener).items():
            if source.path:
                self._begin(source, path, self._take_routes)
            elif name not in self._named:
                self._named.add(name)
                self._expect(name, source.initial_fetch_timeout)
                self._stream(path).subscribe(RDS, name, self._told)
        if self._lacks(listener):
            self._waiting[listener.name] = listener
        else:
            self._waiting.pop(listener.name, None)
            self._listeners.put(listener)

    def _take_routes(self, text: str, path: str) -> None:
        found = resources.routes(text, path)
        _refuse(problem for config in found.values() for problem in of_routes(config, path))
        for name, config in found.items():
            self._listeners.route(config, name)
        for name in self._of_rds.get(path, frozenset()) - found.keys():
            self._listeners.route(None, name)
        self._of_rds[path] = frozenset(found)

    def _refuse_fixed(self, name: str, fixed: frozenset[str], path: str) -> None:
        if name in fixed:
            rule = "is that of a resource of static_resources, which stays"
            raise ConfigError(Problem(place=path, path="name", value=name, rule=rule))


def _named(listener: Listener) -> dict[str, Source]:
    """The route configurations that come by name, and whence."""
    handlers = (each.handler for each in chains_of(listener))
    found = (each.routes for each in handlers if isinstance(each, HttpManager) and isinstance(each.routes, RouteSource))
    return {each.name: each.source for each in found}


def _refuse(problems: Iterable[Problem]) -> None:
    found = list(problems)
    if found:
        raise ConfigError(*found)
