"""Files that hold resources, followed: what changes in them is in force a moment later, what is wrong in them is told and changes nothing."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from reachline.doors.envoy.chain import Chain, HttpManager, Listener, RouteSource, Source
from reachline.errors import ConfigError, Problem
from reachline.net import reload
from reachline.proxy import resources
from reachline.proxy.clusters import Clusters
from reachline.proxy.listeners import Listeners, chains_of

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

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for path in self._known:
                group.create_task(self._follow(path))
            await asyncio.get_running_loop().create_future()

    def _begin(self, source: Source | None, path: str, take: Take) -> None:
        """Read a file for the first time, and follow it."""
        if source is None or source.path in self._known:
            return
        if not source.path:
            rule, hint = "comes by ADS, which this proxy follows for endpoints only", "use path_config_source"
            raise ConfigError(Problem(place=self._place, path=path, value="", rule=rule, hint=hint))
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
                self.counts["update_rejected"] += 1
                for problem in error.problems:
                    log.warning("resources_refused", extra={"path": path, "reason": str(problem)})
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

    def _put(self, listener: Listener) -> None:
        """A listener, once its routes are known."""
        refused = list(_refusals(listener, self._place))
        if refused:
            raise ConfigError(*refused)
        for each in chains_of(listener):
            handler = each.handler
            if isinstance(handler, HttpManager) and isinstance(handler.routes, RouteSource):
                self._begin(handler.routes.source, f"listeners.{listener.name}.rds", self._take_routes)
        self._listeners.put(listener)

    def _take_routes(self, text: str, path: str) -> None:
        found = resources.routes(text, path)
        for name, config in found.items():
            self._listeners.route(config, name)
        for name in self._of_rds.get(path, frozenset()) - found.keys():
            self._listeners.route(None, name)
        self._of_rds[path] = frozenset(found)

    def _refuse_fixed(self, name: str, fixed: frozenset[str], path: str) -> None:
        if name in fixed:
            rule = "is that of a resource of static_resources, which stays"
            raise ConfigError(Problem(place=path, path="name", value=name, rule=rule))


def _refusals(listener: Listener, place: str) -> Iterator[Problem]:
    at = f"listeners.{listener.name}"
    if listener.proxy_protocol:
        yield Problem(place=place, path=at, value="", rule="PROXY headers are not read by this proxy")
    for each in chains_of(listener):
        if isinstance(each.handler, HttpManager) and each.handler.codec == "HTTP2":
            rule = "HTTP/1.1 alone is spoken to clients"
            yield Problem(place=place, path=f"{at}.codec_type", value="HTTP2", rule=rule)
