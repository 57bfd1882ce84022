"""What of a bootstrap comes from elsewhere, fetched once: from its files and its control plane, for `explain --request`.

Plain text only: a control plane behind TLS, or one that wants metadata with the call, is not asked.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Final

from reachline.discovery.chained import parsers
from reachline.doors.envoy.chain import Chain, FilterChain, HttpManager, Listener, RouteSource, Source, Upstream
from reachline.doors.envoy.resources import CDS, LDS, RDS, Resources, read
from reachline.doors.envoy.routes import RouteConfig
from reachline.doors.envoy.values import Cluster, Type
from reachline.errors import ConfigError, Problem
from reachline.model import Seconds
from reachline.net.ads import Ads
from reachline.net.reload import text_of
from reachline.wire.ads import ALL, EDS, News, Told
from reachline.wire.xds import Assignment, Node

__all__ = ["completed"]

_PATIENCE: Final[Seconds] = 5.0
"""A control plane answers in milliseconds; what it has not by then, it has not."""


def completed(chain: Chain, place: str) -> Chain:
    """The chain with all that could be had; ConfigError where its control plane cannot be asked."""
    found = _Found(chain)
    for source, take in ((chain.lds, found.take_listeners), (chain.cds, found.take_clusters)):
        if source is not None and source.path:
            take(read(text_of(source.path), name=source.path))
    for each in found.sources():
        if each.source.path:
            found.routes |= read(text_of(each.source.path), name=each.source.path).routes
    if found.comes_by_ads():
        asyncio.run(_ask(chain, found, place))
    return found.chain()


class _Found:
    """What is at hand so far. Written by `completed`, and by news of the one stream."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self.listeners: dict[str, Listener] = {each.name: each for each in chain.listeners}
        self.clusters: dict[str, Cluster] = dict(chain.settings.clusters)
        self.upstreams: dict[str, Upstream] = dict(chain.upstreams)
        self.routes: dict[str, RouteConfig] = {}
        self.assignments: dict[str, Assignment] = {}

    def take_listeners(self, resources: Resources) -> None:
        self.listeners |= resources.listeners

    def take_clusters(self, resources: Resources) -> None:
        self.clusters |= resources.clusters
        self.upstreams |= resources.upstreams

    def sources(self) -> list[RouteSource]:
        """Of routes that are not here."""
        handlers = [each.handler for one in self.listeners.values() for each in _places(one)]
        managers = [each.routes for each in handlers if isinstance(each, HttpManager)]
        return [each for each in managers if isinstance(each, RouteSource)]

    def wanted(self) -> set[tuple[str, str]]:
        """What is to be asked by name, as far as is known by now."""
        names = {(RDS, each.name) for each in self.sources() if not each.source.path}
        clusters = [each.eds for each in self.clusters.values() if each.type is Type.EDS]
        return names | {(EDS, each.service) for each in clusters if each is not None and not each.path}

    def comes_by_ads(self) -> bool:
        return any(_is_ads(each) for each in (self._chain.lds, self._chain.cds)) or bool(self.wanted())

    def chain(self) -> Chain:
        """The whole."""
        clusters = {name: self._assigned(each) for name, each in self.clusters.items()}
        return replace(
            self._chain,
            listeners=tuple(_routed(each, self.routes) for each in self.listeners.values()),
            settings=replace(self._chain.settings, clusters=clusters),
            upstreams=self.upstreams,
        )

    def _assigned(self, cluster: Cluster) -> Cluster:
        found = None if cluster.eds is None else self.assignments.get(cluster.eds.service)
        return cluster if found is None else replace(cluster, membership=found.membership)


def _is_ads(source: Source | None) -> bool:
    return source is not None and not source.path


def _places(listener: Listener) -> list[FilterChain]:
    return [*listener.chains, *([] if listener.default is None else [listener.default])]


def _routed(listener: Listener, routes: dict[str, RouteConfig]) -> Listener:
    def here(place: FilterChain) -> FilterChain:
        handler = place.handler
        if isinstance(handler, HttpManager) and isinstance(handler.routes, RouteSource):
            config = routes.get(handler.routes.name)
            return place if config is None else replace(place, handler=replace(handler, routes=config))
        return place

    default = None if listener.default is None else here(listener.default)
    return replace(listener, chains=tuple(map(here, listener.chains)), default=default)


async def _ask(chain: Chain, found: _Found, place: str) -> None:
    """All of it, in the order in which one thing names the next."""
    said = chain.ads
    cluster = None if said is None else chain.settings.clusters.get(said.cluster)
    if said is None or cluster is None or not cluster.membership.members:
        raise _refused(place, "names no control plane with an address")
    if said.metadata or chain.upstreams[cluster.name].tls is not None:
        raise _refused(place, "names a control plane by TLS or with metadata, which explain does not speak")
    node = Node(
        id=chain.node.id, cluster=chain.node.cluster, locality=chain.node.locality, metadata=chain.node.metadata
    )
    address = str(cluster.membership.members[0].address)
    ads = Ads(address, node=node, rng=Random(), delta=said.delta, parsers=parsers())
    heard: set[tuple[str, str]] = set()
    wants = {(kind, ALL) for kind, source in ((LDS, chain.lds), (CDS, chain.cds)) if _is_ads(source)}
    asked: set[tuple[str, str]] = set()
    stirred = asyncio.Event()
    task = asyncio.create_task(ads.run())
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                while (missing := (wants | found.wanted()) - heard) or ads.trouble:
                    for key in missing - asked:
                        asked.add(key)
                        ads.subscribe(*key, partial(_take, found, heard, stirred, key))
                    stirred.clear()
                    await stirred.wait()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    if ads.trouble:
        raise _refused(place, f"names the control plane {address}, which cannot be asked: {ads.trouble}")


def _take(
    found: _Found, heard: set[tuple[str, str]], stirred: asyncio.Event, key: tuple[str, str], told: Told | None
) -> None:
    if told is not None:
        heard.add(key)
        if told.news is News.HERE:
            _TAKERS[told.type_url](found, told.name, told.value)
    stirred.set()


def _listener(found: _Found, name: str, value: object) -> None:
    if isinstance(value, Listener):
        found.listeners[name] = value


def _cluster(found: _Found, name: str, value: object) -> None:
    if isinstance(value, tuple):
        found.clusters[name], found.upstreams[name] = value


def _config(found: _Found, name: str, value: object) -> None:
    if isinstance(value, RouteConfig):
        found.routes[name] = value


def _assignment(found: _Found, name: str, value: object) -> None:
    if isinstance(value, Assignment):
        found.assignments[name] = value


_TAKERS: Final[dict[str, Callable[[_Found, str, object], None]]] = {
    LDS: _listener, CDS: _cluster, RDS: _config, EDS: _assignment,
}  # fmt: skip


def _refused(place: str, rule: str) -> ConfigError:
    return ConfigError(Problem(place=place, path="dynamic_resources.ads_config", value="", rule=rule))
