"""The kernel as a vantage: a program's own keep-alive traffic judges a line to which no probe is ever sent."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.e2e.world import World

from reachline.testing.impair import Box, Profile, impaired
from reachline.testing.parts import started
from reachline.testing.wait import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.real, pytest.mark.slow]

PORT = 8_443
SERVER = """
import asyncio, sys
made = 0
async def serve(reader, writer):
    global made
    made += 1
    print(made, flush=True)
    while data := await reader.read(4096):
        writer.write(data)
async def main():
    async with await asyncio.start_server(serve, sys.argv[1], int(sys.argv[2])):
        print(0, flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""
"""Echoes, and says how many connections were ever made to it, from 0 once it listens."""
BUSINESS = """
import asyncio, sys
async def keep_alive(host, port):
    reader, writer = await asyncio.open_connection(host, port)
    while True:
        writer.write(b"x" * 100)
        await reader.readexactly(100)
        await asyncio.sleep(0.01)
async def main():
    async with asyncio.TaskGroup() as tasks:
        for host in sys.argv[2:]:
            for _ in range(4):
                tasks.create_task(keep_alive(host, int(sys.argv[1])))
asyncio.run(main())
"""
"""Four keep-alive connections to each line, requests one after the other."""


class PassiveWorld(World):
    """Two lines behind a bad network, one agent, no probe of any kind but `passive`."""

    def __init__(self, directory: Path, box: Box) -> None:
        self.box = box
        super().__init__(directory, preset="quick_recovery", targets=(), agents=("edge-1",))

    def _document(self, preset: str) -> str:
        lines = {"calm": self.box.address(1), "lossy": self.box.address(2)}
        shown = "".join(f"      {name}: 'tcp://{address}:{PORT}'\n" for name, address in lines.items())
        return (
            f"preset: {preset}\njudge: {{tick: 1s, heartbeat: 1s}}\nclusters:\n  shop:\n    probes: {{tcp: off, passive: 200ms}}\n"
            f"    lines:\n{shown}agents:\n  edge-1: {{}}\n"
            f"center: {{grpc: '127.0.0.1:{self.grpc}', http: '127.0.0.1:{self.http}', journal: '{self.journal}'}}\n"
        )

    def is_settled(self) -> bool:
        return all(self.line(name).get("health") == "healthy" for name in ("calm", "lossy"))


@contextmanager
def behind(directory: Path, box: Box) -> Iterator[tuple[PassiveWorld, Path]]:
    """Server, business and agent running; what the server says of its connections."""
    said, business = directory / "server.log", (sys.executable, "-c", BUSINESS, str(PORT))
    server = box.inside(sys.executable, "-c", SERVER, "0.0.0.0", str(PORT))
    with started(server, log=said):
        eventually(lambda: said.read_text().split(), within=30, what="the server listens")
        with started((*business, box.address(1), box.address(2)), log=directory / "business.log"):
            eventually(lambda: "8" in said.read_text().split(), within=30, what="the business has connected")
            world = PassiveWorld(directory, box)
            try:
                world.start()
                yield world, said
            finally:
                for name in tuple(world.running):
                    world.kill(name)


def test_a_programs_lossy_keep_alive_traffic_degrades_its_line_and_no_probe_is_sent(tmp_path: Path) -> None:
    wire = Profile(delay=0.002)
    with impaired({1: wire, 2: wire}) as box, behind(tmp_path, box) as (world, said):
        eventually(world.is_settled, within=60, what="both lines healthy, by the business's traffic alone")
        box.change(2, Profile(delay=0.002, loss=0.03))

        eventually(lambda: world.line("lossy")["health"] == "degraded", within=60, what="the lossy line degraded")

        told = world.reachline("explain", "shop/lossy", "--center", world.center).stdout
        assert "business's own connections" in told
        assert world.line("calm")["health"] == "healthy"
        assert world.get("/api/v1/lines/shop/lossy")["readings"][0]["connections"]["count"] == 4
        assert max(map(int, said.read_text().split())) == 8
