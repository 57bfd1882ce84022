"""A real Envoy's, or a real gRPC client's, word on its calls alone moves lines: ALS and LRS, with no agent and no probe there."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
import pytest
from tests.differential import real
from tests.e2e import planes
from tests.e2e.planes import NAMES, bootstrap, document, go, is_bad, moved, traffic, upstreams

from reachline.cli import bootstraps
from reachline.testing.center import RunningCenter, running_center
from reachline.testing.wait import until

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def envoy_binary() -> Path:
    return planes.binary()


@pytest.mark.parametrize("mode", ["fast", "literal"])
def test_als_alone_moves_a_lines_weight(mode: str, envoy_binary: Path, tmp_path: Path) -> None:
    async def work() -> None:
        more = f"mode: {mode}\nbusiness: {{calls: 20}}\n"
        async with upstreams() as ports, running_center(tmp_path, settled(document(ports, more))) as center:
            with (
                real.running(envoy_binary, bootstrap(center, ports, tmp_path, "als"), tmp_path) as envoy,
                traffic(envoy.port),
            ):
                ports["a"].status = 500
                await moved(center, "payments/a", is_bad, "the line whose calls fail loses weight")
                why = await center.json("/api/v1/explain/payments/a")
                agents = (await center.json("/api/v1/agents"))["agents"]
                others = [await center.line(f"payments/{name}") for name in "bc"]

            assert agents == []
            assert "als:envoy-1" in {one["vantage"] for one in why["beside"]}
            assert why["rule"].startswith("business.errors")
            assert [row["weight"] for row in others] == [100, 100]

    go(work())


def settled(text: str) -> str:
    """Nobody probes here, and the judge need not wait a minute to know."""
    return text.replace("heartbeat: 500ms}", "heartbeat: 500ms, blind: 1s}")


def test_a_slow_line_is_found_by_als_and_not_by_lrs_and_neither_counts_twice(
    envoy_binary: Path, tmp_path: Path
) -> None:
    async def work() -> None:
        more = "mode: fast\nlimits: {p95: {degraded: 60ms, exit: 50ms}}\n"
        async with upstreams() as ports, running_center(tmp_path, settled(document(ports, more))) as center:
            found = bootstrap(center, ports, tmp_path, "als", "lrs")
            # An Envoy that is stopped says no more of its last calls.
            with real.running(envoy_binary, found, tmp_path) as envoy:
                with traffic(envoy.port):
                    ports["a"].pause = 0.12
                    await moved(center, "payments/a", is_bad, "the slow line loses weight")
                    planes = await until(lambda: both(center), what="a load report that was left out")
                    why = await center.json("/api/v1/explain/payments/a")
                asked = sum(one.asked for one in ports.values())

                async def all_counted() -> bool:
                    rows = {row["by"]: row for row in (await center.json("/api/v1/evidence"))["planes"]}
                    return rows["als"]["counted"] + rows["als"]["told_better"] >= asked

                await until(all_counted, what="every call told by the access log")
            ok = await center.metric('reachline_outcomes_total{result="ok"}')

            assert ".slow." in why["rule"]
            assert "cpu_utilization 0.25" in why["text"]
            assert planes["lrs"]["told_better"] > 0
            assert planes["lrs"]["counted"] == 0
            assert ok <= sum(one.asked for one in ports.values())

    go(work())


async def both(center: RunningCenter) -> Any:
    rows = {row["by"]: row for row in (await center.json("/api/v1/evidence"))["planes"]}
    return rows if rows.get("lrs", {}).get("told_better") else None


RICH: Final = """
judge: {tick: 500ms, heartbeat: 500ms}
probes: {tcp: 500ms, http: {every: 500ms, method: HEAD, expect: [200-299, 404], headers: {X-Key: abc, Accept: "*/*"}}}
clusters:
  payments:
    lines: {a: "http://127.0.0.1:PORT/healthz?x=1", six: "tcp://[::1]:PORT", dead: "tcp://127.0.0.1:1"}
  banner:
    probes: {tcp: {every: 500ms, send: "PING\\\\r\\\\n", expect: "hex:2b504f4e47"}, http: off}
    lines: {a: "tcp://127.0.0.1:PORT"}
  page:
    probes: {tcp: off, http: {every: 500ms, body: "ok", host: a.example, version: 2}}
    lines: {a: "http://127.0.0.1:PORT", tls: "https://127.0.0.1:PORT/x"}
  posted:
    probes: {tcp: off, http: {every: 500ms, method: POST}}
    lines: {a: "http://127.0.0.1:PORT"}
