"""The figures held against the wire: a capture on the interface the probes leave by."""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.measured import best_of

from reachline.model import Clock, Failure
from reachline.testing import impair, parts
from reachline.testing.wait import eventually

_NANO = 0xA1B23C4D
_ETHERNET, _RAW = 1, 101


def packets(file: Path):
    """(ns, IPv4 packet) of a pcap with nanoseconds, Ethernet or raw IP."""
    data = file.read_bytes()
    magic, _, _, _, _, _, link = struct.unpack_from("<IHHiIII", data)
    assert magic == _NANO
    skip = {_ETHERNET: 14, _RAW: 0}[link]
    at = 24
    while at + 16 <= len(data):
        seconds, nanos, size, _ = struct.unpack_from("<IIII", data, at)
        yield seconds * 1_000_000_000 + nanos, data[at + 16 + skip : at + 16 + size]
        at += 16 + size


def handshakes(file: Path) -> list[float]:
    """Microseconds from SYN to SYN-ACK, in the order of the SYNs."""
    begun: dict[object, int] = {}
    made: dict[object, int] = {}
    for at, packet in packets(file):
        tcp = packet[(packet[0] & 15) * 4 :]
        source, target = struct.unpack_from("!HH", tcp)
        flags = tcp[13] & 0x12
        if flags == 0x02:
            begun.setdefault(source, at)
        elif flags == 0x12 and target in begun:
            made.setdefault(target, at)
    return [(made[port] - at) / 1e3 for port, at in begun.items() if port in made]


def echoes(file: Path) -> list[float]:
    """Microseconds from echo request to reply, in the order of the requests."""
    begun: dict[object, int] = {}
    made: dict[object, int] = {}
    for at, packet in packets(file):
        icmp = packet[(packet[0] & 15) * 4 :]
        (begun if icmp[0] == 8 else made).setdefault(icmp[8:16], at)
    return [(made[token] - at) / 1e3 for token, at in begun.items() if token in made]


@contextlib.contextmanager
def captured(interface: str, expression: str, file: Path) -> Iterator[Path]:
    """tcpdump of headers alone: with whole packets its ring holds eight, and a burst is lost."""
    file.unlink(missing_ok=True)  # of an earlier measurement
    if os.geteuid() != 0:
        pytest.skip("capturing packets needs root")
    log = file.with_suffix(".log")
    options = ("--time-stamp-precision=nano", "--immediate-mode", "-U", "-n", "-s", "128", "-B", "8192")
    with parts.started((parts.require("tcpdump"), *options, "-i", interface, "-w", str(file), expression), log=log):
        eventually(lambda: "listening on" in log.read_text(errors="replace"), what="tcpdump to listen")
        yield file


def measured(lab, jobs, *, stall: float = 0.0):
    """Results of attempts every 10 ms, while the process is blocked for `stall` seconds out of each 0.2."""

    async def main():
        async with lab() as engine:
            begin = engine.engine.now() + 0.02
            for number, job in enumerate(jobs):
                engine.engine.start(job, at=begin + number * 0.01)

            async def ended():
                last = 0.0
                while len(engine.ended) < len(jobs):
                    if stall and engine.engine.now() - last > 0.2:
                        last = engine.engine.now()
                        time.sleep(stall)
                    await asyncio.sleep(0.002)

            await asyncio.wait_for(ended(), 60)
            return sorted(engine.ended, key=lambda result: result.token)

    return asyncio.run(main())


def errors(results, wire: list[float]) -> list[float]:
    """How far each RTT is from the wire's, in microseconds."""
    assert len(results) == len(wire)
    return [abs(result.rtt_us - seen) for result, seen in zip(results, wire, strict=True)]


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[int(len(values) * share)]


@pytest.fixture
def wire():
    with parts.veth() as made:
        yield made


@pytest.fixture
def target(wire):
    """A listener in the far namespace; its port."""
    script = "import socket,sys,time; s=socket.create_server(('0.0.0.0', 7), backlog=1024); time.sleep(300)"
    with parts.started(wire.inside(sys.executable, "-c", script), log=Path("/dev/null")):
        eventually(lambda: parts.is_open(7, wire.far), what="the listener")
        yield 7


