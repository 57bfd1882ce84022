"""Services whose answers a test decides, a real Envoy before them, and calls through it."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from tests.differential import real

from reachline.testing.center import RunningCenter
from reachline.testing.serving import Service
from reachline.testing.wait import until

_HTTP2: Final = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_ALS: Final = "type.googleapis.com/envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig"
DEADLINE: Final = 120.0
NAMES: Final = ("a", "b", "c")
PACE: Final = 0.008
"""Between two calls: enough of them for a verdict, and time for others."""


def binary() -> Path:
    """Envoy's binary; without it the test is skipped by name."""
    found = real.binary()
    if found is None:
        pytest.skip(f"no Envoy: `make envoy`, or {real.VARIABLE} names its binary")
    return found


class Upstream:
    """An HTTP service whose answers the test decides."""

    def __init__(self) -> None:
        self.status = 200
        self.pause = 0.0
        self.port = 0
        self.asked = 0
        self.called = 0
        """Of `asked`, those that were no checks."""
        self._service = Service(self._serve)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Upstream]:
        self.port = (await self._service.listen()).port
        try:
            yield self
        finally:
            await self._service.close()

    async def die(self) -> None:
        """From now on its port refuses."""
        await self._service.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            self.asked += 1
            self.called += b" /healthz " not in head
            await asyncio.sleep(self.pause)
            answer = f"HTTP/1.1 {self.status} X\r\ncontent-length: 0\r\nx-port: {self.port}\r\n"
            orca = "endpoint-load-metrics: TEXT cpu_utilization=0.25\r\n"
            writer.write(f"{answer}{orca}\r\n".encode())
            await writer.drain()


@asynccontextmanager
async def upstreams() -> AsyncIterator[dict[str, Upstream]]:
    async with contextlib.AsyncExitStack() as stack:
        yield {name: await stack.enter_async_context(Upstream().serving()) for name in NAMES}


def document(ports: dict[str, Upstream], more: str = "") -> str:
    lines = ", ".join(f'{name}: "http://127.0.0.1:{one.port}/healthz"' for name, one in ports.items())
    return f"""
preset: quick_recovery
judge: {{tick: 500ms, heartbeat: 500ms}}
patience: {{lone_failed: 2}}
probes: {{tcp: off, http: 500ms}}
{more}
clusters:
  payments:
    lines: {{{lines}}}
"""


def bootstrap(center: RunningCenter, ports: dict[str, Upstream], directory: Path, *by: str) -> dict[str, Any]:
    """An Envoy of its owner's making that balances over these endpoints; `by` says how it tells the center of them."""
    host, _, port = center.grpc[0].rpartition(":")
    source = {
        "api_type": "GRPC",
        "transport_api_version": "V3",
        "grpc_services": [{"envoy_grpc": {"cluster_name": "center"}}],
    }
    http2 = {"@type": f"type.googleapis.com/{_HTTP2}", "explicit_http_config": {"http2_protocol_options": {}}}
    clusters = [
        cluster("center", {"": (host, int(port))}, typed_extension_protocol_options={_HTTP2: http2}),
        cluster(
            "payments",
            {name: ("127.0.0.1", one.port) for name, one in ports.items()},
            lrs_report_endpoint_metrics=["cpu_utilization"],
        ),
    ]
    node = {"id": "envoy-1", "cluster": "edge", "locality": {"region": "r1", "zone": "az1"}}
    found = real.bootstrap(clusters, directory, node=node)
    if "hds" in by:
        found["hds_config"] = source
    if "lrs" in by:
        found["cluster_manager"]["load_stats_config"] = source
    if "als" in by:
        config = {
            "log_name": "calls",
            "transport_api_version": "V3",
            "buffer_flush_interval": "0.2s",
            "grpc_service": source["grpc_services"][0],
        }
        (chain,) = found["static_resources"]["listeners"][0]["filter_chains"]
        log = {"name": "als", "typed_config": {"@type": _ALS, "common_config": config}}
        chain["filters"][0]["typed_config"]["access_log"] = [log]
    return found


def cluster(name: str, ends: dict[str, tuple[str, int]], **more: Any) -> dict[str, Any]:
    """Each endpoint a locality of its own, without a name that the center would know."""
    endpoints = [
        {"endpoint": {"address": {"socket_address": {"address": host, "port_value": port}}}}
        for host, port in ends.values()
    ]
    return {
        "name": name,
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]},
        **more,
    }


@contextmanager
def traffic(port: int) -> Iterator[None]:
    """Calls through Envoy, one after the other, for the length of the block."""
    door, over = real.Door(port), False

    async def call() -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):  # Envoy ends before its caller
            while not over:
                await asyncio.to_thread(door.get, "/", {"x-cluster": "payments"})
                await asyncio.sleep(PACE)

    task = asyncio.get_running_loop().create_task(call())
    try:
        yield
    finally:
        over = True
        task.add_done_callback(lambda _: door.close())


def go(work: Any) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE):
            await work

    asyncio.run(bounded())


def is_bad(row: dict[str, Any]) -> bool:
    return bool(row["weight"] < row["base"]) and row["health"] in {"degraded", "unhealthy"}


async def moved(center: RunningCenter, line: str, is_so: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
    async def now() -> dict[str, Any] | None:
        row: dict[str, Any] = await center.line(line)
        return row if is_so(row) else None

    return await until(now, within=60, what=what)


async def shares(ports: dict[str, Upstream], calls: int) -> dict[str, int]:
    """Who answers the next so many calls."""
    before = {name: one.called for name, one in ports.items()}

    def found() -> dict[str, int] | None:
        now = {name: one.called - before[name] for name, one in ports.items()}
        return now if sum(now.values()) >= calls else None

    return await until(found, what=f"{calls} calls")
