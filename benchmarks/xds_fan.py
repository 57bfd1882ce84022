"""A changed assignment told to many subscribers on one core, with and without stalled ones. Part of `xds`.

The control plane is the center's own serving half in a process of its own, with nothing to judge; its subscribers are real gRPC
streams of a second process. Stamps of both come from the one monotonic clock of the machine.
"""

from __future__ import annotations

import asyncio
import json
import math
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import hpack
from envoy.config.endpoint.v3 import endpoint_pb2
from google.protobuf import json_format

from reachline.abc import Transport
from reachline.center.xds.door import SOTW
from reachline.center.xds.resources import Cells
from reachline.center.xds.serving import Serving
from reachline.net import kernel, rpc
from reachline.testing.bench import Figure
from reachline.wire import xds
from reachline.wire.ads import EDS, Request
from reachline.wire.ads_owing import Answer
from reachline.wire.resources import EMPTY, rendered
from reachline.wire.xds_serving import Splicer

ENDPOINTS = 200
"""As many as make an assignment of 6 kB."""
SUBSCRIBERS = 500
PUSHES = 40
STALLED = 50
BARE = "bare"
_ROUNDS = 5
_LONGEST = 60.0


# -- the control plane, in a process of its own -------------------------------------------------------------------------


def assignment(number: int) -> bytes:
    """6 kB of which one weight moves."""
    rows = [
        {
            "endpoint": {"address": {"socket_address": {"address": "10.0.0.1", "port_value": 1024 + at}}},
            "load_balancing_weight": 1 + number % 100 if at == 0 else 1,
        }
        for at in range(ENDPOINTS)
    ]
    document = {"cluster_name": "up", "endpoints": [{"lb_endpoints": rows}]}
    return bytes(json_format.ParseDict(document, endpoint_pb2.ClusterLoadAssignment()).SerializeToString())


async def nobody(_: Transport, __: str) -> None:
    """No agent comes here."""


async def serve() -> None:
    """Says its port; publishes once for each line of stdin, and says when."""
    kernel.raise_file_limit()
    cells = Cells()
    serving = Serving(cells, clock=lambda: 0, counts=Counter())
    server = await rpc.serve(["127.0.0.1:0"], nobody, services={SOTW: serving.sotw})
    print(server.ports[0], flush=True)
    loop, number = asyncio.get_running_loop(), 0
    states = [EMPTY.replaced([rendered(EDS, "up", assignment(number))]) for number in range(100)]
    cells.asked = lambda audience: cells.publish(audience, states[number % 100])
    while await loop.run_in_executor(None, sys.stdin.readline):
        number += 1
        began, cpu = time.monotonic(), time.process_time()
        for audience in list(cells.audiences):
            cells.publish(audience, states[number % 100])
        print(json.dumps({"at": began, "cpu": cpu, "streams": len(serving.streams)}), flush=True)
    await server.close(0)


