"""A real Envoy follows changes of every kind: what it refuses costs nothing else, and what leads somewhere is never ahead of it."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("envoy.service.discovery.v3.discovery_pb2", reason="xds-protos is not installed")

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_pb2

# Known by name in what is packed.
from envoy.extensions.filters.http.router.v3 import router_pb2  # noqa: F401
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2  # noqa: F401
from google.protobuf import json_format
from tests.center.test_xds_real import backend
from tests.differential.real import VARIABLE, Door, binary, started

from reachline.abc import Transport
from reachline.center.xds.door import DELTA, SOTW
from reachline.center.xds.operators import row
from reachline.center.xds.resources import Cells, Resources
from reachline.center.xds.serving import Serving
from reachline.cli.bootstraps import Way, envoy
from reachline.net import rpc
from reachline.testing.parts import free_port
from reachline.testing.wait import until
from reachline.wire.ads import CDS, EDS, LDS, RDS
from reachline.wire.resources import EMPTY, rendered

pytestmark = pytest.mark.real

ADS = {"ads": {}, "resource_api_version": "V3"}
MANAGER = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
ROUTER = {
    "name": "envoy.filters.http.router",
    "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
}
KINDS: dict[str, Any] = {
    CDS: cluster_pb2.Cluster, EDS: endpoint_pb2.ClusterLoadAssignment, LDS: listener_pb2.Listener, RDS: route_pb2.RouteConfiguration,
}  # fmt: skip
VARIANTS = pytest.mark.parametrize("delta", [False, True], ids=["sotw", "delta"])


def cluster(name: str, **more: object) -> dict[str, Any]:
    return {"name": name, "type": "EDS", "eds_cluster_config": {"eds_config": ADS}, "connect_timeout": "1s", **more}


def endpoints(port: int) -> dict[str, Any]:
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    return {"endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}]}


def listener(port: int) -> dict[str, Any]:
    manager = {
        "@type": MANAGER,
        "stat_prefix": "in",
        "http_filters": [ROUTER],
        "rds": {"route_config_name": "r", "config_source": ADS},
    }
    return {
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }


def routes(to: str) -> dict[str, Any]:
    host = {"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": to}}]}
    return {"virtual_hosts": [host]}


class World:
    """An Envoy that follows what the test publishes, and a door to call through."""

    def __init__(self, cells: Cells, serving: Serving) -> None:
        self._cells, self.serving = cells, serving
        self._now: Resources = EMPTY
        self.listen, self.ports, self.admin = free_port(), dict[str, int](), 0
        cells.asked = lambda audience: cells.publish(audience, self._now)

    def publish(self, changed: dict[tuple[str, str], dict[str, Any]], gone: tuple[tuple[str, str], ...] = ()) -> None:
        made = []
        for (type_url, name), document in changed.items():
            key = "cluster_name" if type_url == EDS else "name"
            message = json_format.ParseDict({key: name, **document}, KINDS[type_url]())
            made.append(rendered(type_url, name, message.SerializeToString(deterministic=True)))
        self._now = self._now.replaced(made, gone)
        for audience in self._cells.audiences:
            self._cells.publish(audience, self._now)

    def begin(self) -> None:
        self.publish(
            {
                (CDS, "one"): cluster("one"),
                (EDS, "one"): endpoints(self.ports["a"]),
                (LDS, "in"): listener(self.listen),
                (RDS, "r"): routes("one"),
            }
        )

    @property
    def types(self) -> dict[str, Any]:
        (stream,) = self.serving.streams
        return {each["type"]: each for each in row(stream, 0, is_settled=True)["types"]}

    def is_current(self) -> bool:
        return len(self.types) == 4 and all(each["current"] for each in self.types.values())

    def ask(self) -> tuple[int, str]:
        door = Door(self.listen)
        try:
            status, _, body = door.get("/")
            return status, body.decode()
        finally:
            door.close()

    async def answers(self, body: str) -> None:
        await until(lambda: asyncio.to_thread(lambda: self.ask() == (200, body)), what=f"{body} to answer")


@asynccontextmanager
async def world(directory: Path, *, delta: bool) -> AsyncIterator[World]:
    found = binary()
    if found is None:
        pytest.skip(f"no Envoy: `make envoy`, or {VARIABLE} names its binary")

    async def nobody(_: Transport, __: str) -> None:
        """No agent comes here."""

    async with AsyncExitStack() as stack:
        cells = Cells()
        serving = Serving(cells, clock=lambda: 0, counts=Counter())
        now = World(cells, serving)
        now.ports = {name: await stack.enter_async_context(backend(name)) for name in "abc"}
        now.begin()
        server = await rpc.serve(("127.0.0.1:0",), nobody, services={SOTW: serving.sotw, DELTA: serving.delta})
        stack.push_async_callback(server.close, 0)
        document = envoy(Way(node="e", center=f"127.0.0.1:{server.ports[0]}"), admin="127.0.0.1:1", delta=delta)
        document["admin"]["address"]["socket_address"]["port_value"] = 0
        enter: Callable[..., Any] = stack.enter_context
        now.admin = await asyncio.to_thread(enter, started(found, document, directory))
        await now.answers("a")
        yield now


@VARIANTS
def test_who_refuses_one_cluster_takes_all_others_and_their_endpoints(tmp_path: Path, delta: bool) -> None:
    async def run() -> None:
        async with world(tmp_path, delta=delta) as now:
            bad = cluster("bad", lb_policy="RING_HASH", ring_hash_lb_config={"minimum_ring_size": 10**12})
            now.publish(
                {
                    (CDS, "bad"): bad,
                    (CDS, "two"): cluster("two"),
                    (EDS, "two"): endpoints(now.ports["b"]),
                    (RDS, "r"): routes("two"),
                }
            )
            await now.answers("b")
            await until(lambda: now.types["Cluster"]["refused"] and not now.types["Cluster"]["waiting"], what="a NACK")
            refused = now.types["Cluster"]["refused"]
            now.publish(
                {
                    (EDS, "two"): endpoints(now.ports["c"]),
                    (CDS, "three"): cluster("three"),
                    (EDS, "three"): endpoints(now.ports["c"]),
                }
            )
            await now.answers("c")
            await until(lambda: now.types["ClusterLoadAssignment"]["names_total"] == 3, what="the third cluster")
            nacks = now.types["Cluster"]["nacks"]
            now.publish({(CDS, "bad"): cluster("bad"), (EDS, "bad"): endpoints(now.ports["a"])})
            await until(lambda: not now.types["Cluster"]["refused"], what="the mended one to be taken")

            assert list(refused) == ["bad"]
            assert "ring" in refused["bad"]
            assert nacks == 1

    asyncio.run(run())


@VARIANTS
def test_a_cluster_that_is_made_anew_hears_of_its_endpoints_again(tmp_path: Path, delta: bool) -> None:
    """Its endpoints did not change; without hearing of them the new one would never serve."""

    async def run() -> None:
        async with world(tmp_path, delta=delta) as now:
            for number in range(5):
                now.publish({(CDS, "one"): cluster("one", connect_timeout=f"{number + 2}s")})
                await until(now.is_current, what="Envoy to have taken it")
                await until(
                    lambda: asyncio.to_thread(lambda: stat(now, "cluster_manager.warming_clusters") == 0),
                    what="no cluster to warm",
                )
            await now.answers("a")

    asyncio.run(run())


@VARIANTS
def test_clusters_come_and_go_under_calls_and_none_fails(tmp_path: Path, delta: bool) -> None:
    """Each step brings a cluster, leads all calls there, and takes the last one away: in one publication."""

    async def run() -> None:
        async with world(tmp_path, delta=delta) as now:
            failed: list[tuple[int, str]] = []
            over, served = threading.Event(), Counter[str]()

            def calls() -> None:
                door = Door(now.listen)
                while not over.is_set():
                    status, _, body = door.get("/")
                    served[body.decode()] += status == 200
                    if status != 200:
                        failed.append((status, body.decode()))
                door.close()

            calling = asyncio.create_task(asyncio.to_thread(calls))
            names = ["one", *(f"n{number}" for number in range(12))]
            for last, name in pairwise(names):
                port = now.ports["abc"[len(name + last) % 3]]
                now.publish(
                    {(CDS, name): cluster(name), (EDS, name): endpoints(port), (RDS, "r"): routes(name)},
                    ((CDS, last), (EDS, last)),
                )
                await until(now.is_current, what=f"{name} to be taken")
            over.set()
            await calling

            assert failed == []
            assert sum(served.values()) > 20

    asyncio.run(run())


def stat(now: World, name: str) -> int:
    door = Door(now.admin)
    try:
        return int(door.get(f"/stats?filter=^{name}$")[2].decode().rpartition(":")[2])
    finally:
        door.close()
