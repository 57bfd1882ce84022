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
from tests.e2e.xds_calls import CALL, LONGEST, Grpc, backend, grpc_process

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
    """Three lines, a center, one Envoy and one gRPC process. `ports` are those that stay over the center's restarts."""

    def __init__(self, directory: Path, text: str, proxy: Envoys, process: Grpc) -> None:
        self.directory, self.text = directory, text
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
async def story(directory: Path, binary: Path) -> AsyncIterator[Story]:
    """All but the center, which may come later, go, and come back."""
    async with AsyncExitStack() as stack:
        ports = {name: await stack.enter_async_context(backend(name)) for name in "abc"}
        center, listen = free_port(), free_port()
        text = DOCUMENT.format(**ports, listen=listen, center=center)
        at = f"127.0.0.1:{center}"
        document = envoy(Way(node="envoy-1", center=at), admin="127.0.0.1:1", lrs=True, als=True)
        document["admin"]["address"]["socket_address"]["port_value"] = 0
        # Envoy is live once it knows where to listen, so it is looked at from a thread while the center starts.
        admin = await asyncio.to_thread(stack.enter_context, started(binary, document, directory, is_live=False))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{listen}"))
        process = stack.enter_context(grpc_process(directory, at))
        proxy = Envoys(admin, listen, channel)
        stack.callback(proxy.admin.close)
        yield Story(directory, text, proxy, process)


async def report_until(agent: FrameAgent, readings: dict[str, Any], reached: Any) -> None:
    """One heartbeat a tick until it is so."""

    async def seen() -> object:
        await agent.reported(readings)
        return await reached()

    await until(seen, within=30, every=0.25)


def test_shares_through_envoy_and_grpc_fall_with_a_line_and_come_back_with_it(
    tmp_path: Path, envoy_binary: Path
) -> None:
    async def run() -> None:
        async with (
            story(tmp_path, envoy_binary) as all_,
            running_center(tmp_path, all_.text) as center,
            center.agent() as agent,
        ):
            weights = all_.envoy.told

            async def same() -> bool:
                return (await all_.published(center)) == weights()

            async def even() -> bool:
                return set(weights().values()) == {100} and await same()

            await report_until(agent, WELL, even)
            for counts in await all_.counted(90):
                assert set(counts) == set("abc")
                assert min(counts.values()) >= 12

            async def out() -> bool:
                return weights()["a"] == 0 and await same()

            await report_until(agent, BAD, out)
            for counts in await all_.counted(40):
                assert set(counts) == {"b", "c"}

            seen: list[int] = []

            async def back() -> bool:
                # Calls through Envoy are what the trial and each step of the ramp are passed by.
                calls = await all_.envoy.calls(60)
                assert set(calls) <= set("abc")
                if await same() and (not seen or weights()["a"] != seen[-1]):
                    seen.append(weights()["a"])
                return seen[-1:] == [100]

            await report_until(agent, WELL, back)
            assert seen == sorted(set(seen)), "shares rise step by step"
            assert set(seen) >= {20, 60, 100}
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
