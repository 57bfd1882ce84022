"""All clusters of a document, kept current while they run: who is there, who is well, and the connections to them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Final, NamedTuple

from reachline import __version__
from reachline.abc import Discovery
from reachline.doors.envoy.chain import Ads as AdsSource
from reachline.doors.envoy.chain import Chain, Node, Upstream
from reachline.doors.envoy.values import Cluster, Type
from reachline.errors import ConfigError, Problem
from reachline.members import Membership
from reachline.model import Seconds
from reachline.net.ads import Ads
from reachline.net.dialogue import Dialogue
from reachline.net.tls import Contexts
from reachline.proxy import resources
from reachline.proxy.backend import Backend
from reachline.proxy.pool import Pool
from reachline.proxy.refusing import of_upstream
from reachline.proxy.sockets import Following, Sockets
from reachline.upstream.checks import Questions, Target
from reachline.upstream.finding import discovery_of
from reachline.upstream.keeper import Keeper
from reachline.upstream.kept import KeptCluster
from reachline.upstream.reading import settings_of
from reachline.upstream.settings import ControlPlane

__all__ = ["Clusters"]

_TEND: Final[Seconds] = 1.0
"""Between two looks at idle connections."""


class _Kept(NamedTuple):
    """One cluster, with what keeps it current."""

    backend: Backend
    upstream: Upstream
    keeper: Keeper
    sockets: Sockets


class Clusters:
    """Written by its own tasks and by exchanges, in one thread. ConfigError where a cluster of the document cannot be."""

    def __init__(self, chain: Chain, *, rng: Random, wall: Callable[[], Seconds], place: str) -> None:
        self._rng: Final = rng
        self._wall: Final = wall
        self._place: Final = place
        self._outlier_log: Final = chain.settings.outlier_log
        self._plane: Final = _plane(chain)
        self._node: Final = chain.node
        self._streams: Final[dict[ControlPlane, Ads]] = {}
        self._counts: Final[dict[str, Counter[str]]] = {}
        self._kept: Final[dict[str, _Kept]] = {}
        self._warming: Final[dict[str, _Kept]] = {}
        """Changed clusters until their first endpoints are there: those of before serve on."""
        self._tasks: Final[dict[Keeper | Ads, asyncio.Task[None]]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._unsettled: Final[set[str]] = set()
        self.moved: Callable[[], None] = lambda: None
        """Called where a cluster came, changed or went."""
        self.settled: Final = asyncio.Event()
        """Set once every cluster has its first endpoints, checked."""
        problems: list[Problem] = []
        for name, cluster in chain.settings.clusters.items():
            upstream = chain.upstreams.get(name, Upstream())
            if chain.ads is not None and name == chain.ads.cluster and upstream.protocol == "HTTP2":
                continue  # the control plane's own: gRPC goes there, no request does
            try:
                self.put(cluster, upstream)
            except ConfigError as error:
                problems += error.problems
        if problems:
            raise ConfigError(*problems)
        if not self._kept:
            self.settled.set()

    @property
    def backends(self) -> Mapping[str, Backend]:
        """Clusters of now, by name."""
        return {name: each.backend for name, each in self._kept.items()}

    def get(self, name: str) -> Backend | None:
        """A cluster by its name; None: there is none."""
        found = self._kept.get(name)
        return None if found is None else found.backend

    def put(self, cluster: Cluster, upstream: Upstream) -> None:
        """Have this cluster in the place of the one of its name, if any, once it has endpoints. ConfigError where it cannot be."""
        name = cluster.name
        now = self._warming.get(name) or self._kept.get(name)
        if now is not None and now.backend.cluster == cluster and now.upstream == upstream:
            return
        made = self._made(cluster, upstream)
        before = self._warming.pop(name, None)
        if before is not None:
            self._let_go(before)
        if name in self._kept:
            self._warming[name] = made
        else:
            self._kept[name] = made
            self._unsettled.add(name)
            self.settled.clear()
            self.moved()
        self._start(made.keeper)

    def remove(self, name: str) -> None:
        """There is no such cluster any more; requests under way go on."""
        for place in (self._warming, self._kept):
            found = place.pop(name, None)
            if found is not None:
                self._let_go(found)
        self._counts.pop(name, None)
        self._unsettled.discard(name)
        self.moved()

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for each in self._kept.values():
                    self._start(each.keeper)
                for stream in self._streams.values():
                    self._start(stream)
                group.create_task(self._tend())
        finally:
            self._group = None
            for each in self._kept.values():
                each.backend.pool.close()

    def _start(self, job: Keeper | Ads) -> None:
        if self._group is not None and job not in self._tasks:
            self._tasks[job] = self._group.create_task(job.run())

    def _let_go(self, each: _Kept) -> None:
        task = self._tasks.pop(each.keeper, None)
        if task is not None:
            task.cancel()
        each.backend.kept.retire()
        each.backend.pool.retire()

    async def _tend(self) -> None:
        while True:
            await asyncio.sleep(_TEND)
            for each in self._kept.values():
                keys = {row.key for row in each.backend.kept.rows()}
                each.backend.pool.tend(keys)
                each.backend.forget(keys)
                each.sockets.forget(keys)

    def _made(self, cluster: Cluster, upstream: Upstream) -> _Kept:
        name, place = cluster.name, f"{self._place}: clusters.{cluster.name}"
        if problems := list(of_upstream(upstream, place)):
            raise ConfigError(*problems)
        plane = self._plane if cluster.type is Type.EDS and not (cluster.eds and cluster.eds.path) else None
        settings = replace(settings_of(name, cluster, plane, self._place), outlier_log=self._outlier_log)
        loop = asyncio.get_running_loop()
        sockets = Sockets(upstream, cluster.check, place=place)
        secure = None if sockets.is_plain else sockets.of
        keeper: Keeper | None = None

        def stir() -> None:
            if keeper is not None:
                keeper.stir()

        kept = KeptCluster(settings, clock=loop.time, wall=self._wall, rng=Random(self._rng.random()), stir=stir)
        discovery: Discovery = discovery_of(settings, Random(self._rng.random()), self._stream)
        counts = self._counts.setdefault(name, Counter())
        pool = Pool(upstream, cluster.thresholds, counts, connect_timeout=cluster.connect_timeout, secure=secure)
        if upstream.by_match:
            discovery = Following(discovery, lambda found: _resocket(sockets, pool, found))
        keeper = Keeper(
            kept,
            discovery,
            settled=lambda _: self._on_settled(name, kept),
            seed=self._rng.getrandbits(63),
            questions=_questions(cluster, sockets),
        )
        kept.wake()
        return _Kept(Backend(cluster, upstream, kept, pool, counts, secure=secure), upstream, keeper, sockets)

    def _on_settled(self, name: str, kept: KeptCluster) -> None:
        warm = self._warming.get(name)
        if warm is not None and warm.backend.kept is kept:
            del self._warming[name]
            before, self._kept[name] = self._kept[name], warm
            self._let_go(before)
            self.moved()
        self._unsettled.discard(name)
        if not self._unsettled:
            self.settled.set()

    @property
    def stream(self) -> Ads | None:
        """The stream of `ads_config`; None: there is none. ConfigError where it cannot be."""
        return None if self._plane is None else self._stream(self._plane)

    def _stream(self, plane: ControlPlane) -> Ads:
        """One stream for all that a control plane says."""
        if plane not in self._streams:
            self._streams[plane] = stream = _stream_to(plane, self._node, Random(self._rng.random()), self._place)
            self._start(stream)
        return self._streams[plane]


def _resocket(sockets: Sockets, pool: Pool, membership: Membership) -> None:
    for key in sockets.update(membership):
        pool.leave_place(key)


def _questions(cluster: Cluster, sockets: Sockets) -> Callable[[Target], Questions] | None:
    """How endpoints are asked by checks where they speak TLS; None: in plain text."""
    check = cluster.check
    if check is None or sockets.is_plain:
        return None

    def questions(target: Target) -> Questions:
        return Dialogue(
            check.asked,
            target.host,
            target.port,
            authority=target.hostname or cluster.name,
            reuse=check.rules.reuse_connection,
            contexts=Contexts(),
            layer=lambda: sockets.of_check(target.key, target.hostname),
        )

    return questions


def _stream_to(plane: ControlPlane, node: Node, rng: Random, place: str) -> Ads:
    try:
        from reachline.wire import xds  # noqa: PLC0415  (protobuf, and only xDS needs it)

        said = xds.Node(
            id=node.id, cluster=node.cluster, locality=node.locality, metadata=node.metadata, version=__version__
        )
        return Ads(plane.address, node=said, rng=rng, delta=plane.delta, parsers=resources.parsers())
    except ImportError as error:
        rule, hint = f"needs the extra xds ({error})", "pip install 'reachline[xds]'"
        problem = Problem(place=place, path="dynamic_resources.ads_config", value="", rule=rule, hint=hint)
        raise ConfigError(problem) from None


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
