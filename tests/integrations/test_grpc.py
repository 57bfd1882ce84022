"""gRPC by lines: real servers of the official library, each call on a line of its own choice."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Iterator, Mapping
from concurrent import futures
from typing import Any

import grpc
import pytest
from tests.integrations.far import listing

from reachline.errors import LocalProtocolError
from reachline.integrations.grpc import aio_channel, channel, xds_bootstrap
from reachline.members import Membership, compare
from reachline.model import Gate, Version
from reachline.upstream import Cluster, LineList
from reachline.upstream.kept import KeptCluster
from reachline.upstream.reading import read
from reachline.upstream.tries import BUDGET

GET = "/shop.Shop/Get"


class Server:
    """Answers with its name, or aborts with `code`."""

    def __init__(self, name: str) -> None:
        self.name, self.code, self.seen, self.peers = name.encode(), grpc.StatusCode.OK, 0, set[str]()
        self.load = ""
        """What its answers report of it. Not as `-bin`: that one gRPC keeps for itself."""
        self._server = grpc.server(futures.ThreadPoolExecutor(2))
        handlers = {
            "Get": grpc.unary_unary_rpc_method_handler(self._get),
            "List": grpc.unary_stream_rpc_method_handler(self._list),
            "Put": grpc.stream_unary_rpc_method_handler(self._put),
            "Chat": grpc.stream_stream_rpc_method_handler(self._chat),
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("shop.Shop", handlers),))
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def close(self) -> None:
        self._server.stop(None).wait()

    def _get(self, _: bytes, context: Any) -> bytes:
        self.seen += 1
        if self.load:
            context.set_trailing_metadata((("endpoint-load-metrics", self.load),))
        self.peers.add(context.peer())
        if self.code is not grpc.StatusCode.OK:
            context.abort(self.code, "ill")
        return self.name

    def _list(self, request: bytes, context: Any) -> Iterator[bytes]:
        yield self.name
        yield self._get(request, context)

    def _put(self, requests: Iterator[bytes], context: Any) -> bytes:
        return self._get(b"".join(requests), context)

    def _chat(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        for each in requests:
            yield self._get(each, context)


class World:
    def __init__(self) -> None:
        self.servers = {name: Server(name) for name in ("a", "b")}
        self.cluster = Cluster("shop", clock=time.monotonic, rng=random.Random(1), local_breaker=False)
        self.publish()
        self.cluster.wake()

    @property
    def clusters(self) -> Mapping[str, Cluster]:
        return {"shop": self.cluster}

    def publish(self, counter: int = 1, **gates: Gate) -> None:
        addresses = {name: f"tcp://127.0.0.1:{server.port}" for name, server in self.servers.items()}
        self.cluster.replace(listing("shop", addresses, counter, gates), source="center")

    def calls(self) -> dict[str, int]:
        return {name: count for name, count in self.cluster.stats().calls._asdict().items() if count}


@pytest.fixture
def world() -> Iterator[World]:
    BUDGET.renew()
    made = World()
    yield made
    for each in made.servers.values():
        each.close()


def gets(world: World, count: int, *, awaited: bool, idempotent: tuple[str, ...] = (GET,), **how: Any) -> list[Any]:
    """What so many calls of one method came to: bytes, or a status code."""

    async def main() -> list[Any]:
        found: list[Any] = []
        async with aio_channel(world, "shop", idempotent=idempotent) as made:
            get = made.unary_unary(GET)
            for _ in range(count):
                try:
                    found.append(await get(b"x", **how))
                except grpc.RpcError as error:
                    found.append(error.code())
        return found

    if awaited:
        return asyncio.run(main())
    found: list[Any] = []
    with channel(world, "shop", idempotent=idempotent) as made:
        get = made.unary_unary(GET)
        for _ in range(count):
            try:
                found.append(get(b"x", **how))
            except grpc.RpcError as error:
                found.append(error.code())
    return found


@pytest.fixture(params=[False, True], ids=["blocking", "aio"])
def awaited(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_each_call_chooses_its_line(world: World, awaited: bool) -> None:
    assert set(gets(world, 20, awaited=awaited)) == {b"a", b"b"}
    assert world.calls() == {"ok": 20}
    assert [len(each.peers) for each in world.servers.values()] == [1, 1]


def test_an_idempotent_call_that_fails_is_made_on_another_line(world: World, awaited: bool) -> None:
    world.servers["a"].code = grpc.StatusCode.UNAVAILABLE

    assert gets(world, 12, awaited=awaited) == [b"b"] * 12
    failed = world.servers["a"].seen
    assert world.calls() == {"ok": 12, "failed": failed, "retries": failed}


def test_any_other_call_is_made_once(world: World, awaited: bool) -> None:
    for each in world.servers.values():
        each.code = grpc.StatusCode.UNAVAILABLE

    assert gets(world, 1, awaited=awaited, idempotent=()) == [grpc.StatusCode.UNAVAILABLE]
    assert sum(each.seen for each in world.servers.values()) == 1


@pytest.mark.parametrize(
    ("code", "column"),
    [("NOT_FOUND", "ok"), ("INTERNAL", "errors"), ("DEADLINE_EXCEEDED", "late"), ("CANCELLED", "unproven")],
)
def test_a_code_says_what_it_says_of_its_line(world: World, awaited: bool, code: str, column: str) -> None:
    for each in world.servers.values():
        each.code = grpc.StatusCode[code]

    assert gets(world, 1, awaited=awaited, idempotent=()) == [grpc.StatusCode[code]]
    assert world.calls() == {column: 1}


def test_a_line_that_was_open_gets_a_connection_of_its_own_again(world: World) -> None:
    with channel(world, "shop") as made:
        get = made.unary_unary(GET)
        for counter in range(2, 8, 2):
            for _ in range(12):
                get(b"x")
            world.publish(counter, a=Gate.OPEN)
            world.publish(counter + 1)

    assert [len(each.peers) for each in world.servers.values()] == [3, 1]


def test_streams_and_futures_are_counted_when_they_end(world: World) -> None:
    with channel(world, "shop") as made:
        assert len(list(made.unary_stream("/shop.Shop/List")(b"x"))) == 2
        assert made.stream_unary("/shop.Shop/Put")(iter([b"x"])) in {b"a", b"b"}
        assert len(list(made.stream_stream("/shop.Shop/Chat")(iter([b"x", b"y"])))) == 2
        assert made.unary_unary(GET).future(b"x").result() in {b"a", b"b"}
        for each in world.servers.values():
            each.code = grpc.StatusCode.UNAVAILABLE
        with pytest.raises(grpc.RpcError):
            list(made.unary_stream("/shop.Shop/List")(b"x"))

    _counted(world, {"ok": 4, "failed": 1})


def test_streams_of_grpc_aio_are_counted_when_they_end(world: World) -> None:
    async def main() -> None:
        async with aio_channel(world, "shop") as made:
            assert len([each async for each in made.unary_stream("/shop.Shop/List")(b"x")]) == 2
            assert await made.stream_unary("/shop.Shop/Put")(iter([b"x"])) in {b"a", b"b"}
            for each in world.servers.values():
                each.code = grpc.StatusCode.UNAVAILABLE
            with pytest.raises(grpc.RpcError):
                [each async for each in made.unary_stream("/shop.Shop/List")(b"x")]

    asyncio.run(main())
    _counted(world, {"ok": 2, "failed": 1})


def _counted(world: World, calls: dict[str, int]) -> None:
    """Ends are told by a thread of gRPC's, a moment after the caller has them."""
    from reachline.testing.wait import eventually

    eventually(lambda: world.calls() == calls)


