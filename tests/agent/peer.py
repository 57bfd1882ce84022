"""A center on a real socket that says what a test tells it to, and remembers what it heard. A peer, not a copy of ours."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Self

import grpc

from reachline.abc import Transport
from reachline.agent.run import run
from reachline.agent.settings import AgentRun, checked
from reachline.model import Kind
from reachline.net import rpc
from reachline.testing.serving import Service
from reachline.wire.frame import (
    PROTOCOL,
    Ack,
    Bye,
    Frame,
    Heartbeat,
    Hello,
    LinePlan,
    Plan,
    ProbePlan,
    Welcome,
    decode,
    encode,
)


@dataclass
class Center:
    """One center's behaviour and memory. `address` stays, so that it can go and come back."""

    address: str
    plan: Plan = field(default_factory=lambda: Plan(number=1, heartbeat_ms=200))
    refusal: str = ""
    final: bool = True
    protocol: tuple[int, int] = PROTOCOL
    acks: bool = True
    welcomes: bool = True
    reads: bool = True
    hellos: list[Hello] = field(default_factory=list)
    beats: list[Heartbeat] = field(default_factory=list)
    byes: list[Bye] = field(default_factory=list)
    streams: list[Transport] = field(default_factory=list)
    server: rpc.Server | None = None
    credentials: grpc.ServerCredentials | None = None
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Guards the streams: gRPC takes one write at a time, and a test's word may meet an acknowledgement."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.die()

    async def start(self) -> None:
        self.server = await rpc.serve([self.address], self._attached, credentials=self.credentials)
        if not self.address.startswith("unix:"):
            self.address = f"127.0.0.1:{self.server.ports[0]}"

    async def die(self) -> None:
        """Gone at once, streams and port."""
        if self.server:
            await self.server.close(0)
        self.server = None
        self.streams.clear()

    async def say(self, frame: Frame) -> None:
        """To every agent that is attached."""
        for stream in self.streams:
            await self._send(stream, frame)

    async def _send(self, stream: Transport, frame: Frame) -> None:
        async with self.writing:
            await stream.send(encode(frame), 5)

    async def _attached(self, transport: Transport, _: str) -> None:
        frames = transport.frames()
        async for data in frames:
            hello = decode(data)
            break
        else:
            return
        assert isinstance(hello, Hello)
        self.hellos.append(hello)
        if not self.welcomes:
            await asyncio.Event().wait()
        final = bool(self.refusal) and self.final
        welcome = Welcome(protocol=self.protocol, release="test", epoch=1, refused=self.refusal, final=final)
        await self._send(transport, welcome)
        if self.refusal:
            return
        self.streams.append(transport)
        await self._send(transport, self.plan)
        if not self.reads:
            await asyncio.Event().wait()
        async for data in frames:
            await self._heard(decode(data), transport)
        self.streams.remove(transport)

    async def _heard(self, frame: Frame, transport: Transport) -> None:
        match frame:
            case Heartbeat():
                self.beats.append(frame)
                if self.acks:
                    await self._send(transport, Ack(sequence=frame.sequence))
            case Bye():
                self.byes.append(frame)
            case _:
                raise AssertionError(f"an agent sent {frame}")

    def reports(self, line: str, kind: Kind = Kind.TCP) -> list:
        """Everything heard of one line, oldest first."""
        found = (report for beat in self.beats for report in beat.reports)
        return [report for report in found if report.line == line and report.reading.kind is kind]


def probe(kind: Kind = Kind.TCP, *, every: int = 100, burst: int = 1, **options: str | int | bool) -> ProbePlan:
    """Ten a second, so that tests are quick."""
    return ProbePlan(
        kind=kind,
        interval_ms=every,
        suspect_interval_ms=min(every, 50),
        timeout_ms=200,
        patience_ms=200,
        burst=burst,
        options=options,
    )


def line(name: str, target: str, *probes: ProbePlan, **options: object) -> LinePlan:
    return LinePlan(line=f"c/{name}", target=target, probes=probes or (probe(),), **options)  # type: ignore[arg-type]


def plan_of(*lines: LinePlan, number: int = 1, heartbeat: int = 200) -> Plan:
    return Plan(number=number, heartbeat_ms=heartbeat, lines=lines)


def settings(*centers: Center, **options: object) -> AgentRun:
    """An agent of these centers whose chance repeats."""
    return checked(id="v1", centers=tuple(center.address for center in centers), seed=1, **options)


@contextlib.asynccontextmanager
async def agent(given: AgentRun) -> AsyncIterator[Callable[[], None]]:
    """The agent, running; it is stopped in the end, and how it ended is the test's."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(run(given, stop=stop))
        try:
            yield stop.set
        finally:
            stop.set()
            await asyncio.wait({running}, timeout=30)
            running.cancel()


class Door:
    """A TCP service on loopback that closes each connection; it can be shut and opened again at the same port."""

    def __init__(self) -> None:
        self._port = 0
        self._service = Service(_close)

    @property
    def url(self) -> str:
        return f"tcp://127.0.0.1:{self._port}"

    async def open(self) -> None:
        await self._service.listen(port=self._port)
        self._port = self._service.port

    async def shut(self) -> None:
        await self._service.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shut()


async def _close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()  # at once


@contextlib.asynccontextmanager
async def target() -> AsyncIterator[str]:
    """The URL of an open door."""
    async with Door() as door:
        yield door.url
