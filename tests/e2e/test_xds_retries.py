"""A real Envoy that the center tells its routes: callers see no failure of a dead line, and the center hears of each attempt, once."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.differential.real import Door, started
from tests.e2e import planes
from tests.e2e.planes import Upstream, document, go, is_bad, upstreams

from reachline.cli.bootstraps import Way, envoy
from reachline.testing.center import RunningCenter, running_center
from reachline.testing.parts import free_port
from reachline.testing.wait import until

pytestmark = pytest.mark.real


class Followed:
    """Three services, a center that nobody but Envoy tells of them, and callers."""

    def __init__(self, center: RunningCenter, services: dict[str, Upstream], door: Door, admin: Door) -> None:
        self.center, self.services = center, services
        self._door, self._admin = door, admin
        self.statuses: Counter[int] = Counter()

    async def call(self, count: int) -> None:
        """One after the other."""

        def called() -> None:
            for _ in range(count):
                self.statuses[self._door.get("/")[0]] += 1

        await asyncio.to_thread(called)

    async def stats(self) -> dict[str, int]:
        """Envoy's figures of the cluster."""

        def asked() -> dict[str, int]:
            found = json.loads(self._admin.get("/stats?format=json&filter=^cluster\\.payments\\.upstream")[2])["stats"]
            return {each["name"].rpartition(".")[2]: each["value"] for each in found if "name" in each}

        return await asyncio.to_thread(asked)

    async def told(self, count: int) -> tuple[dict[str, Any], dict[str, float]]:
        """What Envoy's log said, and what it came to, once this many calls count."""
        row = await planes_counted(self.center, count)

        async def posted() -> dict[str, float] | None:
            found = {
                name: await self.center.metric(f'reachline_outcomes_total{{result="{name}"}}')
                for name in ("ok", "failed", "late", "errors")
            }
            return found if sum(found.values()) >= count else None

        return row, await until(posted, what="the calls to be evidence")


async def planes_counted(center: RunningCenter, count: int) -> dict[str, Any]:
    async def counted() -> dict[str, Any] | None:
        rows = (await center.json("/api/v1/evidence"))["planes"]
        return next((row for row in rows if row["by"] == "als" and row["counted"] >= count), None)

    return await until(counted, what=f"{count} attempts to be told")


@asynccontextmanager
async def followed(directory: Path, more: str = "") -> AsyncIterator[Followed]:
    """`more` is said of the listener."""
    binary, port = planes.binary(), free_port()
    async with AsyncExitStack() as stack:
        services = await stack.enter_async_context(upstreams())
        text = document(services, "mode: fast\nbusiness: {calls: 20}\n")
        # Nobody probes here, and the judge need not wait a minute to know.
        text = text.replace("heartbeat: 500ms}", "heartbeat: 500ms, blind: 1s}")
        center = await stack.enter_async_context(
            running_center(directory, f'{text}    listen: {{at: "127.0.0.1:{port}"{more}}}\n')
        )
        found = envoy(Way(node="envoy-1", center=center.grpc[0]), admin="127.0.0.1:1", als=True)
        found["admin"]["address"]["socket_address"]["port_value"] = 0
        admin = Door(await asyncio.to_thread(stack.enter_context, started(binary, found, directory)))
        door = Door(port)
        stack.callback(admin.close)
        stack.callback(door.close)
        yield Followed(center, services, door, admin)


def test_callers_see_no_failure_of_a_dead_line_and_its_refusals_alone_take_its_weight(tmp_path: Path) -> None:
    async def work() -> None:
        async with followed(tmp_path) as now:
            await now.call(30)
            await now.services["a"].die()

            async def is_gone() -> bool:
                return (await now.stats())["upstream_cx_active"] == 2

            await until(is_gone, what="Envoy to know that the connection is closed")

            async def is_out() -> dict[str, Any] | None:
                await now.call(10)
                row = await now.center.line("payments/a")
                return row if is_bad(row) else None

            await until(is_out, within=60, what="the dead line loses weight")
            stats = await now.stats()
            calls, refused = now.statuses.total(), stats["upstream_cx_connect_fail"]
            row, came_to = await now.told(calls + refused)
            why = await now.center.json("/api/v1/explain/payments/a")

            assert now.statuses == {200: calls}
            assert stats["upstream_rq_retry_success"] == refused > 0
            assert came_to == {"ok": calls, "failed": refused, "late": 0, "errors": 0}
            assert (row["counted"], row["told_better"], row["unknown"]) == (calls + refused, 0, 0)
            assert why["rule"].startswith("business.")
            assert [(await now.center.line(f"payments/{name}"))["weight"] for name in "bc"] == [100, 100]

    go(work())


def test_a_call_that_takes_too_long_is_late_once(tmp_path: Path) -> None:
    """The router's log does not say of an attempt that the whole call's time was over."""

    async def work() -> None:
        async with followed(tmp_path, ", timeout: 300ms") as now:
            now.services["a"].pause = 20
            await now.call(12)

            row, came_to = await now.told(12)

            assert now.statuses.keys() == {200, 504}
            assert came_to == {"ok": now.statuses[200], "failed": 0, "late": now.statuses[504], "errors": 0}
            assert (row["counted"], row["skipped"], row["told_better"]) == (12, now.statuses[504], 0)

    go(work())


def test_without_retries_callers_see_the_refusal(tmp_path: Path) -> None:
    async def work() -> None:
        async with followed(tmp_path, ", retries: off") as now:
            await now.services["a"].die()
            await now.call(3)

            assert now.statuses == {200: 2, 503: 1}

    go(work())
