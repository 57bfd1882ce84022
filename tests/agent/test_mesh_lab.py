"""The mesh through a bad network in both directions, with real sockets and a clock two minutes ahead at the other end.

    RUNS=20 .venv/bin/pytest -n 0 tests/agent/test_mesh_lab.py      # every fault at twenty addresses, 2 % of loss; two minutes

Each address is one run: its own agent at the far end, its own luck. All begin calm and get their fault at one moment. Fewer runs
lose 10 %, which takes fewer probes to be sure of.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager

import pytest

from reachline.agent.mesh import MeshProber
from reachline.core.direction import Way
from reachline.testing.impair import Box, Profile, Ways, impaired
from reachline.testing.wait import until
from reachline.wire import mesh
from reachline.wire.frame import Mesh, MeshReport, Peer

pytestmark = [pytest.mark.real, pytest.mark.slow]

RUNS = int(os.environ.get("RUNS", "1"))
LOSS = 0.02 if RUNS >= 20 else 0.1
SECRET = b"s" * 32
CALM = Profile(delay=0.010, jitter=0.001)
FAULTS = {
    "loss forward": (
        Ways(forward=Profile(delay=0.010, jitter=0.001, loss=LOSS), reverse=CALM),
        (Way.FORWARD, Way.NEITHER),
    ),
    "loss reverse": (
        Ways(forward=CALM, reverse=Profile(delay=0.010, jitter=0.001, loss=LOSS)),
        (Way.REVERSE, Way.NEITHER),
    ),
    "90 ms forward": (Ways(forward=Profile(delay=0.100, jitter=0.001), reverse=CALM), (Way.NEITHER, Way.FORWARD)),
    "90 ms reverse": (Ways(forward=CALM, reverse=Profile(delay=0.100, jitter=0.001)), (Way.NEITHER, Way.REVERSE)),
}
ADDRESSES = [(number, name) for number, name in enumerate([name for name in FAULTS for _ in range(RUNS)], 1)]
GROUP = 10
"""Addresses of one prober, which sends a thousand probes a second at most…"""
EVERY = 10 if len(ADDRESSES) <= GROUP else 60
"""…so that many runs are slower ones. ms."""
FAR = """
import asyncio, sys, time
from reachline.net.responder import Responder
from reachline.wire.mesh import key_of
import socket
async def main(count):
    loop = asyncio.get_running_loop()
    for number in range(1, count + 1):
        there = Responder(socket.AF_INET, ("0.0.0.0", 7000 + number), clock=lambda: time.monotonic_ns() + 120 * 10**9)
        there.adopt(key_of(b"s" * 32, f"b{number}"))
        loop.add_reader(there.fileno(), there.ready)
    print("ready", flush=True)
    await asyncio.Event().wait()
asyncio.run(main(int(sys.argv[1])))
"""


@contextmanager
def far_agents(box: Box) -> Iterator[None]:
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = box.inside(sys.executable, "-c", FAR, str(len(ADDRESSES)))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
            yield
        finally:
            process.kill()


def told(probers: list[MeshProber]) -> dict[int, MeshReport]:
    return {int(report.peer[1:]): report for prober in probers for report in prober.reports()}


@pytest.mark.timeout(400)
def test_the_way_is_named_right_at_every_address_and_losses_are_those_that_the_network_made() -> None:
    async def work(box: Box) -> None:
        async with AsyncExitStack() as stack, asyncio.timeout(390):
            groups = [ADDRESSES[at : at + GROUP] for at in range(0, len(ADDRESSES), GROUP)]
            probers = [
                await stack.enter_async_context(MeshProber(f"a{at}", sources=(box.near,), least_ms=250))
                for at in range(len(groups))
            ]
            for at, (prober, group) in enumerate(zip(probers, groups, strict=True)):
                prober.adopt(
                    Mesh(key=b"k" * 32, interval_ms=EVERY, peers=tuple(peer(box, at, number) for number, _ in group))
                )
            await until(
                lambda: sum(one.forward_rise_us is not None for one in told(probers).values()) == len(ADDRESSES),
                within=90,
                every=0.2,
                what="a baseline everywhere",
            )
            for number, name in ADDRESSES:
                box.change(number, FAULTS[name][0])
            wrong = {}
            missing = dict(ADDRESSES)

            def all_named() -> bool:
                for number, name in ADDRESSES:
                    found = told(probers)[number]
                    said = (Way(found.loss), Way(found.delay))
                    if said == FAULTS[name][1]:
                        missing.pop(number, None)
                    elif said != (Way.NEITHER, Way.NEITHER):
                        wrong[number] = said
                assert not missing, f"{len(missing)} of {len(ADDRESSES)}: {[told(probers)[one] for one in missing][:3]}"
                return True

            await until(all_named, within=200, every=0.2, what="every fault to be named")
            assert not wrong
            for number, name in ADDRESSES:
                found, true = told(probers)[number], box.counted(number)
                assert found.forward_lost <= true.forward.dropped <= found.forward_lost + 10, (name, found, true)
                assert found.reverse_lost <= true.reverse.dropped <= found.reverse_lost + 10, (name, found, true)
                assert found.rtt_us is not None
                assert abs(found.rtt_us - (110_000 if "ms" in name else 20_000)) < 40_000

    with impaired({}, default=CALM) as box, far_agents(box):
        asyncio.run(work(box))


def peer(box: Box, at: int, number: int) -> Peer:
    key = mesh.pair_key(mesh.key_of(SECRET, f"b{number}"), mesh.identity(f"a{at}"))
    return Peer(agent=f"b{number}", address=f"{box.address(number)}:{7000 + number}", key=key)
