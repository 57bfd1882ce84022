"""A real Envoy takes everything that is rendered, and splits calls as the center's weights say, degraded lines included."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme
from tests.center.steered import Center
from tests.differential.real import VARIABLE, Door, binary, bootstrap, started
from tests.e2e import xds_calls as names

from reachline.abc import Transport
from reachline.center.xds.door import DELTA, SOTW
from reachline.center.xds.serving import Serving
from reachline.center.xds.steering import Steering
from reachline.cli.bootstraps import Way, envoy
from reachline.core.steer import Steer
from reachline.model import Health
from reachline.net import rpc
from reachline.testing.parts import free_port
from reachline.testing.serving import serving
from reachline.testing.wait import until

pytestmark = pytest.mark.real

EVERYTHING = """
xds: {{ca: "{ca}"}}
clusters:
  shop:
    lines: {{a: "http://127.0.0.1:{a}", b: "http://127.0.0.1:{b}", c: "http://127.0.0.1:{c}"}}
    listen: [127.0.0.1:{one}, {{at: "127.0.0.1:{two}", hosts: [shop.example, "*.shop.example"], websocket: true}}]
  pay:
    lines: {{x: "https://10.0.0.1", y: {{to: "https://10.0.0.2", drained: true}}, z: "http://10.0.0.3"}}
    listen: {{at: "127.0.0.1:{one}", prefix: /pay, rewrite_host: true, timeout: 0s}}
  quotes:
    lines: ["grpcs://10.0.0.4", "grpcs://10.0.0.5"]
    listen: {{at: "127.0.0.1:{two}", prefix: /quotes.Quotes}}
  ledger:
    lines: ["tcp://10.0.0.6:5432", {{to: "tcp://[2001:db8::1]:5432", weight: 1000000}}]
    listen: 127.0.0.1:{three}
  left-out:
    lines: ["icmp://10.0.0.7"]
