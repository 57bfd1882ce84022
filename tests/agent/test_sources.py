"""A remote agent leaves from the addresses that the document gives it, unless its own options say others."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys

import pytest
from tests.agent.peer import Center, agent, line, plan_of, settings

from reachline.testing import parts
from reachline.testing.serving import serving
from reachline.testing.wait import until
from reachline.wire.frame import Plan


async def seen_from(center: Center, plan: Plan, **options: object) -> set[str]:
    """The addresses from which an agent comes to a target, once it came from two, or ten times."""
    came: list[str] = []

    async def peer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(writer.get_extra_info("peername")[0])

    async with serving(peer) as service:
        center.plan = plan_of(line("l", f"tcp://127.0.0.1:{service.port}"))
        center.plan = Plan(number=1, heartbeat_ms=200, lines=center.plan.lines, sources=plan.sources)
        async with center, agent(settings(center, **options)):
            await until(lambda: len(set(came)) >= 2 or len(came) >= 10)
    return set(came)


@pytest.mark.parametrize(
    ("planned", "own", "sources"),
    [
        (("127.0.0.2", "127.0.0.3"), (), {"127.0.0.2", "127.0.0.3"}),
        (("127.0.0.2", "127.0.0.3"), ("127.0.0.4",), {"127.0.0.4"}),
        (("127.0.0.2", "127.0.0.3"), ("route",), {"127.0.0.1"}),
        (("auto",), (), {"127.0.0.1"}),
        ((), (), {"127.0.0.1"}),
    ],
    ids=["the document's", "its own win", "the route by its own word", "auto on loopback", "nothing said"],
)
def test_probes_leave_from(center: Center, planned: tuple[str, ...], own: tuple[str, ...], sources: set[str]) -> None:
    assert asyncio.run(seen_from(center, Plan(number=1, sources=planned), sources=own)) == sources


@pytest.mark.real
def test_an_agent_finds_the_addresses_beside_the_routes_own_by_itself() -> None:
    """In a namespace whose loopback carries addresses of global scope: two of one network, one of another."""
    parts.require_namespaces()
    script = """
import asyncio, subprocess
from random import Random
from reachline.agent.prober import Prober
from reachline.testing.serving import serving
from reachline.testing.wait import until
from tests.agent.peer import line
for step in ("link set lo up", "addr add 10.1.0.1/24 dev lo", "addr add 10.1.0.2/24 dev lo", "addr add 10.9.0.1/24 dev lo"):
    subprocess.run(["ip", *step.split()], check=True)
async def main():
    came = []
    async def peer(_, writer):
        came.append(writer.get_extra_info("peername")[0])
    async with serving(peer, "10.1.0.1", 7), Prober(rng=Random(1), sources=("auto",)) as prober:
        prober.adopt([line("l", "tcp://10.1.0.1:7")])
        await until(lambda: len(came) >= 12)
    print(*sorted(set(came)))
asyncio.run(main())
"""
    said = subprocess.run(
        [parts.require("unshare"), "-n", sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert said.stdout.split() == ["10.1.0.1", "10.1.0.2"]


def test_descriptors_are_raised_at_the_start_as_far_as_they_may_and_said(
    center: Center, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "reachline.agent")

    async def work() -> None:
        async with center, agent(settings(center, attempts=50)):
            await until(lambda: center.hellos)

    asyncio.run(work())

    (event,) = [record for record in caplog.records if record.message == "descriptors_set"]
    assert event.now >= event.before  # type: ignore[attr-defined]
    assert event.attempts_at_once == 50  # type: ignore[attr-defined]