"""


def test_a_real_envoy_takes_every_check_that_a_document_can_ask_of_it(envoy_binary: Path, tmp_path: Path) -> None:
    async def work() -> None:
        async with upstreams() as ports, running_center(tmp_path, RICH.replace("PORT", str(ports["a"].port))) as center:
            with real.running(envoy_binary, bootstrap(center, ports, tmp_path, "hds"), tmp_path) as envoy:

                async def told() -> Any:
                    rows = (await center.json("/api/v1/lines"))["lines"]
                    pages = [await center.json(f"/api/v1/lines/{row['line']}") for row in rows]
                    return pages if all(page["readings"] for page in pages) else None

                pages = await until(told, what="a reading of every line")
                stats = await asyncio.to_thread(envoy.admin, "/stats?format=json&filter=hds_delegate")

            figures = {one["name"]: one["value"] for one in stats["stats"] if "name" in one}
            seen = {page["line"]: {one["kind"]: one["rounds_ok"] > 0 for one in page["readings"]} for page in pages}
            assert figures["hds_delegate.errors"] == 0
            assert seen["payments/a"] == {"tcp": True, "http": True}
            assert seen["payments/dead"] == {"tcp": False, "http": False}
            assert seen["posted/a"] == {"http": True}

    go(work())


CALLER: Final = """
import os, sys, time
os.environ["GRPC_XDS_BOOTSTRAP_CONFIG"] = sys.argv[1]
import grpc
with grpc.insecure_channel("xds:///payments") as channel:
    call = channel.unary_unary("/test.E/Call")
    while True:
        try:
            call(b"", timeout=5)
        except grpc.RpcError:
            pass
        time.sleep(0.005)
"""


@asynccontextmanager
async def grpc_service(is_well: Callable[[], bool]) -> AsyncIterator[int]:
    """A service whose every call ends as `is_well` says, and its port."""

    async def answer(_: bytes, context: Any) -> bytes:
        if not is_well():
            await context.abort(grpc.StatusCode.UNAVAILABLE, "no")
        return b"ok"

    server = grpc.aio.server()
    handler: Any = grpc.unary_unary_rpc_method_handler(answer)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.E", {"Call": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)


async def ended(process: asyncio.subprocess.Process) -> None:
    process.kill()
    await process.wait()


def test_a_grpc_client_steered_by_the_center_moves_lines_by_its_load_reports_alone(tmp_path: Path) -> None:
    async def work() -> None:
        well = dict.fromkeys(NAMES, True)
        async with contextlib.AsyncExitStack() as stack:
            ports = [await stack.enter_async_context(grpc_service(partial(well.__getitem__, name))) for name in NAMES]
            lines = ", ".join(f'{name}: "grpc://127.0.0.1:{port}"' for name, port in zip(NAMES, ports, strict=True))
            head = "mode: fast\njudge: {tick: 500ms, heartbeat: 500ms, blind: 1s}\npatience: {lone_failed: 2}\n"
            center = await stack.enter_async_context(
                running_center(tmp_path, f"{head}clusters:\n  payments:\n    lines: {{{lines}}}\n")
            )
            way = bootstraps.Way(node="grpc-1", center=center.grpc[0])
            caller = await asyncio.create_subprocess_exec(
                sys.executable, "-c", CALLER, json.dumps(bootstraps.grpc(way))
            )
            stack.push_async_callback(ended, caller)
            await moved(center, "payments/b", lambda row: row["weight"] == 100, "the line, as it begins")

            async def reported() -> bool:
                rows = (await center.json("/api/v1/evidence"))["planes"]
                return any(row["counted"] > 50 for row in rows)

            await until(reported, what="load reports")
            well["a"] = False
            await moved(center, "payments/a", is_bad, "the line whose calls fail loses weight")
            why = await center.json("/api/v1/explain/payments/a")
            (row,) = (await center.json("/api/v1/evidence"))["planes"]
            others = [await center.line(f"payments/{name}") for name in "bc"]

            assert "lrs:grpc-1" in {one["vantage"] for one in why["beside"]}
            assert (row["by"], row["unknown"], row["release"].split()[0]) == ("lrs", 0, "gRPC")
            assert [one["weight"] for one in others] == [100, 100]

    go(work())
