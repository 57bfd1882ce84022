"""Frames over real gRPC streams, and what becomes of its errors."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path

import grpc
import pytest
from tests.measured import best_of

from reachline.abc import Transport
from reachline.errors import ConfigError, ReachlineError, RemoteProtocolError
from reachline.net import rpc
from reachline.wire.frame import MAX_FRAME


def go(work: Coroutine[None, None, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(100):
            await work

    asyncio.run(bounded())


async def echo(transport: Transport, _: str) -> None:
    async for frame in transport.frames():
        if frame == b"end":
            return
        await transport.send(frame[::-1], 5)


async def mute(_: Transport, __: str) -> None:
    await asyncio.Event().wait()


async def flood(stream: rpc.Attached) -> None:
    for _ in range(100):
        await stream.send(bytes(1 << 20), 0.3)


@pytest.fixture(params=["tcp", "unix"])
def bind(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "127.0.0.1:0" if request.param == "tcp" else f"unix:{tmp_path}/center.sock"


def where(bind: str, server: rpc.Server) -> str:
    return bind if bind.startswith("unix:") else f"127.0.0.1:{server.ports[0]}"


async def with_server(
    bind: str, attached: Callable[[Transport, str], Awaitable[None]], then: Callable[[str, rpc.Server], Awaitable[None]]
) -> None:
    server = await rpc.serve([bind], attached)
    try:
        await then(where(bind, server), server)
    finally:
        await server.close(0)


def test_frames_travel_both_ways_until_the_peer_ends_the_stream(bind: str) -> None:
    async def then(address: str, _: rpc.Server) -> None:
        stream = await rpc.attach(address, timeout=30)
        frames = stream.frames()
        for text in (b"abc", b"", b"x" * (1 << 20)):
            await stream.send(text, 30)
            assert await anext(frames) == text[::-1]
        await stream.send(b"end", 5)
        with pytest.raises(StopAsyncIteration):
            await anext(frames)
        await stream.close()
        await stream.close()

    go(with_server(bind, echo, then))


def test_a_largest_frame_passes_and_a_larger_one_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    async def then(address: str, _: rpc.Server) -> None:
        stream = await rpc.attach(address, timeout=30)
        await stream.send(bytes(MAX_FRAME - 64), 30)
        assert len(await anext(stream.frames())) == MAX_FRAME - 64
        with pytest.raises((ReachlineError, ConnectionError)):
            await stream.send(bytes(MAX_FRAME * 3), 5)
        await stream.close()

    go(with_server(f"unix:{tmp_path}/s", echo, then))


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("127.0.0.1:1", "Connection refused"),
        ("unix:/nonexistent/reachline.sock", "No such file or directory"),
        ("no-such-name.invalid:7600", "no-such-name.invalid"),
    ],
)
def test_nobody_there_is_a_connection_error_at_once_with_its_reason(address: str, why: str) -> None:
    async def work() -> None:
        began = time.monotonic()
        with pytest.raises(ConnectionError, match=why) as caught:
            await rpc.attach(address, timeout=90)
        assert time.monotonic() - began < 60
        assert str(caught.value).startswith(address)
        assert "\n" not in str(caught.value)

    go(work())


def test_a_peer_that_accepts_and_says_nothing_is_a_timeout() -> None:
    async def work() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening, pytest.raises((TimeoutError, ConnectionError)):
            await rpc.attach(f"127.0.0.1:{listening.getsockname()[1]}", timeout=0.3)

    go(work())


def test_a_peer_that_takes_nothing_is_a_timeout_for_the_sender(bind: str) -> None:
    async def then(address: str, _: rpc.Server) -> None:
        stream = await rpc.attach(address, timeout=30)
        with pytest.raises(TimeoutError):
            await flood(stream)
        await stream.close()

    go(with_server(bind, mute, then))


def test_a_server_that_dies_is_a_connection_error_for_reader_and_writer(bind: str) -> None:
    async def then(address: str, server: rpc.Server) -> None:
        stream = await rpc.attach(address, timeout=30)
        frames = stream.frames()
        await stream.send(b"a", 5)
        await anext(frames)
        await server.close(0)
        with pytest.raises(ConnectionError):
            await anext(frames)
        with pytest.raises(ConnectionError):
            await stream.send(b"b", 5)
        await stream.close()

    go(with_server(bind, echo, then))


def test_a_server_of_something_else_is_a_protocol_error(tmp_path: Path) -> None:
    async def work() -> None:
        other = grpc.aio.server()
        other.add_insecure_port(f"unix:{tmp_path}/s")
        await other.start()
        stream = await rpc.attach(f"unix:{tmp_path}/s", timeout=30)
        with pytest.raises(RemoteProtocolError):
            await anext(stream.frames())
        await stream.close()
        await other.stop(0)

    go(work())


def test_a_new_attempt_is_not_held_back_by_the_failure_of_the_last(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/s"

    async def work() -> None:
        for _ in range(5):
            with pytest.raises(ConnectionError):
                await rpc.attach(address, timeout=30)
        server = await rpc.serve([address], echo)
        began = time.monotonic()
        stream = await rpc.attach(address, timeout=30)
        spent = time.monotonic() - began
        await stream.close()
        await server.close(0)
        assert spent < 0.9, "a second is what gRPC waits after a failure"

    best_of(3, lambda: go(work()))


def test_a_port_in_use_is_named_in_one_line() -> None:
    async def work() -> None:
        first = await rpc.serve(["127.0.0.1:0"], echo)
        address = f"127.0.0.1:{first.ports[0]}"
        with pytest.raises(ConfigError) as caught:
            await rpc.serve([address], echo, places={address: "reach.yaml:3:9"})
        (problem,) = caught.value.problems
        assert (problem.place, problem.rule) == ("reach.yaml:3:9", "the address is in use")
        assert "\n" not in str(problem)
        await first.close(0)

    go(work())


@pytest.mark.parametrize(
    ("address", "rule"),
    [
        ("192.0.2.1:0", "no interface of this machine has this address"),
        ("nowhere.invalid:0", "the name does not resolve"),
        ("unix:/no/such/directory/center.sock", "No such file or directory"),
        (f"unix:/{'long' * 40}", "cannot listen here (AF_UNIX path too long)"),
    ],
)
def test_why_an_address_cannot_be_had_is_said(address: str, rule: str) -> None:
    with pytest.raises(ConfigError, match=f"{re.escape(address)}: center.grpc: {re.escape(rule)}"):
        go(_served(address))


async def _served(address: str) -> None:
    await rpc.serve([address], echo)


ECHO = "/test.Further/Echo"


async def further(frames: AsyncIterator[bytes], call: rpc.Call) -> AsyncIterator[bytes]:
    async for frame in frames:
        if frame == b"away":
            raise ConnectionError("come again")
        if frame == b"wrong":
            raise RemoteProtocolError("what was that?")
        if frame == b"who":
            raise PermissionError(f"you are {call.metadata['user-agent'].split('/')[0]}")
        yield frame[::-1]


@pytest.mark.parametrize(
    ("said", "error", "why"),
    [
        (b"away", ConnectionError, "come again"),
        (b"wrong", RemoteProtocolError, "what was that"),
        (b"who", RemoteProtocolError, "you are grpc-python-asyncio"),
    ],
)
def test_a_further_service_stands_on_the_agents_port_and_its_errors_are_told(
    said: bytes, error: type[Exception], why: str, tmp_path: Path
) -> None:
    async def work() -> None:
        server = await rpc.serve([f"unix:{tmp_path}/s"], echo, services={ECHO: further})
        stream = await rpc.attach(f"unix:{tmp_path}/s", timeout=30, method=ECHO)
        agent = await rpc.attach(f"unix:{tmp_path}/s", timeout=30)
        frames, others = stream.frames(), agent.frames()
        await stream.send(b"abc", 30)
        await agent.send(b"xy", 30)

        answers = await anext(frames), await anext(others)
        await stream.send(said, 30)
        with pytest.raises(error, match=why):
            await anext(frames)

        assert answers == (b"cba", b"yx")
        await stream.close()
        await agent.close()
        await server.close(0)

    go(work())


def test_a_further_service_ends_when_its_peer_does_and_is_finalised_when_the_peer_is_gone(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def waits(frames: AsyncIterator[bytes], _: rpc.Call) -> AsyncIterator[bytes]:
        try:
            async for frame in frames:
                yield frame
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def work() -> None:
        server = await rpc.serve([f"unix:{tmp_path}/s"], echo, services={ECHO: further, "/test.Other/Waits": waits})
        stream = await rpc.attach(f"unix:{tmp_path}/s", timeout=30, method=ECHO)
        await stream.finish(30)
        other = await rpc.attach(f"unix:{tmp_path}/s", timeout=30, method="/test.Other/Waits")
        await other.send(b"a", 30)
        await anext(other.frames())

        await other.close()
        await ended.wait()

        await stream.close()
        await server.close(0)

    go(work())
