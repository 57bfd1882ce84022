"""An engine on a loop of its own for one test, and peers that behave as badly as peers do."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from typing import NamedTuple, Self

import pytest

from reachline.doors.addresses import SCHEMES, parse_target
from reachline.model import Clock, Failure, Kind
from reachline.net import kernel
from reachline.net.engine import Engine, Job, Phases
from reachline.talk import build
from reachline.testing.serving import Serve
from reachline.testing.serving import serving as _serving
from reachline.testing.wait import until

Peer = Serve


class Ended(NamedTuple):
    """One call of `done`, in the engine's order."""

    token: int
    failure: Failure | None
    rtt_us: int | None
    clock: Clock
    late: bool
    sent: int
    lost: int
    status: int
    note: str
    lateness_us: int
    phases: Phases | None


class Lab:
    """An engine whose results are kept; use it as an async context manager."""

    def __init__(self, **options) -> None:
        self.ended: list[Ended] = []
        self.overdue: list[int] = []
        self._options = options

    async def __aenter__(self) -> Self:
        self.engine = Engine(
            lambda *result: self.ended.append(Ended(*result)), overdue=self.overdue.append, **self._options
        )
        self._fd = self.engine.fileno()
        asyncio.get_running_loop().add_reader(self._fd, self.engine.turn)
        await until(stamps_are_on, every=0.001, what="the kernel to stamp what arrives")
        return self

    async def __aexit__(self, *_) -> None:
        asyncio.get_running_loop().remove_reader(self._fd)
        self.engine.close()

    async def probe(self, *jobs: Job, within: float = 30.0) -> list[Ended]:
        """Start them now; their results in the order of tokens."""
        before = len(self.ended)
        for job in jobs:
            self.engine.start(job, at=self.engine.now())
        await until(lambda: len(self.ended) >= before + len(jobs), within=within, every=0.002, what="results")
        assert len(self.ended) == before + len(jobs)
        return sorted(self.ended[before:], key=lambda result: result.token)

    async def one(self, job: Job) -> Ended:
        """The result of one attempt."""
        return (await self.probe(job))[0]


def make_job(target: str, options=None, *, kind: str = "", token: int = 1, **fields) -> Job:
    endpoint = parse_target(target)
    named = kind or SCHEMES[endpoint.scheme].kinds[0]
    times = {"timeout": 3.0, "patience": 1.0} | fields
    return Job(token=token, endpoint=endpoint, probe=build(Kind(named), endpoint, options or {}), **times)


def stamps_are_on() -> bool:
    """Whether a byte over TCP arrives with its stamp; the kernel takes some milliseconds to begin."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as near:
        near.setsockopt(socket.SOL_SOCKET, kernel.SO_TIMESTAMPNS, 1)
        with server.accept()[0] as far:
            far.send(b"x")
            return kernel.stamp(near.recvmsg(1, 64)[1]) is not None


@contextlib.asynccontextmanager
async def serving(peer: Peer, host: str = "127.0.0.1", *, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server on loopback; its port."""
    async with _serving(peer, host, tls=tls) as service:
        yield service.port


def saying(data: bytes, *, reset: bool = False, wait: bool = False) -> Peer:
    """A peer that reads something, says `data` and closes (by RST: `reset`), or stays (`wait`)."""

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4096)
        writer.write(data)
        await writer.drain()
        if wait:
            await reader.read()
        if reset:
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    return peer


@pytest.fixture
def lab() -> type[Lab]:
    return Lab


@pytest.fixture
def job():
    return make_job


@pytest.fixture
def serve():
    return serving


@pytest.fixture
def say():
    return saying