"""
REJECTED = "(lds|cds|rds|eds|cluster|http).*update_(rejected|success)$"


@asynccontextmanager
async def backend(name: str) -> AsyncIterator[int]:
    """An HTTP server that says its name."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            if b"upgrade: websocket" in (await reader.readuntil(b"\r\n\r\n")).lower():
                writer.write(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
                writer.write((await reader.readexactly(3)).upper())
                await writer.drain()
                return
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n" + name.encode())
            await writer.drain()

    async with serving(serve) as service:
        yield service.port


class World:
    """A center's state, the plane that tells it, and an Envoy that follows."""

    def __init__(self, center: Center, steering: Steering, admin: Door, ports: dict[str, int], at: str) -> None:
        self.center, self.steering, self._admin, self.ports, self.at = center, steering, admin, ports, at

    def asked(self, path: str) -> Any:
        return json.loads(self._admin.get(path)[2])

    def stats(self) -> dict[str, int]:
        return {each["name"]: each["value"] for each in self.asked(f"/stats?format=json&filter={REJECTED}")["stats"]}

    async def healths(self) -> dict[str, str]:
        """What Envoy has of each line of the shop."""
        found = (await asyncio.to_thread(self.asked, "/clusters?format=json"))["cluster_statuses"]
        (shop,) = [each for each in found if each["name"] == "shop"]
        return {
            each["locality"]["sub_zone"]: each["health_status"]["eds_health_status"] for each in shop["host_statuses"]
        }

    async def shares(self, count: int) -> Counter[str]:
        def calls() -> Counter[str]:
            door = Door(self.ports["one"])
            found = Counter(door.get("/")[2].decode() for _ in range(count))
            door.close()
            return found

        return await asyncio.to_thread(calls)


@asynccontextmanager
async def world(
    directory: Path, *, delta: bool = False, own: Callable[[dict[str, Any], int], None] = lambda _, __: None
) -> AsyncIterator[World]:
    """`own` changes the Envoy's document, which is to take calls at the port given."""
    found = binary()
    if found is None:
        pytest.skip(f"no Envoy: `make envoy`, or {VARIABLE} names its binary")

    async def nobody(_: Transport, __: str) -> None:
        """No agent comes here."""

    async with AsyncExitStack() as stack:
        ports = {name: await stack.enter_async_context(backend(name)) for name in "abc"}
        ports |= {name: free_port() for name in ("one", "two", "three")}
        ca = directory / "ca.pem"
        trustme.CA().cert_pem.write_to_path(str(ca))
        center = Center(EVERYTHING.format(ca=ca, **ports), Health.HEALTHY)
        steering = center.steering()
        serving = Serving(center.cells, clock=center.board.clock, counts=Counter(), settled=steering.settled)
        server = await rpc.serve(("127.0.0.1:0",), nobody, services={SOTW: serving.sotw, DELTA: serving.delta})
        stack.push_async_callback(server.close, 0)
        way = Way(node="e", center=f"127.0.0.1:{server.ports[0]}")
        document = envoy(way, admin="127.0.0.1:1", delta=delta, als=True)
        document["admin"]["address"]["socket_address"]["port_value"] = 0
        own(document, ports["one"])
        enter: Callable[..., Any] = stack.enter_context
        admin = Door(await asyncio.to_thread(enter, started(found, document, directory)))
        stack.callback(admin.close)
        yield World(center, steering, admin, ports, way.center)


@pytest.mark.parametrize("delta", [False, True], ids=["sotw", "delta"])
def test_an_envoy_takes_everything_that_is_rendered(tmp_path: Path, delta: bool) -> None:
    async def run() -> None:
        async with world(tmp_path, delta=delta) as now:
            stats = await asyncio.to_thread(now.stats)

            assert {name: value for name, value in stats.items() if name.endswith("rejected") and value} == {}
            assert stats["cluster_manager.cds.update_success"] >= 1
            assert stats["listener_manager.lds.update_success"] >= 1
            assert stats["cluster.quotes.update_success"] >= 1
            listeners = (await asyncio.to_thread(now.asked, "/listeners?format=json"))["listener_statuses"]
            assert {each["name"] for each in listeners} == {
                f"127.0.0.1:{now.ports[name]}" for name in ("one", "two", "three")
            }

    asyncio.run(run())


def test_calls_are_split_as_the_weights_say_also_to_who_is_degraded(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as now:
            assert await now.shares(300) == {"a": 100, "b": 100, "c": 100}

            now.center.weighs("a", 40, Health.DEGRADED)
            now.center.weighs("b", 60, Health.HEALTHY)
            now.steering.refresh()
            await until(lambda: is_told(now, a="DEGRADED"), what="Envoy knows")

            # 20 %, 30 %, 50 %: which lines are degraded is drawn call by call, the rest goes round.
            found = await now.shares(600)
            assert 85 <= found["a"] <= 155
            assert found["c"] / found["b"] == pytest.approx(100 / 60, rel=0.05)

            now.center.weighs("b", 0, Health.UNHEALTHY)
            now.center.weighs("c", 0, Health.DRAINING)
            now.steering.refresh()
            await until(lambda: is_told(now, b="UNHEALTHY", c="DRAINING"), what="Envoy knows")

            assert await now.shares(50) == {"a": 50}

    asyncio.run(run())


def test_an_envoy_with_listeners_of_its_own_leads_to_the_centers_clusters(tmp_path: Path) -> None:
    def own(document: dict[str, Any], port: int) -> None:
        del document["dynamic_resources"]["lds_config"]
        routes = {"validate_clusters": False, "virtual_hosts": [
            {"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "shop"}}]}
        ]}  # fmt: skip
        listener = bootstrap([], tmp_path)["static_resources"]["listeners"][0]
        listener["address"]["socket_address"]["port_value"] = port
        listener["filter_chains"][0]["filters"][0]["typed_config"]["route_config"] = routes
        document["static_resources"]["listeners"] = [listener]

    async def run() -> None:
        async with world(tmp_path, own=own) as now:
            assert await now.shares(30) == {"a": 10, "b": 10, "c": 10}

    asyncio.run(run())


def test_what_the_plan_refuses_is_dropped_by_envoy_and_by_grpc(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as now, names.backend("only") as only:
            steered(now, Steer(100, (("", 40),), "priority.shed"))
            await until(lambda: dropped(now), what="a refused call")
            found = await now.shares(200)
            assert 90 <= sum(count for body, count in found.items() if body not in "abc") <= 150

            lines = f"{{a: {{to: 'grpc://127.0.0.1:{only.port}', region: r1}}}}"
            now.center.read(f"clusters: {{shop: {{lines: {lines}}}}}", Health.HEALTHY)
            steered(now, Steer(100, (("r1", 40),), "priority.shed"))
            now.steering.follow(now.center.document)
            with names.grpc_process(tmp_path, now.at) as process:
                for kind in ("sync", "aio"):
                    found = await process.calls(kind, 100)
                    assert 20 <= found.pop("only") <= 60
                    assert all("drop" in said for said in found), found

    asyncio.run(run())


def steered(now: World, steer: Steer) -> None:
    shop = now.center.board.clusters["shop"].value
    now.center.board.publish(replace(shop, steer=steer))
    now.steering.refresh()


async def dropped(now: World) -> bool:
    return set(await now.shares(20)) > set("abc")


async def is_told(now: World, **healths: str) -> bool:
    found = await now.healths()
    return all(found[name] == health for name, health in healths.items())


def test_a_call_becomes_a_websocket_through_a_real_envoy_where_the_document_lets_it(tmp_path: Path) -> None:
    ask = "GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"

    async def upgraded(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(ask.encode())
            head = await reader.readuntil(b"\r\n\r\n")
            if b" 101 " not in head:
                return head.split()[1]
            writer.write(b"abc")
            return await reader.readexactly(3)
        finally:
            writer.close()
            await writer.wait_closed()

    async def run() -> None:
        async with world(tmp_path) as now:
            assert await upgraded(now.ports["two"]) == b"ABC"
            assert await upgraded(now.ports["one"]) == b"403"

    asyncio.run(run())
