"""How true the round trips are: probes through the impairment box, held against the kernel's stamps of their packets.

The box delays each packet by a time of its own; a capture on the device that the probes leave by has the truth. Prober on one
core; box, capture and target on the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import struct
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final
from unittest import SkipTest

import msgspec
from benchmarks.probing.asking import Target
from benchmarks.probing.ours import job, nested, quantile
from benchmarks.probing.process import CellError, cell, on_core
from benchmarks.probing.results import Offset
from benchmarks.probing.target import served

from reachline.model import Clock, Failure, Seconds
from reachline.net.engine import Phases
from reachline.testing import impair, parts
from reachline.testing.wait import eventually

__all__ = ["CASES", "Case", "Wanted", "compared", "offsets", "probed", "trips"]

LINES: Final = 200
"""Addresses: at 3 000 probes a second each has one every 67 ms, so that no two of one address are under way at once."""
_PATH: Final = impair.Profile(delay=0.010, jitter=0.002)
"""20 ms there and back, moved by up to 4: a constant could be guessed."""
STALL: Final[Seconds] = 0.040
_SNAP: Final = "128"
"""Bytes of each packet: headers alone, so that the capture's ring holds a burst."""
_RING_KB: Final = "8192"
_FILTERS: Final = {"tcp": "tcp[tcpflags] & tcp-syn != 0", "icmp": "icmp"}
_NANO: Final = 0xA1B23C4D
_RECORD: Final = struct.Struct("<IIII")
_NS: Final = 1_000_000_000


class Case(msgspec.Struct, frozen=True):
    """One run through the box."""

    kind: str
    rate: int
    stall_ms: int


CASES: Final = tuple(
    Case(kind, rate, stall_ms)
    for kind, rate in (("tcp", 100), ("tcp", 1_000), ("tcp", 3_000), ("icmp", 1_000))
    for stall_ms in (0, 40)
)


class Wanted(msgspec.Struct, frozen=True):
    """What the prober's process is to do."""

    case: Case
    seconds: float
    addresses: tuple[str, ...]
    port: int


# -- the prober's process -------------------------------------------------------------------------------------------------


async def probed(wanted: Wanted) -> list[list[int | None]]:
    """Round trips in microseconds by address, in the order of their starts; None where there is none."""
    case = wanted.case
    made = [job(case.kind, number, address, wanted.port) for number, address in enumerate(wanted.addresses)]
    seen: list[list[int | None]] = [[] for _ in made]
    left = total = round(case.rate * wanted.seconds)
    over = asyncio.Event()

    def take(  # noqa: PLR0917
        token: int, failure: Failure | None, rtt_us: int | None, clock: Clock, late: bool, sent: int, lost: int,
        status: int, note: str, lateness_us: int, phases: Phases | None, /,
    ) -> None:  # fmt: skip
        nonlocal left
        del clock, late, sent, lost, status, note, lateness_us, phases
        seen[token].append(rtt_us if failure is None else None)
        left -= 1
        if not left:
            over.set()

    async with nested(take) as engine:
        begin = engine.now() + 0.2
        for number in range(total):
            engine.start(made[number % len(made)], at=begin + number / case.rate)
        stalling = asyncio.create_task(_stall(case.stall_ms / 1_000))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), wanted.seconds + 6.0)
        stalling.cancel()
    return seen


async def _stall(length: Seconds) -> None:
    """Synchronous work on the loop, once a second: what a large document or the collector does."""
    while length:
        await asyncio.sleep(1.0 - length)
        end = time.perf_counter() + length
        while time.perf_counter() < end:
            pass


# -- the truth ------------------------------------------------------------------------------------------------------------


def trips(capture: bytes) -> Mapping[str, list[float]]:
    """Microseconds from each SYN (or echo request) to its answer, by address, in the order they were sent."""
    begun: dict[tuple[bytes, bytes], int] = {}
    ended: dict[tuple[bytes, bytes], int] = {}
    for at, packet in _packets(capture):
        body = packet[(packet[0] & 15) * 4 :]
        source, target = packet[12:16], packet[16:20]
        if packet[9] == 1:
            key, is_answer = body[8:16], body[0] == 0
        else:
            is_answer = body[13] & 0x12 == 0x12
            key = body[2:4] if is_answer else body[0:2]
        if is_answer:
            ended.setdefault((source, key), at)
        else:
            begun.setdefault((target, key), at)
    found: dict[str, list[float]] = defaultdict(list)
    for (address, key), at in begun.items():
        if (end := ended.get((address, key))) is not None:
            found[".".join(map(str, address))].append((end - at) / 1_000)
    return found