async def serve_bare() -> None:
    """As `serve`, of gRPC alone: the same bytes to each, whose ACKs are read and not looked at."""
    kernel.raise_file_limit()
    sent, number = [_answer(assignment(number)) for number in range(100)], 0
    calls: set[Callable[[], None]] = set()

    async def told(frames: AsyncIterator[bytes], _: rpc.Call, write: rpc.Write) -> None:
        writing: asyncio.Task[None] | None = None
        has = -1

        async def tell() -> None:
            nonlocal writing, has
            while has != number:
                has = number
                with suppress(ConnectionError):  # it left
                    await write(sent[has % 100])
            writing = None

        def wake() -> None:
            nonlocal writing
            writing = writing or asyncio.create_task(tell())

        calls.add(wake)
        wake()
        async for _ack in frames:
            pass
        calls.discard(wake)

    server = await rpc.serve(["127.0.0.1:0"], nobody, services={SOTW: rpc.Conversation(told)})
    print(server.ports[0], flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        number += 1
        began, cpu = time.monotonic(), time.process_time()
        for wake in calls:
            wake()
        print(json.dumps({"at": began, "cpu": cpu, "streams": len(calls)}), flush=True)
    await server.close(0)


def _answer(body: bytes) -> bytes:
    return Splicer().bytes_of(Answer(EDS, "v", "1", (rendered(EDS, "up", body),)))


class Plane:
    """The other process, as its parent sees it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.port = int(self._said())

    def _said(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def push(self) -> dict[str, float]:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return dict(json.loads(self._said()))

    def memory(self) -> int:
        """Resident kilobytes."""
        status = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


@contextmanager
def plane(*options: str) -> Iterator[Plane]:
    command = [sys.executable, "-m", "benchmarks.xds_fan", *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Plane(process)
        finally:
            process.kill()


# -- subscribers ---------------------------------------------------------------------------------------------------------


class Subscriber(asyncio.Protocol):
    """One connection and stream. It stamps an answer, and acknowledges it by the nonce at its end.

    It speaks as much of HTTP/2 as this takes and no more: gRPC's own client costs a core as much as the plane, and would be measured.
    """

    def __init__(self, number: int, *, stalled: bool = False) -> None:
        self._number, self._stalled = number, stalled
        self._transport: asyncio.Transport | None = None
        self._ack = xds.encode(Request(EDS, ("up",), "v"), xds.Node(id=""))
        self._frames, self._message = bytearray(), bytearray()
        self.at = 0.0
        self.heard = asyncio.Event()

    async def come(self, port: int) -> None:
        """Connects and asks; one that is stalled reads nothing from here on."""
        await asyncio.get_running_loop().create_connection(lambda: self, "127.0.0.1", port)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        node = xds.Node(id=f"s{self._number}", user_agent="envoy")
        asks = xds.encode(Request(EDS, ("up",), is_first=True), node)
        # SETTINGS {INITIAL_WINDOW_SIZE 4} and WINDOW_UPDATE: room for all that it is told.
        room = b"" if self._stalled else _frame(4, b"\0\4" + _ROOM, 0) + _frame(8, _ROOM, 0)
        begins = _frame(1, hpack.Encoder().encode(_HEADERS), 1, flags=4)
        transport.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + (room or _frame(4, b"", 0)) + begins + _data(asks))
        if self._stalled:
            transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        self._frames += data
        while len(self._frames) >= _HEAD and len(self._frames) >= _HEAD + (
            size := int.from_bytes(self._frames[:3], "big")
        ):
            kind, flags, body = self._frames[3], self._frames[4], bytes(self._frames[_HEAD : _HEAD + size])
            del self._frames[: _HEAD + size]
            if kind == 0:
                self._told(body, now)
            elif kind in (4, 6) and not flags & 1:  # SETTINGS, PING
                self._send(_frame(kind, body if kind == 6 else b"", 0, flags=1))

    def _told(self, part: bytes, now: float) -> None:
        self._message += part
        if len(self._message) < 5 or len(self._message) < 5 + int.from_bytes(self._message[1:5], "big"):
            return
        # `response_nonce` (5) stands last in both messages, as field 5 does in the answer.
        self._send(_data(self._ack + self._message[self._message.rindex(b"\x2a") :]))
        self._message.clear()
        self.at = now
        self.heard.set()

    def _send(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


_HEAD: Final = 9
"""Bytes before a frame's own."""
_ROOM: Final = (1 << 24).to_bytes(4, "big")
"""Window: more than all pushes come to."""
_HEADERS: Final = (
    (":method", "POST"), (":scheme", "http"), (":path", SOTW), (":authority", "plane"), ("te", "trailers"),
    ("content-type", "application/grpc"),
)  # fmt: skip


def _frame(kind: int, body: bytes, stream: int, flags: int = 0) -> bytes:
    return len(body).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + body


def _data(message: bytes) -> bytes:
    return _frame(0, b"\0" + len(message).to_bytes(4, "big") + message, 1)


class Fan:
    """What pushes to all subscribers came to, in milliseconds."""

    def __init__(self) -> None:
        self.medians: list[float] = []
        self.tails: list[float] = []
        self.lasts: list[float] = []
        self.cpu: list[float] = []
        self.memory = 0.0
        """Kilobytes of each stream: what the later four fifths added, for the first brings what a process has once."""


async def told(at: Plane, live: Sequence[Subscriber]) -> tuple[list[float], float]:
    """One push: how long each waited for it, in milliseconds and sorted, and the plane's processor seconds before it."""
    for each in live:
        each.heard.clear()
    said = await asyncio.get_running_loop().run_in_executor(None, at.push)
    await asyncio.wait_for(asyncio.gather(*(each.heard.wait() for each in live)), _LONGEST)
    await asyncio.sleep(0.1)  # the plane takes the last ACKs
    return sorted((each.at - said["at"]) * 1e3 for each in live), said["cpu"]


class Crowd:
    """Subscribers of one plane, `stalled` of them beside `count` that listen."""

    def __init__(self, at: Plane, count: int, stalled: int = 0) -> None:
        self.fan = Fan()
        self._at, self._count, self._stalled = at, count, stalled
        self._live: list[Subscriber] = []
        self._dead: list[Subscriber] = []
        self._cpu = 0.0

    async def come(self) -> None:
        """All of them; what the later four fifths add to the plane's memory is theirs."""
        first = self._count // 5
        await self._more(first)
        before = self._at.memory()
        for number in range(self._stalled):
            self._dead.append(Subscriber(self._count + number, stalled=True))
            await self._dead[-1].come(self._at.port)
        await self._more(self._count - first)
        self.fan.memory = (self._at.memory() - before) / (self._count - first + self._stalled)

    async def _more(self, count: int) -> None:
        new = [Subscriber(len(self._live) + number) for number in range(count)]
        for each in new:
            await each.come(self._at.port)
        self._live += new
        for _ in range(_ROUNDS):  # until all have come, and buffers are as large as they get
            self._cpu = (await told(self._at, self._live))[1]

    async def push(self) -> None:
        took, cpu = await told(self._at, self._live)
        self.fan.medians.append(took[len(took) // 2])
        self.fan.tails.append(took[math.ceil(0.99 * len(took)) - 1])
        self.fan.lasts.append(took[-1])
        self.fan.cpu.append((cpu - self._cpu) * 1e6 / len(took))
        self._cpu = cpu

    def leave(self) -> None:
        for each in (*self._live, *self._dead):
            each.close()


async def fanned(*crowds: Crowd) -> None:
    """Pushes to each crowd in turn, so that a busy machine slows all alike."""
    for each in crowds:
        await each.come()
    for _ in range(PUSHES):
        for each in crowds:
            await each.push()
    for each in crowds:
        each.leave()


def fan_figures(count: int) -> list[Figure]:
    kernel.raise_file_limit()
    with plane() as at:
        whole = Crowd(at, count)
        asyncio.run(fanned(whole))
    with plane(BARE) as at:
        bare = Crowd(at, count)
        asyncio.run(fanned(bare))
    with plane() as at, plane() as other:
        well, beside = Crowd(at, count - STALLED), Crowd(other, count - STALLED, STALLED)
        asyncio.run(fanned(well, beside))
    ratio = statistics.median(beside.fan.tails) / statistics.median(well.fan.tails)
    return [
        figure(f"6 kB told to {count}: half have them", "ms", whole.fan.medians, "≤ 40, goal 20"),
        figure("  the last has them", "ms", whole.fan.lasts),
        figure("  the plane's processor for each, ACK included", "µs", whole.fan.cpu),
        figure("  the plane's memory for each", "kB", [whole.fan.memory], "≤ 40"),
        figure("the same bytes by bare grpc.aio: half have them", "ms", bare.fan.medians),
        figure("  the last has them by bare grpc.aio", "ms", bare.fan.lasts),
        figure("  bare grpc.aio's processor for each, ACK included", "µs", bare.fan.cpu),
        figure("  bare grpc.aio's memory for each", "kB", [bare.fan.memory]),
        figure(f"99 of 100 have it, {count - STALLED} subscribers", "ms", well.fan.tails),
        figure(f"  beside {STALLED} that read nothing", "ms", beside.fan.tails),
        figure("  ratio of the medians", "×", [ratio], "≤ 1.1"),
    ]


def figure(what: str, unit: str, values: Sequence[float], bound: str = "") -> Figure:
    return Figure(what, unit, statistics.median(values), min(values), max(values), len(values), bound)


if __name__ == "__main__":
    asyncio.run(serve_bare() if BARE in sys.argv else serve())