def test_what_cannot_be_is_said_at_once(world: World) -> None:
    with pytest.raises(LocalProtocolError, match="known: shop"):
        channel(world, "shpo")
    world.cluster.replace(LineList(cluster="shop", lines=(), version=Version(1, 9)), source="center")
    with channel(world, "shop") as made, pytest.raises(LocalProtocolError, match="no line"):
        made.unary_unary(GET)(b"x")


def test_a_bootstrap_is_what_grpc_reads(world: World) -> None:
    found = json.loads(xds_bootstrap("127.0.0.1:18000", node="checkout-7", cluster="checkout"))

    assert found["xds_servers"][0]["server_uri"] == "127.0.0.1:18000"
    assert found["node"] == {"id": "checkout-7", "cluster": "checkout"}


def test_loads_in_trailers_reach_the_cluster(world: World) -> None:
    policy = {"name": "client_side_weighted_round_robin", "blackout_period": 0}
    targets = [f"127.0.0.1:{each.port}" for each in world.servers.values()]
    settings = read({"shop": {"targets": targets, "policy": policy}}, place="test")["shop"]
    now = [1_000.0]
    kept = KeptCluster(settings, clock=lambda: now[0], wall=time.time, rng=random.Random(1))
    kept.update(compare(Membership(), settings.membership))
    kept.wake()
    for name, load in (("a", 0.1), ("b", 0.4)):
        world.servers[name].load = f"TEXT rps_fractional=100,cpu_utilization={load}"

    async def awaited(count: int) -> None:
        async with aio_channel(Kept(kept), "shop") as shop:
            for _ in range(count):
                await shop.unary_unary(GET)(b"", timeout=10)

    asyncio.run(awaited(2))
    with channel(Kept(kept), "shop") as shop:
        for _ in range(2):
            shop.unary_unary(GET)(b"", timeout=10)
        now[0] += 1.0
        kept.turn()
        for _ in range(10):
            shop.unary_unary(GET)(b"", timeout=10)

    assert {name: each.seen for name, each in world.servers.items()} == {"a": 10, "b": 4}


class Kept:
    def __init__(self, cluster: KeptCluster) -> None:
        self.clusters: Mapping[str, KeptCluster] = {"shop": cluster}
