"""The SDK against a real center: every promise of the plain JSON door, kept by one and relied on by the other."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import reachline
from reachline.client import Client, Cluster
from reachline.model import Gate, Health, Reading
from reachline.testing.center import FrameAgent, RunningCenter, dead, good, running_center
from reachline.testing.wait import until
from reachline.upstream.listing import Listed, terms

pytestmark = pytest.mark.e2e

DOCUMENT = """
preset: quick_recovery
judge: {tick: 500ms, heartbeat: 500ms}
patience: {lone_failed: 2}
circuit_breaker:
  cooldown_seconds: 1
  half_open: {min_window_seconds: 1, min_success_requests: 20}
  recovery: {step_interval_seconds: 1}
clusters:
  payments:
    policy: POLICY
    lines:
      a: {to: "tcp://10.0.0.1:443", role: ROLE_A}
      b: {to: "tcp://10.0.0.2:443", role: ROLE_B}
      c: {to: "tcp://10.0.0.3:443", role: ROLE_C}
      d: {to: "tcp://10.0.0.4:443", role: ROLE_C, drained: true}
"""

POLICIES = {
    "primary_backup": ("primary", "primary", "backup"),
    "ab_groups": ("traffic", "traffic", "reserve"),
    "[ab_groups, primary_backup]": ("[traffic, primary]", "[traffic, backup]", "[reserve, primary]"),
}


def document(policy: str = "weighted") -> str:
    """The document with this policy and the roles that go with it."""
    roles = POLICIES.get(policy)
    text = DOCUMENT.replace("POLICY", policy)
    for place, name in enumerate("ABC"):
        text = text.replace(f"role: ROLE_{name}", f"role: {roles[place]}" if roles else "weight: 100")
    return text


@asynccontextmanager
async def both(directory: Path, text: str = "", **more: Any) -> AsyncIterator[tuple[RunningCenter, Client]]:
    """A center and a client of it."""
    async with (
        running_center(directory, text or document()) as center,
        await reachline.connect(center.http, clusters=["payments"], **more) as client,
    ):
        yield center, client


def line(client: Client, name: str) -> Listed:
    return next(each for each in client.cluster("payments").lines() if each.line == f"payments/{name}")


async def report_until(agent: FrameAgent, readings: dict[str, Reading], reached: Callable[[], object]) -> None:
    """One heartbeat a tick until the client sees it."""

    async def seen() -> object:
        await agent.reported({f"payments/{name}": reading for name, reading in readings.items()})
        return reached()

    await until(seen, within=30, every=0.3)


WELL = {name: good() for name in "abc"}
SLOW = good()._replace(p95_us=270_000, jitter_us=210_000)


@pytest.mark.parametrize("policy", ["weighted", *POLICIES])
def test_the_client_redoes_every_policy_to_the_weights_that_the_center_publishes(tmp_path: Path, policy: str) -> None:
    async def run() -> None:
        async with both(tmp_path, document(policy)) as (center, client), center.agent() as agent:
            cluster = client.cluster("payments")
            assert isinstance(cluster, Cluster)
            assert list(cluster.published.policy) == policy.strip("[]").split(", ")
            assert terms(cluster.published).is_grouped

            await report_until(agent, WELL | {"a": SLOW}, lambda: line(client, "a").health is Health.DEGRADED)
            assert line(client, "a").faults
            assert terms(cluster.published).is_grouped

            await report_until(agent, WELL | {"a": dead()}, lambda: line(client, "a").breaker is Gate.OPEN)
            assert terms(cluster.published).is_grouped
            assert line(client, "a").weight == 0
            assert line(client, "d").is_drained
            picked = Counter(pick.line for pick in (cluster.pick() for _ in range(1_000)) if pick)
            assert set(picked) == {"payments/b", "payments/c"}

    asyncio.run(run())


def test_the_clients_calls_pass_the_trial_and_the_ramp(tmp_path: Path) -> None:
    async def run() -> None:
        async with both(tmp_path, service="checkout") as (center, client), center.agent() as agent:
            cluster = client.cluster("payments")
            await report_until(agent, WELL | {"a": dead()}, lambda: line(client, "a").breaker is Gate.OPEN)
            await report_until(agent, WELL, lambda: line(client, "a").breaker is Gate.HALF_OPEN)
            assert line(client, "a").window > 0
            seen: list[Gate] = []

            def called() -> bool:
                for _ in range(1_000):
                    with cluster.attempt():
                        pass
                seen.append(line(client, "a").breaker)
                return seen[-1] is Gate.CLOSED

            await report_until(agent, WELL, called)
            assert Gate.RAMP in seen
            assert client.stats().posts.refused == 0

    asyncio.run(run())


def test_a_failed_trial_opens_the_line_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with both(tmp_path, local_breaker=False) as (center, client), center.agent() as agent:
            cluster = client.cluster("payments")
            await report_until(agent, WELL | {"a": dead()}, lambda: line(client, "a").breaker is Gate.OPEN)
            await report_until(agent, WELL, lambda: line(client, "a").breaker is Gate.HALF_OPEN)

            def failed() -> bool:
                for _ in range(300):
                    with cluster.attempt() as call:
                        if call.line == "payments/a":
                            call.fail("reset")
                return line(client, "a").reason == "breaker.trial_failed"

            await report_until(agent, WELL, failed)
            assert line(client, "a").breaker is Gate.OPEN

    asyncio.run(run())


def test_breakers_of_clients_and_strange_clusters_are_told_apart_from_nonsense(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_center(tmp_path, document()) as center:
            names = ["payments", "no-such"]
            async with await reachline.connect(center.http, clusters=names, service="checkout") as client:
                cluster = client.cluster("payments")
                assert client.stats().clusters["no-such"].trouble == "unknown cluster"
                for _ in range(200):
                    with cluster.attempt() as call:
                        if call.line == "payments/a":
                            call.fail("refused")
                assert cluster.open_lines() == ("payments/a",)

                await until(lambda: client.stats().posts.confirmed == 200, within=30)
                posts = client.stats().posts
                assert (posts.refused, posts.unconfirmed, posts.dropped) == (0, 0, 0)

    asyncio.run(run())


def test_the_version_never_falls_when_the_center_starts_again(tmp_path: Path) -> None:
    async def run() -> None:
        cache = tmp_path / "lines.json"
        async with both(tmp_path, cache=cache) as (center, client), center.agent() as agent:
            await report_until(agent, WELL | {"a": dead()}, lambda: line(client, "a").breaker is Gate.OPEN)
            first = client.cluster("payments").version
        async with both(tmp_path, cache=cache) as (_, client):
            cluster = client.cluster("payments")
            await until(lambda: client.stats().clusters["payments"].source == "center", within=30)
            assert first is not None
            assert cluster.version is not None
            assert cluster.version > first
            assert line(client, "a").breaker is Gate.OPEN
            assert client.stats().clusters["payments"].refused_versions == 0

    asyncio.run(run())
