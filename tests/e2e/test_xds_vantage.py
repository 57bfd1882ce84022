"""A real Envoy as a vantage: with no agent there its probes (HDS) move lines, and its calls bring them back."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any, Final

import pytest
from tests.differential import real
from tests.e2e import planes
from tests.e2e.planes import bootstrap, document, go, is_bad, moved, shares, traffic, upstreams

from reachline.cli import bootstraps
from reachline.testing.center import RunningCenter, running_center
from reachline.testing.parts import free_port, is_open
from reachline.testing.wait import until
from reachline.wire.frame import Bye

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def envoy_binary() -> Path:
    return planes.binary()


def test_with_all_agents_stopped_hds_alone_degrades_a_line_and_heals_it(envoy_binary: Path, tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            upstreams() as ports,
            running_center(tmp_path, document(ports, "mode: fast\ncircuit_breaker: {cooldown_seconds: 1}")) as center,
        ):
            async with center.agent("one") as agent:
                await agent.send(Bye(reason="stopped"))
                await until(lambda: agent.ended, what="the agent's end")
            with real.running(envoy_binary, bootstrap(center, ports, tmp_path, "hds"), tmp_path):
                ports["a"].status = 503
                bad = await moved(center, "payments/a", is_bad, "the line that fails its checks loses weight")
                agents = (await center.json("/api/v1/agents"))["agents"]
                why = await center.json("/api/v1/explain/payments/a")
                others = [await center.line(f"payments/{name}") for name in "bc"]
                ports["a"].status = 200
                await moved(center, "payments/a", lambda row: row["breaker"] != "open", "the line is tried again")

            assert bad["breaker"] in {"closed", "open"}
            assert [(one["agent"], one["release"]) for one in agents] == [("envoy-1", "envoy 1.40.0 by HDS")]
            assert {vote["vantage"] for vote in why["votes"]} == {"envoy-1"}
            assert [row["health"] for row in others] == ["healthy", "healthy"]

    go(work())


LOOP: Final = """
preset: quick_recovery
window: {max_age: 3s}
judge: {tick: 500ms, heartbeat: 500ms}
patience: {lone_failed: 2}
probes: {tcp: off, http: {every: 500ms, path: /healthz}}
circuit_breaker:
  cooldown_seconds: 1
  half_open: {traffic_ratio: 0.2, min_window_seconds: 1, min_success_requests: 20}
  recovery: {step_ratios: [0.2, 0.5, 1.0], step_interval_seconds: 1}
clusters:
  payments:
    lines: {LINES}
    listen: 127.0.0.1:LISTEN
center: {grpc: "127.0.0.1:CENTER", http: "127.0.0.1:0", journal: JOURNAL, token: the-centers-token}
"""


def test_an_envoy_that_one_command_made_is_vantage_and_client_in_one_and_closes_the_loop(
    envoy_binary: Path, tmp_path: Path
) -> None:
    """No agent, no SDK: its probes open the line, its calls pass the trial and the ramp."""

    async def work() -> None:
        async with upstreams() as ports:
            listen, at = free_port(), free_port()
            lines = ", ".join(f'{name}: "http://127.0.0.1:{one.port}"' for name, one in ports.items())
            text = LOOP.replace("LINES", lines).replace("LISTEN", str(listen)).replace("CENTER", str(at))
            way = bootstraps.Way(node="envoy-1", center=f"127.0.0.1:{at}", token="the-centers-token")
            found = bootstraps.envoy(way, admin="127.0.0.1:1", hds=True, lrs=True, als=True)
            found["admin"]["address"]["socket_address"]["port_value"] = 0
            async with contextlib.AsyncExitStack() as stack:
                center = await stack.enter_async_context(running_center(tmp_path, text))
                center.client.headers["authorization"] = "Bearer the-centers-token"
                running = real.started(envoy_binary, found, tmp_path, is_live=False)
                await asyncio.to_thread(stack.enter_context, running)
                await until(lambda: is_open(listen), what="the listener that the center told")
                stack.enter_context(traffic(listen))
                await until(lambda: all_three(center), what="evidence by all three ways")
                ports["a"].status = 503
                await moved(center, "payments/a", lambda row: row["breaker"] == "open", "the line opens")
                await shares(ports, 20)  # on their way when it opened
                without = await shares(ports, 60)
                ports["a"].status = 200
                seen = []

                def is_back(row: dict[str, Any]) -> bool:
                    if not seen or seen[-1] != row["breaker"]:
                        seen.append(row["breaker"])
                    return bool(row["weight"] == 100)

                await moved(center, "payments/a", is_back, "the line is back at its full weight")
                again = await shares(ports, 90)
                rules = [row["rule"] for row in (await center.json("/api/v1/changes?line=payments/a"))["changes"]]

            assert without["a"] == 0
            assert min(again.values()) >= 15
            assert seen[-3:] == ["half_open", "ramp", "closed"]
            assert "breaker.window_passed" in rules
            assert "breaker.window_starved" not in rules

    go(work())


async def all_three(center: RunningCenter) -> bool:
    rows = {row["by"]: row for row in (await center.json("/api/v1/evidence"))["planes"]}
    return rows.keys() == {"hds", "lrs", "als"} and rows["als"]["counted"] > 0 and rows["hds"]["counted"] > 0
