"""The machine itself gone bad: names that do not exist, no descriptors left, a clock that steps, an interface that vanishes."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.bad.peers import silent
from tests.bad.room import GROWTH, held, settled, undisturbed
from tests.net.conftest import Lab, make_job, serving

from reachline.model import Clock, Failure
from reachline.net.resolve import Resolver
from reachline.testing import parts
from reachline.testing.far import serving as far_serving
from reachline.testing.wait import until

NAMES = 1_000
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def test_a_thousand_names_that_do_not_exist_cost_a_good_line_nothing() -> None:
    """Two rounds of them: none is kept waiting by another, and no lookup or thread is left."""
    asked: list[str] = []

    def lookup(host: str, family: int) -> tuple[str, ...]:
        asked.append(host)
        if host == "good.test":
            return ("127.0.0.1",)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async def main():
        async with serving(silent) as port, Lab(resolver=Resolver(lookup=lookup)) as engine:
            bad = [make_job(f"tcp://no-{number}.test:443", token=number) for number in range(NAMES)]
            good = [make_job(f"tcp://good.test:{port}", token=NAMES + number) for number in range(50)]
            await engine.probe(*bad, *good, within=60)
            engine.ended.clear()
            before = held()
            results = await engine.probe(*bad, *good, within=60)
            engine.ended.clear()
            return results, before, await settled(before), engine.engine.counters()

    results, before, after, counters = asyncio.run(main())

    lost, well = results[:NAMES], results[NAMES:]
    assert {(result.failure, result.note, result.sent) for result in lost} == {
        (Failure.RESOLVE, "name does not resolve", 0)
    }
    undisturbed(well, 50)
    assert counters.live == 0
    assert after.files <= before.files
    assert after.memory - before.memory < GROWTH
    assert len(asked) <= 2 * (NAMES + 1), "one lookup a name, however many ask; a failure is kept for seconds"
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("resolve")]


EXHAUSTED = """
import asyncio, json, os, resource, socket
from reachline.testing.wait import until
from tests.net.conftest import Lab, make_job

async def main():
    # The kernel accepts for it: a server of our own would need descriptors too.
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as server:
        await probe(server.getsockname()[1])

async def probe(port):
    async with Lab(limit=500) as engine:
        stuck = [make_job(f"http://127.0.0.1:{port}/", token=n, timeout=0.3, patience=0.3) for n in range(300)]
        before = len(os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (before + 40, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        results = await engine.probe(*stuck, within=30)
        await until(lambda: len(os.listdir("/proc/self/fd")) <= before, what="descriptors to be free again")
        good = await engine.one(make_job(f"tcp://127.0.0.1:{port}", token=999))
        counts = {}
        for result in results:
            key = f"{result.failure.name if result.failure else 'OK'}: {result.note}"
            counts[key] = counts.get(key, 0) + 1
        lost = sum(r.lost for r in results if r.failure and r.failure.name == "AGENT")
        print(json.dumps([counts, lost, good.failure and good.failure.name]))

asyncio.run(main())
"""


def test_descriptors_that_run_out_are_our_fault_and_come_back(root: Path) -> None:
    """Of a process that has forty left and three hundred silent targets. The good line beside them is probed once they are back."""
    done = subprocess.run(
        [sys.executable, "-c", EXHAUSTED], cwd=root, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.stderr == ""
    counts, lost, good = json.loads(done.stdout)

    assert counts["AGENT: too many open files in this process"] > 200
    assert set(counts) <= {"AGENT: too many open files in this process", "TIMEOUT: no answer within the time"}
    assert lost == 0, "what was not sent is not lost"
    assert good is None


@pytest.mark.parametrize("step_s", [-3_600, 3_600, 0.05], ids=["back", "ahead", "a little"])
def test_a_clock_that_steps_moves_no_round_trip(step_s: float) -> None:
    """The wall clock is wrong until every question is out, and steps to what the kernel stamps by before an answer is read."""
    offset = 0

    def wall() -> int:
        return time.time_ns() + offset

    async def main():
        nonlocal offset
        arrived: list[bytes] = []
        told = asyncio.Event()

        async def patient(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            arrived.append(await reader.read(4096))
            await told.wait()
            writer.write(OK)
            await writer.drain()

        async with serving(patient) as http, serving(silent) as tcp, Lab(wall=wall) as engine:
            targets = [f"http://127.0.0.1:{http}/", f"tcp://127.0.0.1:{tcp}"] * 10
            jobs = [make_job(target, token=token) for token, target in enumerate(targets)]
            offset = -round(step_s * 1e9)
            for job in jobs:
                engine.engine.start(job, at=engine.engine.now() - 1)
            await until(lambda: len(arrived) == 10, every=0.001, what="all questions")
            offset = 0
            told.set()
            await until(lambda: len(engine.ended) == len(jobs), every=0.001, what="results across the step")
            across = sorted(engine.ended, key=lambda result: result.token)
            return across, engine.engine.counters().stepped, await engine.probe(*jobs)

    across, stepped, after = asyncio.run(main())

    for results in (across, after):
        assert [result for result in results if result.failure is not None or result.late] == []
        assert all(0 <= result.rtt_us < 1_000_000 for result in results if result.rtt_us is not None)
        assert {result.clock for result in results[1::2]} == {Clock.TCP_INFO}, "no step reaches the kernel's own figure"
    assert stepped >= 10, "the stamps of the answers to HTTP were not believed"


@pytest.mark.real
def test_an_interface_that_vanishes_is_our_fault_and_its_lines_alone(tmp_path: Path) -> None:
    """Deleted while probes go through it, and the same lines probed on: no loss is invented, nothing is left open."""
    with parts.veth() as wire, far_serving(wire.inside, "accept:7", directory=tmp_path):

        async def main():
            async with serving(silent) as port, Lab() as engine:
                ways = [{"interface": wire.near_name}, {"source": wire.near}, {}]
                lines = [
                    make_job(f"{kind}://{wire.far}{end}", token=3 * at + number, timeout=0.2, patience=0.1, **way)
                    for at, way in enumerate(ways)
                    for number, (kind, end) in enumerate([("tcp", ":7"), ("icmp", ""), ("dns", "/a.test")])
                ]
                good = [make_job(f"tcp://127.0.0.1:{port}", token=100 + number) for number in range(20)]
                alive = await engine.probe(*lines, *good)
                before = held()
                for job in lines:
                    engine.engine.start(job, at=engine.engine.now())
                engine.engine.turn()
                subprocess.run(["ip", "link", "del", wire.near_name], check=True)
                await until(lambda: engine.engine.counters()[-2:] == (0, 0), what="what was under way to end")
                gone = [await engine.probe(*lines, *good) for _ in range(3)]
                engine.ended.clear()
                return alive, gone[1:], before, await settled(before)

        alive, gone, before, after = asyncio.run(main())

    assert [result.failure for result in alive if result.token < 9 and result.token % 3 != 2] == [None] * 6
    for results in gone:
        bound = results[:6]
        assert {result.failure for result in bound} == {Failure.AGENT}
        assert [result for result in bound if result.sent or result.lost] == [], "nothing left"
        assert {result.note for result in bound[:3]} == {"no such interface"}
        undisturbed(results[9:], 20)
    assert after.files <= before.files
