"""From a document to a verdict: services asked in their own words by an agent, reported to a center, judged by the rules."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from tests.agent.peer import Center, agent, settings
from tests.net.test_kinds import datagrams, grpc_server

from reachline.core.rules import Rules
from reachline.core.zone import verdict
from reachline.doors import reach
from reachline.model import Kind, Locality, Reading, VantageId, Zone
from reachline.testing import parts
from reachline.testing.wait import until

DOCUMENT = """
clusters:
  c:
    lines:
      orders: "grpc://127.0.0.1:{grpc}/shop.v1.Orders"
      refunds: "grpc://127.0.0.1:{grpc}/shop.v1.Refunds"
      cache: "redis://:${{env:PW}}@127.0.0.1:{redis}"
      shut: "redis://127.0.0.1:{redis}"
      voice: "udp://127.0.0.1:{udp}"
    probes: {{tcp: off, grpc: 100ms, redis: 100ms, udp: {{every: 100ms, burst: 1}}}}
"""
KINDS = {"orders": Kind.GRPC, "refunds": Kind.GRPC, "cache": Kind.REDIS, "shut": Kind.REDIS, "voice": Kind.UDP}
JUDGED = {"orders": Zone.H, "refunds": Zone.F, "cache": Zone.H, "shut": Zone.F, "voice": Zone.H}


@pytest.mark.real
def test_services_are_judged_by_what_they_say(center: Center, tmp_path: Path) -> None:
    async def work(grpc: int, redis: int) -> None:
        async with datagrams(lambda data: [data]) as udp:
            text = DOCUMENT.format(grpc=grpc, redis=redis, udp=udp)
            document = reach.read(text, name="a", environ={"PW": "geheim"})
            plan = reach.plan(document, agent="v1", locality=Locality(), number=1)
            center.plan = msgspec.structs.replace(plan, heartbeat_ms=200)
            async with center, agent(settings(center)):
                await until(lambda: all(known(name).rounds == 3 for name in KINDS), what="three rounds of each")
                rules = reach.rules(document, "c")
                # Not at once: what is heard late, on a machine that is busy, is a slow line for a while.
                await until(lambda: zones(rules) == JUDGED, what="each to be judged by what it says")

    def known(name: str) -> Reading:
        reports = center.reports(f"c/{name}", KINDS[name])
        return reports[-1].reading if reports else Reading(KINDS[name])

    def zones(rules: Rules) -> dict[str, Zone]:
        return {name: verdict(VantageId("v1"), [known(name)], {}, rules).zone for name in KINDS}

    with grpc_server() as grpc, parts.redis(tmp_path, "--requirepass", "geheim") as redis:
        asyncio.run(work(grpc, redis.port))

    assert center.reports("c/refunds", Kind.GRPC)[-1].detail.error == "NOT_SERVING"
    assert center.reports("c/shut", Kind.REDIS)[-1].detail.error == "NOAUTH Authentication required."