def _packets(capture: bytes) -> Iterator[tuple[int, bytes]]:
    """(ns, IPv4 packet) of a pcap of raw IP with nanoseconds."""
    if struct.unpack_from("<I", capture)[0] != _NANO:
        raise RuntimeError("the capture has no nanoseconds")
    at = 24
    while at + _RECORD.size <= len(capture):
        seconds, nanos, size, _ = _RECORD.unpack_from(capture, at)
        at += _RECORD.size
        yield seconds * _NS + nanos, capture[at : at + size]
        at += size


def compared(
    case: Case, addresses: Sequence[str], seen: Sequence[Sequence[int | None]], truth: Mapping[str, Sequence[float]]
) -> Offset:
    """How far reported round trips are off. An address with fewer packets than probes is left out: which is which is not known."""
    off: list[float] = []
    missing = 0
    for address, reported in zip(addresses, seen, strict=True):
        real = truth.get(address, ())
        if len(real) != len(reported):
            missing += len(reported)
            continue
        pairs = [(rtt, wire) for rtt, wire in zip(reported, real, strict=True) if rtt is not None]
        missing += len(reported) - len(pairs)
        off += [abs(rtt - wire) for rtt, wire in pairs]
    off.sort()
    return Offset(
        kind=case.kind,
        rate=case.rate,
        stall_ms=case.stall_ms,
        count=len(off),
        missing=missing,
        p50_us=quantile(off, 0.5),
        p99_us=quantile(off, 0.99),
        worst_us=off[-1] if off else 0.0,
    )


# -- all of it ------------------------------------------------------------------------------------------------------------


def offsets(
    program: Path | None, directory: Path, cores: tuple[int, int], seconds: Seconds, rounds: int
) -> tuple[tuple[Offset, ...], str]:
    """Every case, `rounds` times; fewer, and why, where it cannot be."""
    if shutil.which("tcpdump") is None:
        return (), "tcpdump is not installed (Debian: apt-get install tcpdump)"
    prober, other = cores
    found: list[Offset] = []
    try:
        with contextlib.ExitStack() as stack:
            with on_core(other):
                box = stack.enter_context(impair.impaired({}, default=_PATH))
            target = stack.enter_context(served(program, other, address="0.0.0.0", inside=box.inside()))
            for number in range(rounds):
                for case in CASES:
                    name = f"{case.kind}-{case.rate}-{case.stall_ms}-{number}"
                    found.append(_one(case, box, target, directory / f"{name}.pcap", (prober, other), seconds))
    except (SkipTest, CellError) as lack:
        return tuple(found), str(lack)
    return tuple(found), ""


def _one(  # noqa: PLR0917
    case: Case, box: impair.Box, target: Target, file: Path, cores: tuple[int, int], seconds: Seconds
) -> Offset:
    addresses = tuple(box.address(number) for number in range(1, LINES + 1))
    wanted = Wanted(case=case, seconds=seconds, addresses=addresses, port=target.tcp[0])
    with on_core(cores[1]), _captured(box.device, _FILTERS[case.kind], file):
        seen = cell(("cell", "lab"), wanted, list[list[int | None]], core=cores[0], seconds=seconds)
    return compared(case, addresses, seen, trips(file.read_bytes()))


@contextlib.contextmanager
def _captured(device: str, expression: str, file: Path) -> Iterator[None]:
    """tcpdump of headers; the file is whole once the block is left."""
    log = file.with_suffix(".log")
    exact = ("--time-stamp-precision=nano", "--immediate-mode", "-U", "-n", "-s", _SNAP, "-B", _RING_KB)
    with parts.started(("tcpdump", *exact, "-i", device, "-w", str(file), expression), log=log):
        eventually(lambda: "listening on" in log.read_text(errors="replace"), what="tcpdump to listen")
        yield
