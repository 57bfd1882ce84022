"""ICMP on loopback, with what the machine allows: raw sockets as root, ping sockets else."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.descriptors import open_files

from reachline.model import Clock, Failure
from reachline.net import echo_socket
from reachline.testing import parts
from reachline.testing.wait import until

LACK = echo_socket.forbidden()
may_ping = pytest.mark.skipif(bool(LACK), reason=LACK)


@may_ping
def test_many_echoes_at_once_each_find_their_own_reply(lab, job):
    async def main():
        async with lab() as engine:
            return await engine.probe(*(job(f"icmp://127.0.0.{1 + number}", token=number) for number in range(50)))

    results = asyncio.run(main())

    for result in results:
        assert (result.failure, result.clock, result.sent, result.lost) == (None, Clock.RX_STAMP, 1, 0)
        assert 0 < result.rtt_us < 500_000


@may_ping
def test_ipv6_echoes_too(lab, job):
    if echo_socket.forbidden(6):
        pytest.skip(echo_socket.forbidden(6))

    async def main():
        async with lab() as engine:
            return await engine.one(job("icmp://[::1]", {"size": 1_000}))

    assert asyncio.run(main()).failure in {None, Failure.UNREACHABLE}


@may_ping
def test_a_large_echo_comes_back_whole(lab, job):
    async def main():
        async with lab() as engine:
            return await engine.one(job("icmp://127.0.0.1", {"size": 60_000}))

    assert asyncio.run(main()).failure is None


@may_ping
def test_one_socket_serves_all_lines_of_a_source(lab, job):
    async def main():
        async with lab() as engine:
            before = open_files()
            await engine.probe(*(job("icmp://127.0.0.1", token=number) for number in range(20)))
            await engine.one(job("icmp://127.0.0.1", source="127.0.0.5", token=99))
            return len(open_files() - before)

    assert asyncio.run(main()) == 2


@may_ping
def test_a_wall_clock_that_jumps_costs_the_stamp_not_the_truth(lab, job):
    """The stamps are the kernel's; the clock they are held against is stepped by an hour mid-way."""
    step = 0

    def wall():
        nonlocal step
        step += 3_600_000_000_000
        return time.time_ns() + step

    async def main():
        async with lab(wall=wall) as engine:
            return await engine.one(job("icmp://127.0.0.1")), engine.engine.counters()

    result, counters = asyncio.run(main())

    assert (result.failure, result.clock, result.late) == (None, Clock.APP, False)
    assert result.rtt_us is None or 0 <= result.rtt_us < 500_000
    assert counters.stepped >= 1


@pytest.mark.real
def test_a_silent_address_is_lost_and_an_absent_one_unreachable(lab, job):
    with parts.veth() as wire:

        async def main():
            async with lab() as engine:
                os.system(" ".join(wire.inside("sysctl", "-qw", "net.ipv4.icmp_echo_ignore_all=1")))
                absent = wire.far.rpartition(".")[0] + ".77"
                return await engine.probe(
                    job(f"icmp://{wire.far}", token=1, timeout=0.1, patience=0.1),
                    job(f"icmp://{absent}", token=2, timeout=2.0, patience=6.0),
                    job(f"tcp://{absent}:80", token=3, timeout=2.0, patience=6.0),
                    within=30,
                )

        silent, absent, absent_tcp = asyncio.run(main())

    assert (silent.failure, silent.late, silent.sent, silent.lost) == (Failure.TIMEOUT, True, 1, 1)
    assert (absent.failure, absent.note) == (Failure.UNREACHABLE, "no route to host")
    assert (absent.sent, absent.lost) == (1, 1)
    assert (absent_tcp.failure, absent_tcp.note) == (Failure.UNREACHABLE, "no route to host")


@pytest.mark.real
def test_after_a_standstill_of_the_machine_what_is_on_its_way_has_all_of_its_patience(lab, job, serve, say):
    """The clock jumps by a minute, as it does to who was not running."""
    stood = 60_000_000_000

    async def main(far: str, port: int):
        async with lab() as engine:
            for token, target in enumerate((f"icmp://{far}", f"http://127.0.0.1:{port}/")):
                engine.engine.start(job(target, token=token, timeout=20.0, patience=30.0), at=engine.engine.now())
            await until(lambda: engine.engine.counters().live == 2, what="both under way")
            told = []
            for times in (1, 1, 2, 2):
                engine.engine.ns = engine.engine.clocks.ns = lambda times=times: time.monotonic_ns() + times * stood
                engine.engine.turn()
                told.append((sorted(engine.overdue), sorted(result.token for result in engine.ended)))
            return told

    async def beside() -> list:
        async with serve(say(b"", wait=True)) as port:
            return await main(wire.far, port)

    with parts.veth() as wire:
        os.system(" ".join(wire.inside("sysctl", "-qw", "net.ipv4.icmp_echo_ignore_all=1")))
        told = asyncio.run(beside())

    assert told == [([0, 1], []), ([0, 1], []), ([0, 1], [0, 1]), ([0, 1], [0, 1])]


def test_without_permission_it_says_what_to_do():
    """In a child that gave its rights away."""
    if os.geteuid() != 0:
        pytest.skip("giving rights away needs root")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgid(65_534)
        os.setgroups([])
        os.setuid(65_534)
        os.write(writing, echo_socket.forbidden().encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as file:
        said = file.read()

    low, high = (int(part) for part in Path("/proc/sys/net/ipv4/ping_group_range").read_text().split())
    if low <= 65_534 <= high:
        assert said == ""
    else:
        assert said.startswith("no permission for ICMP: give CAP_NET_RAW")


PING = """
import asyncio, encodings.idna, os, sys
from reachline.model import Endpoint, Kind
from reachline.net.engine import Engine, Job
from reachline.talk import build

async def main():
    ended = asyncio.get_running_loop().create_future()
    engine = Engine(lambda *result: ended.set_result(result))
    asyncio.get_running_loop().add_reader(engine.fileno(), engine.turn)
    target = Endpoint(scheme="icmp", host=sys.argv[1], port=0, family=4)
    engine.start(Job(token=1, endpoint=target, probe=build(Kind.ICMP, target, {})), at=0.0)
    print((await asyncio.wait_for(ended, 30))[1:5])

open("/proc/sys/net/ipv4/ping_group_range", "w").write("0 2147483647")
os.setgid(65534); os.setgroups([]); os.setuid(65534)
asyncio.run(main())
"""


@pytest.mark.real
def test_without_root_the_kernels_ping_socket_serves(root):
    with parts.veth() as wire:
        command = wire.inside(sys.executable, "-W", "ignore", "-c", PING, wire.near)
        environ = os.environ | {"PYTHONPATH": str(root / "src")}
        said = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=30, check=False)

    assert said.returncode == 0, said.stderr
    assert said.stdout.startswith("(None, ")
    assert "Clock.RX_STAMP" in said.stdout
    assert "False" in said.stdout


def test_foreign_and_broken_packets_are_passed_over(lab, job):
    if os.geteuid() != 0:
        pytest.skip("raw sockets need root")

    async def main():
        async with lab() as engine:
            first = await engine.one(job("icmp://127.0.0.1"))
            with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as raw:
                for packet in (b"\0\0", b"\0\0\xff\xff\0\0\0\0", b"\0\0\xff\xff\0\0\0\0" + b"x" * 100):
                    raw.sendto(packet, ("127.0.0.1", 0))
            second = await engine.one(job("icmp://127.0.0.1", token=2))
            await until(lambda: engine.engine.counters().live == 0)
            return first, second

    assert [result.failure for result in asyncio.run(main())] == [None, None]
