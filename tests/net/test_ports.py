"""From which port a connect leaves, and what becomes known of it where nobody answers."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from dataclasses import replace

import pytest

from reachline.model import Failure
from reachline.net import budget
from reachline.net.attempt import EARLY
from reachline.testing import parts
from reachline.testing.wait import until


def free_port() -> socket.socket:
    """A socket that keeps a port for itself, until it is closed."""
    keeper = socket.socket()
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keeper.bind(("127.0.0.1", 0))
    return keeper


@pytest.fixture
def peers(serve):
    """(the ports that connects came from, the server)."""
    ports: list[int] = []

    async def peer(reader, writer):
        ports.append(writer.get_extra_info("peername")[1])

    return ports, serve(peer)


def test_a_port_of_the_kernels_choice_is_even_at_connect_and_odd_at_bind(lab, job, peers):
    ports, serving = peers

    async def main():
        async with serving as port, lab() as engine:
            late = job(f"tcp://127.0.0.1:{port}")
            for again in (late, replace(late, port=EARLY), late, replace(late, port=EARLY, source="127.0.0.1")):
                assert (await engine.one(again)).failure is None
            await until(lambda: len(ports) == 4)

    asyncio.run(main())

    assert [port % 2 for port in ports] == [0, 1, 0, 1]


def test_a_port_that_is_asked_for_is_the_one_it_leaves_from_again_and_again(lab, job, peers):
    ports, serving = peers

    async def main():
        async with serving as port, lab() as engine:
            with free_port() as keeper:
                wanted = keeper.getsockname()[1]
                again = job(f"tcp://127.0.0.1:{port}", port=wanted, reset=True)
                results = [await engine.one(again) for _ in range(3)]
            await until(lambda: len(ports) == 3)
            return wanted, results

    wanted, results = asyncio.run(main())

    assert [result.failure for result in results] == [None] * 3
    assert ports == [wanted] * 3


def test_a_port_in_use_is_our_fault_and_sends_nothing(lab, job, serve, say):
    async def main():
        async with serve(say(b"")) as port, lab() as engine:
            with socket.create_server(("127.0.0.1", 0)) as other:
                return await engine.one(job(f"tcp://127.0.0.1:{port}", port=other.getsockname()[1]))

    result = asyncio.run(main())

    assert (result.failure, result.sent, result.rtt_us) == (Failure.AGENT, 0, None)


def early_connects(
    targets: list[str], low: int, high: int, *, held: tuple[int, ...] = ()
) -> tuple[list[str], list[int]]:
    """(failures, ports) of early connects to these targets in turn, where there are few ports and none is free again for a minute:
    with timestamps a port that is named has its target again at once.

    Others listen at those that are `held`, and are reached all the time.
    """
    parts.require_namespaces()
    script = """
import asyncio, json, pathlib, socket, subprocess, sys
from reachline.net.attempt import EARLY
from tests.net.conftest import Lab, make_job
asked = json.loads(sys.argv[1])
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
for name, value in {"ip_local_port_range": asked["range"], "tcp_tw_reuse": "0", "tcp_timestamps": "0"}.items():
    pathlib.Path("/proc/sys/net/ipv4", name).write_text(value)
def leave(port):
    sock = socket.socket()
    sock.bind(("127.0.0.9", port))
    return sock
async def main():
    others = [socket.create_server(("127.0.0.1", port)) for port in asked["held"]]
    with socket.create_server(("0.0.0.0", 39999)) as server:
        async with Lab() as lab:
            jobs = [make_job(f"tcp://{host}:39999", port=EARLY) for host in asked["targets"]]
            failures = [(await lab.one(job)).failure for job in jobs]
        ports = [server.accept()[1][1] for failure in failures if not failure]
    for number, other in enumerate(others):
        with leave(39000 + number) as client:
            client.connect(other.getsockname())
            assert other.accept()[1] == client.getsockname()
    return [failure.name if failure else "ok" for failure in failures], ports
print(json.dumps(asyncio.run(main())))
"""
    asked = json.dumps({"targets": targets, "range": f"{low} {high}", "held": held})
    command = [parts.require("unshare"), "-n", sys.executable, "-c", script, asked]
    failures, ports = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return failures, ports


@pytest.mark.real
def test_a_port_chosen_at_bind_that_is_gone_toward_the_target_leaves_it_to_connect():
    """Of eight ports four are odd, and three of those ours: once they wait out their minute, the even ones serve."""
    failures, ports = early_connects(["127.0.0.1"] * 6, 40_000, 40_007)

    assert failures == ["ok"] * 6
    assert len(set(ports)) == 6


@pytest.mark.real
def test_ports_chosen_at_bind_serve_any_number_of_targets():
    """A port that waits out its minute toward one target is free toward all others; the kernel's own choice would not have it."""
    failures, ports = early_connects([f"127.0.0.{number}" for number in range(1, 25)], 40_000, 40_007)

    assert failures == ["ok"] * 24
    assert [port % 2 for port in ports] == [1] * 24


@pytest.mark.real
def test_ports_chosen_at_bind_last_as_long_as_connections_are_closed_by_fin():
    """Up to `budget.FULL` of all ports wait out their minute toward one target, half of them early ones."""
    early = round(budget.FULL * 40 / 2)

    failures, ports = early_connects(["127.0.0.1"] * early, 40_000, 40_039)

    assert failures == ["ok"] * early
    assert [port % 2 for port in ports] == [1] * early


@pytest.mark.real
def test_ports_that_others_listen_at_are_left_to_them():
    some = early_connects([f"127.0.0.{number}" for number in range(1, 9)], 40_000, 40_007, held=(40_001, 40_005))
    all_ = early_connects(
        [f"127.0.0.{number}" for number in range(1, 5)], 40_000, 40_007, held=(40_001, 40_003, 40_005, 40_007)
    )

    assert some[0] == ["ok"] * 8
    assert set(some[1]) <= {40_003, 40_007}
    assert all_[0] == ["ok"] * 4
    assert [port % 2 for port in all_[1]] == [0] * 4


def test_the_port_of_a_connect_that_nobody_answered_is_told(lab, job):
    told: list[tuple[int, int]] = []

    async def main():
        # A listener whose queue is full drops further SYNs, as a dead path does.
        with socket.create_server(("127.0.0.1", 0), backlog=0) as server, free_port() as keeper:
            target = f"tcp://127.0.0.1:{server.getsockname()[1]}"
            wanted = keeper.getsockname()[1]
            with socket.create_connection(server.getsockname()):
                async with lab(silent=lambda job, port: told.append((job.token, port))) as engine:
                    results = await engine.probe(
                        job(target, port=wanted, timeout=0.1, patience=0.0),
                        job(target, token=2, timeout=0.1, patience=0.0),
                    )
                    return wanted, results

    wanted, results = asyncio.run(main())

    assert [result.failure for result in results] == [Failure.TIMEOUT] * 2
    by_token = dict(told)
    assert len(told) == 2
    assert by_token[1] == wanted
    assert by_token[2] not in (0, wanted)


def test_jobs_of_one_token_each_keep_their_route(lab, job, peers):
    _, serving = peers

    async def main():
        async with serving as port, lab() as engine:
            jobs = [job(f"tcp://localhost:{port}", source=f"127.0.0.{number}") for number in (1, 2, 3)]
            for each in jobs:
                await engine.one(each)
            return [engine.engine.address(each) for each in jobs]

    assert asyncio.run(main()) == ["127.0.0.1"] * 3
