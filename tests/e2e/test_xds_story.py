"""A real Envoy and real gRPC clients obey the center: shares fall with a line, come back with it, and outlast the center."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from tests.differential.real import VARIABLE, Door, binary, started
from tests.e2e.xds_calls import CALL, LONGEST, Backend, Grpc, backend, grpc_process

from reachline.cli.bootstraps import Way, envoy
from reachline.testing.center import FrameAgent, RunningCenter, dead, good, running_center
from reachline.testing.parts import free_port
from reachline.testing.wait import until

pytestmark = [pytest.mark.e2e, pytest.mark.real]

DOCUMENT = """
preset: quick_recovery
judge: {{tick: 500ms, heartbeat: 500ms}}
patience: {{lone_failed: 2}}
circuit_breaker:
  cooldown_seconds: 1
  half_open: {{traffic_ratio: 0.2, min_window_seconds: 1, min_success_requests: 8}}
  recovery: {{step_ratios: [0.2, 0.6, 1.0], step_interval_seconds: 1}}
probes: {{tcp: 500ms, grpc: off}}
business: {{span: 2s, hold: 2s}}
window: {{max_age: 3s}}
clusters:
  shop:
    lines: {{a: "grpc://127.0.0.1:{a}", b: "grpc://127.0.0.1:{b}", c: "grpc://127.0.0.1:{c}"}}
    listen: 127.0.0.1:{listen}
center: {{grpc: "127.0.0.1:{center}", http: "127.0.0.1:0", journal: JOURNAL}}
"""
WELL = {f"shop/{name}": good(fresh_ok=40) for name in "abc"}
BAD = WELL | {"shop/a": dead()}


@pytest.fixture
def envoy_binary() -> Path:
    found = binary()
    if found is None:
        pytest.skip(f"no Envoy: `make envoy`, or {VARIABLE} names its binary")
    return found


class Envoys:
    """One Envoy: what it was told, and who answers through it."""

    def __init__(self, admin: int, port: int, channel: grpc.aio.Channel) -> None:
        self.admin, self.port = Door(admin), port
        self._call = channel.unary_unary(CALL)

    def told(self) -> dict[str, int]:
        """Weight by line of those that are to get calls, as Envoy has it now; 0 for the others."""
        _, _, body = self.admin.get("/config_dump?include_eds")
        configs = json.loads(body)["configs"]
        found = next(each for each in configs if each["@type"].endswith("EndpointsConfigDump"))
        for each in found.get("dynamic_endpoint_configs", ()):
            config = each["endpoint_config"]
            if config["cluster_name"] == "shop":
                return {
                    group["locality"]["sub_zone"]: group["load_balancing_weight"]
                    if group["lb_endpoints"][0].get("health_status", "HEALTHY") in {"HEALTHY", "DEGRADED"}
                    else 0
                    for group in config["endpoints"]
                }
        return {}

    async def calls(self, count: int) -> Counter[str]:
        found: Counter[str] = Counter()
        for _ in range(count):
            try:
                found[(await self._call(b"", timeout=LONGEST, wait_for_ready=True)).decode()] += 1
            except grpc.aio.AioRpcError as error:
                found[f"{error.code().name}: {error.details()}"] += 1
        return found


class Story:
    """Three lines, one Envoy that probes and tells of its calls, and one gRPC process; all at ports that outlast a center."""

    def __init__(self, text: str, backends: dict[str, Backend], proxy: Envoys, process: Grpc) -> None:
        self.text, self.backends = text, backends
        self.envoy, self.grpc = proxy, process

    async def published(self, center: RunningCenter) -> dict[str, int]:
        rows = (await center.json("/api/v1/lines?cluster=shop"))["lines"]
        return {row["line"].partition("/")[2]: row["weight"] for row in rows}

    async def counted(self, count: int) -> list[Counter[str]]:
        """Who answers through Envoy, and gRPC's sync and aio clients."""
        return [
            await self.envoy.calls(count),
            await self.grpc.calls("sync", count),
            await self.grpc.calls("aio", count),
        ]


