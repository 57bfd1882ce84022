"""All clusters of a document, kept current while they run: who is there, who is well, and the connections to them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Final

from reachline.doors.envoy.chain import Ads as AdsSource
from reachline.doors.envoy.chain import Chain, Upstream
from reachline.doors.envoy.values import Cluster, Type
from reachline.errors import ConfigError, Problem
from reachline.model import Seconds
from reachline.net.ads import Ads
from reachline.proxy.backend import Backend
from reachline.proxy.pool import Pool
from reachline.proxy.securing import Clients
from reachline.upstream.finding import ads_of, discovery_of
from reachline.upstream.keeper import Keeper
from reachline.upstream.kept import KeptCluster
from reachline.upstream.reading import settings_of
from reachline.upstream.settings import ControlPlane

__all__ = ["Clusters"]

_TEND: Final[Seconds] = 1.0
"""Between two looks at idle connections."""


class Clusters:
    """Written by its own task and by exchanges, in one thread. ConfigError where a cluster of the document cannot be."""

    def __init__(self, chain: Chain, *, rng: Random, wall: Callable[[], Seconds], place: str) -> None:
        self._rng: Final = rng
        self._wall: Final = wall
        self._place: Final = place
        self._plane: Final = _plane(chain)
        self._streams: Final[dict[ControlPlane, Ads]] = {}
        self._keepers: Final[dict[str, Keeper]] = {}
        self._unsettled: Final[set[str]] = set()
        self.settled: Final = asyncio.Event()
        """Set once every cluster has its first endpoints, checked."""
        self.backends: Final[dict[str, Backend]] = {}
        problems: list[Problem] = []
        for name, cluster in chain.settings.clusters.items():
            try:
                self._add(cluster, chain.upstreams.get(name, Upstream()), chain.settings.outlier_log)
            except ConfigError as error:
                problems += error.problems
        if problems:
            raise ConfigError(*problems)
        if not self.backends:
            self.settled.set()

    def get(self, name: str) -> Backend | None:
        """A cluster by its name; None: there is none."""
        return self.backends.get(name)

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for keeper in self._keepers.values():
                    group.create_task(keeper.run())
                for stream in self._streams.values():
                    group.create_task(stream.run())
                group.create_task(self._tend())
        finally:
            for backend in self.backends.values():
                backend.pool.close()

    async def _tend(self) -> None:
        while True:
            await asyncio.sleep(_TEND)
            for backend in self.backends.values():
                backend.pool.tend({row.key for row in backend.kept.rows()})

    def _add(self, cluster: Cluster, upstream: Upstream, outlier_log: str) -> None:
        name, place = cluster.name, f"{self._place}: clusters.{cluster.name}"
        if upstream.protocol not in ("HTTP1", "DOWNSTREAM"):
            rule = "endpoints are spoken to by HTTP/1.1 only"
            raise ConfigError(
                Problem(place=place, path="typed_extension_protocol_options", value=upstream.protocol, rule=rule)
            )
        plane = self._plane if cluster.type is Type.EDS and not (cluster.eds and cluster.eds.path) else None
        settings = replace(settings_of(name, cluster, plane, self._place), outlier_log=outlier_log)
        loop, clients = asyncio.get_running_loop(), None
        if upstream.tls is not None:
            clients = Clients(upstream.tls, place=place)
        keeper: Keeper | None = None

        def stir() -> None:
            if keeper is not None:
                keeper.stir()

        kept = KeptCluster(settings, clock=loop.time, wall=self._wall, rng=Random(self._rng.random()), stir=stir)
        discovery = discovery_of(settings, Random(self._rng.random()), self._stream)
        keeper = self._keepers[name] = Keeper(kept, discovery, settled=self._on_settled, seed=self._rng.getrandbits(63))
        self._unsettled.add(name)
        kept.wake()
        counts: Counter[str] = Counter()
        secure = None if clients is None else clients.of
        pool = Pool(
            upstream,
            cluster.thresholds,
            counts,
            connect_timeout=cluster.connect_timeout,
            secure=secure,
        )
        self.backends[name] = Backend(cluster, upstream, kept, pool, counts, secure=secure)

    def _on_settled(self, name: str) -> None:
        self._unsettled.discard(name)
        if not self._unsettled:
            self.settled.set()

    def _stream(self, plane: ControlPlane) -> Ads:
        """One stream for all clusters of a control plane."""
        if plane not in self._streams:
            self._streams[plane] = ads_of(plane, Random(self._rng.random()))
        return self._streams[plane]


def _plane(chain: Chain) -> ControlPlane | None:
    """Who assigns endpoints; None: nobody does."""
    source = chain.ads
    if source is None:
        return None
    address = source.target or _address_of(source, chain.settings.clusters)
    return ControlPlane(address, delta=source.delta, node=chain.node.id, node_cluster=chain.node.cluster)


def _address_of(source: AdsSource, clusters: Mapping[str, Cluster]) -> str:
    """The first endpoint of the cluster that serves ADS."""
    cluster = clusters.get(source.cluster)
    members = () if cluster is None else cluster.membership.members
    return str(members[0].address) if members else ""
