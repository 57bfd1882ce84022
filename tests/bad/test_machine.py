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
from tests.bad.exhausted import GOOD, OK
from tests.bad.peers import silent
from tests.bad.room import GROWTH, held, settled, undisturbed
from tests.net.conftest import Ended, Lab, make_job, serving

from reachline.model import Failure
from reachline.net import echo_socket
from reachline.net.resolve import Resolver
from reachline.testing import parts
from reachline.testing.far import serving as far_serving
from reachline.testing.wait import until

NAMES = 1_000


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


def test_descriptors_that_run_out_are_our_fault_and_come_back(root: Path) -> None:
    """Of a process that has forty left and three hundred silent targets, beside a good line. Whatever needs no descriptor, or has
    one, goes on as if nothing were; what gets none has sent nothing, and is no loss.
    """
    command = [sys.executable, "-m", "tests.bad.exhausted"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=100, check=False)
    assert done.stderr == ""
    found, left, grown = json.loads(done.stdout)

    none_left = ["AGENT", "too many open files in this process", "APP", False, 0, 0]
    assert found["stuck"].count(none_left) > 200
    assert {words[0] for words in found["stuck"] if words != none_left} == {"TIMEOUT"}
    assert found["unsent"] == [none_left] * GOOD
    assert found["answered"] == [[None, "", "RX_STAMP", False, 1, 0]] * GOOD
    if not echo_socket.forbidden():
        assert found["pings"] == [[None, "", "RX_STAMP", False, 1, 0]] * GOOD
    for part in ("beside", "later"):
        assert found[part] == [[None, "", "TCP_INFO", False, 1, 0]] * GOOD
    assert left == []
    assert grown < GROWTH


@pytest.mark.parametrize("step_s", [-3_600, 3_600, 0.05], ids=["back", "ahead", "a little"])
def test_a_clock_that_steps_moves_no_round_trip(step_s: float) -> None:
    """The wall clock is wrong until every question is out, and steps to what the kernel stamps by before an answer is read. A good
    line is probed before, while it is wrong, across the step and after.
    """
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
            jobs = [make_job(f"http://127.0.0.1:{http}/", token=token) for token in range(10)]
            good = [make_job(f"tcp://127.0.0.1:{tcp}", token=10 + token) for token in range(GOOD)]

            async def across() -> list[Ended]:
                nonlocal offset
                arrived.clear()
                told.clear()
                engine.ended.clear()
                offset = -round(step_s * 1e9)
                for job in jobs:
                    engine.engine.start(job, at=engine.engine.now() - 1)
                await until(lambda: len(arrived) == 10, every=0.001, what="all questions")
                wrong = await engine.probe(*good)
                for job in good:
                    engine.engine.start(job, at=engine.engine.now() - 1)
                offset = 0
                told.set()
                await until(lambda: len(engine.ended) == 10 + 2 * GOOD, every=0.001, what="results across the step")
                undisturbed(wrong, GOOD)
                return sorted(engine.ended, key=lambda result: result.token)

            await across()  # what is made once has been made
            engine.ended.clear()
            before, stepped = held(), engine.engine.counters().stepped
            results = await across()
            stepped = engine.engine.counters().stepped - stepped
            calm = await engine.probe(*jobs, *good)
            engine.ended.clear()
            return results, stepped, calm, before, await settled(before)

    results, stepped, calm, before, after = asyncio.run(main())

    for ended in (results, calm):
        assert [result for result in ended if result.failure is not None or result.late] == []
        assert all(0 <= result.rtt_us < 1_000_000 for result in ended if result.rtt_us is not None)
        undisturbed([result for result in ended if result.token >= 10], len(ended) - 10)
    assert stepped >= 10, "the stamps of the answers to HTTP were not believed"
    assert after.files <= before.files
    assert after.memory - before.memory < GROWTH


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