@pytest.mark.real
@pytest.mark.alone
@pytest.mark.parametrize(("stall", "bound_us"), [(0.0, 100.0), (0.04, 300.0)])
def test_a_connects_rtt_is_the_wires(lab, job, wire, target, tmp_path, stall, bound_us):
    jobs = [job(f"tcp://{wire.far}:{target}", token=number) for number in range(100)]

    def measure():
        with captured(wire.near_name, f"tcp port {target}", tmp_path / "wire.pcap") as file:
            results = measured(lab, jobs, stall=stall)
            captured_all(file, handshakes, len(jobs))
        off = errors(results, handshakes(file))

        assert {result.clock for result in results} == {Clock.TCP_INFO}
        assert {result.failure for result in results} == {None}
        hold("TCP", stall, off, bound_us)

    best_of(3, measure)


@pytest.mark.real
@pytest.mark.alone
@pytest.mark.parametrize(("stall", "bound_us"), [(0.0, 100.0), (0.04, 300.0)])
def test_an_echos_rtt_is_the_wires(lab, job, wire, tmp_path, stall, bound_us):
    jobs = [job(f"icmp://{wire.far}", token=number) for number in range(100)]

    def measure():
        with captured(wire.near_name, "icmp", tmp_path / "wire.pcap") as file:
            results = measured(lab, jobs, stall=stall)
            captured_all(file, echoes, len(jobs))
        off = errors(results, echoes(file))

        assert {result.clock for result in results} == {Clock.RX_STAMP}
        hold("ICMP", stall, off, bound_us)

    best_of(3, measure)


def captured_all(file: Path, read, count: int) -> None:
    eventually(lambda: len(read(file)) >= count, what="tcpdump to have written all")


def hold(kind: str, stall: float, off: list[float], bound_us: float, half_us: float = 50.0) -> None:
    """Nineteen in twenty are within the bound, half of them within `half_us`."""
    said = f"p50 {statistics.median(off):.1f} us, p95 {quantile(off, 0.95):.1f}, max {max(off):.1f}"
    print(f"{kind} stall {stall}: error {said}")
    assert quantile(off, 0.95) <= bound_us, said
    assert statistics.median(off) <= half_us, said


@pytest.fixture
def box():
    with impair.impaired({}, default=impair.Profile(delay=0.01)) as made:
        script = "import socket,time; s=socket.create_server(('0.0.0.0', 7), backlog=1024); time.sleep(300)"
        with parts.started(made.inside(sys.executable, "-c", script), log=Path("/dev/null")):
            eventually(lambda: parts.is_open(7, made.address(1)), what="the listener")
            yield made


@pytest.mark.real
@pytest.mark.alone
def test_on_a_long_path_a_stall_of_ours_does_not_lengthen_it(lab, job, box, tmp_path):
    jobs = [job(f"tcp://{box.address(2)}:7", token=number) for number in range(100)]

    def measure():
        with captured(box.device, "tcp port 7", tmp_path / "wire.pcap") as file:
            results = measured(lab, jobs, stall=0.04)
            captured_all(file, handshakes, len(jobs))

        assert min(result.rtt_us for result in results) >= 20_000
        hold("TCP 20 ms", 0.04, errors(results, handshakes(file)), 300.0, half_us=300.0)

    best_of(3, measure)


@pytest.mark.real
@pytest.mark.alone
def test_a_lost_syn_is_told_as_loss_and_leaves_no_rtt(lab, job, box):
    """Each way loses a tenth: a handshake that went through at the second try looks well to everybody else."""
    box.change(3, impair.Profile(delay=0.01, loss=0.1))
    jobs = [job(f"tcp://{box.address(3)}:7", token=number, timeout=0.6, patience=4.0) for number in range(100)]

    results = measured(lab, jobs)

    unhurt = [result for result in results if not result.lost]
    hurt = [result for result in results if result.lost]
    assert 5 <= len(hurt) <= 40, "19 % are expected"
    assert [result for result in unhurt if result.rtt_us is None or result.late or result.sent != 1] == []
    assert [result for result in hurt if result.rtt_us is not None or not result.late or result.sent < 2] == []


@pytest.mark.real
@pytest.mark.alone
def test_a_black_hole_is_all_loss(lab, job, box):
    box.change(4, impair.Profile(hole=True))
    jobs = [
        job(f"tcp://{box.address(4)}:7", token=1, timeout=0.1, patience=1.3),
        job(f"icmp://{box.address(4)}", token=2, timeout=0.1, patience=0.1),
        job(f"dns://{box.address(4)}/a.test", token=3, timeout=0.1, patience=0.1),
    ]

    tcp, icmp, dns = measured(lab, jobs)

    assert {tcp.failure, icmp.failure, dns.failure} == {Failure.TIMEOUT}
    assert (tcp.sent, tcp.lost) == (2, 2), "the SYN and its repetition after a second"
    assert (icmp.sent, icmp.lost, dns.sent, dns.lost) == (1, 1, 1, 1)