@asynccontextmanager
async def story(directory: Path, binary: Path, *, probes: bool = False) -> AsyncIterator[Story]:
    """All but the center, which may come later, go, and come back. `probes`: the Envoy is a vantage."""
    async with AsyncExitStack() as stack:
        backends = {name: await stack.enter_async_context(backend(name)) for name in "abc"}
        center, listen = free_port(), free_port()
        ports = {name: each.port for name, each in backends.items()}
        text = DOCUMENT.format(**ports, listen=listen, center=center)
        at = f"127.0.0.1:{center}"
        document = envoy(Way(node="envoy-1", center=at), admin="127.0.0.1:1", hds=probes, lrs=True, als=True)
        document["admin"]["address"]["socket_address"]["port_value"] = 0
        # Envoy is live once it knows where to listen, so it is looked at from a thread while the center starts.
        admin = await asyncio.to_thread(stack.enter_context, started(binary, document, directory, is_live=False))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{listen}"))
        process = stack.enter_context(grpc_process(directory, at))
        proxy = Envoys(admin, listen, channel)
        stack.callback(proxy.admin.close)
        yield Story(text, backends, proxy, process)


async def report_until(agent: FrameAgent, readings: dict[str, Any], reached: Any) -> None:
    """One heartbeat a tick until it is so."""

    async def seen() -> object:
        await agent.reported(readings)
        return await reached()

    await until(seen, within=30, every=0.25)


def test_without_any_agent_an_envoys_probes_and_calls_take_a_dead_line_out_and_bring_it_back(
    tmp_path: Path, envoy_binary: Path
) -> None:
    async def run() -> None:
        async with (
            story(tmp_path, envoy_binary, probes=True) as all_,
            running_center(tmp_path, all_.text) as center,
        ):
            weights = all_.envoy.told

            async def well() -> bool:
                assert set(await all_.envoy.calls(20)) <= set("abc")
                rows = (await center.json("/api/v1/lines?cluster=shop"))["lines"]
                return all(row["health"] == "healthy" for row in rows) and await all_.published(center) == weights()

            await until(well, within=30, what="all are well")
            for counts in await all_.counted(60):
                assert set(counts) == set("abc")
                assert min(counts.values()) >= 6

            await all_.backends["a"].stop()

            async def out() -> bool:
                await all_.envoy.calls(20)
                return weights()["a"] == 0

            await until(out, within=30, what="the dead line is out")
            assert (await center.json("/api/v1/explain/shop/a"))["votes"][0]["vantage"] == "envoy-1"
            for counts in await all_.counted(30):
                assert set(counts) == {"b", "c"}

            await all_.backends["a"].start()
            seen: list[int] = []

            async def back() -> bool:
                assert set(await all_.envoy.calls(60)) <= set("abc")
                if not seen or weights()["a"] != seen[-1]:
                    seen.append(weights()["a"])
                return seen[-1] == 100

            await until(back, within=60, what="the line is back")
            assert seen == sorted(set(seen))
            assert set(seen) >= {20, 60, 100}
            assert await all_.published(center) == weights() == dict.fromkeys("abc", 100)
            for counts in await all_.counted(60):
                assert set(counts) == set("abc")

    asyncio.run(run())


def test_a_center_that_lost_its_journal_says_nothing_older_and_one_that_is_gone_is_not_missed(
    tmp_path: Path, envoy_binary: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with story(tmp_path, envoy_binary) as all_:
            weights = all_.envoy.told

            async def out() -> bool:
                return weights().get("a") == 0

            async with running_center(tmp_path, all_.text) as center, center.agent() as agent:
                await report_until(agent, BAD, out)
                await all_.counted(5)
            # The center is gone.
            for counts in await all_.counted(20):
                assert set(counts) == {"b", "c"}

            shutil.rmtree(tmp_path / "journal")
            async with running_center(tmp_path, all_.text) as center:

                async def came_back() -> bool:
                    streams = (await center.json("/api/v1/xds"))["streams"]
                    return {each["kind"] for each in streams if each["held"]} == {"envoy", "grpc"}

                await until(came_back, within=30, what="both clients are back")
                assert set((await all_.published(center)).values()) == {100}
                # It knows nothing of line a, and says nothing.
                assert weights() == {"a": 0, "b": 100, "c": 100}
                async with center.agent() as agent:
                    looked: list[int] = []

                    async def judged() -> bool:
                        looked.append(len(weights()))
                        return (await all_.published(center))["a"] == 0

                    await report_until(agent, BAD, judged)
                    assert weights() == {"a": 0, "b": 100, "c": 100}
                    assert set(looked) == {3}

                    async def well() -> bool:
                        return weights()["a"] > 0 and weights() == await all_.published(center)

                    await report_until(agent, WELL, well)

    asyncio.run(run())
    assert [record for record in caplog.records if record.name == "asyncio"] == []
