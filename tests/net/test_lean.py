"""The lean machines say what the ordinary ones say, however a peer cuts its answer and whatever it does besides."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.net.conftest import Lab, make_job, serving

from reachline.model import Clock, Failure
from reachline.net import plain, query
from reachline.net.attempt import Job
from reachline.net.fleet import Fleet
from reachline.testing.wait import until

OK = b"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 5\r\n\r\nhello"
ANSWERS = {
    "whole": OK,
    "busy": b"HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\nno",
    "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "until closed": b"HTTP/1.0 200 OK\r\n\r\nhello",
    "interim": b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
    "bodiless": b"HTTP/1.1 204 None\r\n\r\n",
    "cut short": OK[:-2],
    "garbage": b"SSH-2.0-x\r\n",
    "broken header": b"HTTP/1.1 200 OK\r\nno colon\r\nContent-Length: 0\r\n\r\n",
    "long": b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n" + b"x" * 9_000,
    "more than said": OK + b"and more",
    "nothing": b"",
}


def said(result) -> tuple[object, ...]:
    """What may not differ by the machine: the class, the words, and which figures there are."""
    phases = result.phases
    return (
        result.failure,
        result.status,
        result.note,
        result.late,
        (result.sent, result.lost),
        result.clock if result.rtt_us is not None else None,
        [name for name, value in zip(phases._fields, phases, strict=True) if value is not None] if phases else None,
    )


def cutting(data: bytes, cuts: list[int]):
    """A peer that says `data` in pieces, each on its way before the next is begun, then closes."""

    async def peer(reader, writer):
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await reader.readuntil(b"\r\n\r\n")
        for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            writer.write(data[begin:end])
            await writer.drain()
            for _ in range(3):
                await asyncio.sleep(0)
        writer.close()

    return peer


def machine(engine: Lab, one: Job) -> object:
    """What the next attempt of the job begins with."""
    route = engine.engine._launcher.known.get(id(one))
    return route.course if route else None


async def by_both(peer, options=None, **fields):
    """The result of the ordinary machine, which takes a job's first attempt, and that of the lean one."""
    async with serving(peer) as port, Lab() as engine:
        one = make_job(f"http://127.0.0.1:{port}/", options, **fields)
        first = await engine.one(one)
        assert machine(engine, one) is plain.PLAIN
        return first, await engine.one(one)


@pytest.mark.parametrize("name", ANSWERS)
def test_a_lean_exchange_ends_as_an_ordinary_one(name):
    ordinary, lean = asyncio.run(by_both(cutting(ANSWERS[name], [])))

    assert said(lean) == said(ordinary)
    assert lean.rtt_us is None or 0 < lean.rtt_us < 3_000_000


@given(name=st.sampled_from(sorted(ANSWERS)), data=st.data())
@settings(max_examples=25)
def test_however_the_answer_is_cut_both_machines_say_the_same(name, data):
    whole = ANSWERS[name]
    cuts = data.draw(st.lists(st.integers(0, len(whole)), max_size=3).map(sorted))

    for _ in range(5):  # a figure is missing where this process was away while it was made
        ordinary, lean = asyncio.run(by_both(cutting(whole, cuts)))
        if said(lean) == said(ordinary):
            break

    assert said(lean) == said(ordinary)


def test_the_whole_answer_at_once_needs_no_ordinary_machine(monkeypatch):
    """Else nothing here would be lean at all."""
    handed: list[object] = []
    original = Fleet.promoted

    def counted(self, fd, lean):
        handed.append(lean)
        return original(self, fd, lean)

    monkeypatch.setattr(Fleet, "promoted", counted)
    _, lean = asyncio.run(by_both(cutting(OK, [])))

    assert (lean.failure, lean.status, lean.clock) == (None, 200, Clock.RX_STAMP)
    assert handed == []
    assert lean.phases.connect + lean.phases.first <= lean.phases.total


async def silent(reader, writer):
    del writer
    await reader.read()


async def resetting(reader, writer):
    await reader.readuntil(b"\r\n\r\n")
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def test_a_peer_that_never_answers_is_a_timeout_to_both():
    ordinary, lean = asyncio.run(by_both(silent, timeout=0.1, patience=0.1))

    assert (lean.failure, lean.note, lean.late) == (Failure.TIMEOUT, "no answer within the time", True)
    assert said(lean) == said(ordinary)


def test_a_reset_instead_of_an_answer_is_a_reset_to_both():
    ordinary, lean = asyncio.run(by_both(resetting))

    assert lean.failure is ordinary.failure is Failure.RESET


def test_a_port_that_closed_meanwhile_is_refused():
    async def main():
        async with Lab() as engine:
            async with serving(cutting(OK, [])) as port:
                one = make_job(f"http://127.0.0.1:{port}/")
                first = await engine.one(one)
            return first, await engine.one(one)

    first, second = asyncio.run(main())

    assert first.failure is None
    assert (second.failure, second.note, second.sent, second.lost) == (Failure.REFUSED, "connection refused", 1, 0)


def test_a_peer_that_speaks_before_it_is_asked_is_heard_by_both():
    """What was there when the connection was made is not told of a second time; the ordinary machine asks for it."""

    async def main():
        with socket.create_server(("127.0.0.1", 0)) as server:
            async with Lab() as engine:
                one = make_job(f"http://127.0.0.1:{server.getsockname()[1]}/", timeout=1.0, patience=0.5)
                for _ in range(2):
                    engine.engine.start(one, at=0.0)
                    engine.engine._begin(engine.engine.ns())  # half a turn: nobody has looked yet
                    with server.accept()[0] as peer:
                        peer.send(OK)
                        await until(lambda: not engine.engine.counters().live, what="the answer that came first")
                return engine.ended

    ordinary, lean = asyncio.run(main())

    assert lean.failure is ordinary.failure is None
    assert lean.status == ordinary.status == 200
    assert not lean.late


def test_an_exchange_that_is_cancelled_or_closed_upon_leaves_no_descriptor():
    async def main():
        async with serving(silent) as port, Lab() as engine:
            one, two = (make_job(f"http://127.0.0.1:{port}/", token=token, timeout=0.1, patience=9) for token in (1, 2))
            for each in (one, two):
                engine.engine.start(each, at=0.0)
            await until(lambda: len(engine.overdue) == 2)
            engine.engine.cancel(1)
            await until(lambda: engine.engine.counters().live == 1)
            engine.engine.cancel(2)
            await until(lambda: engine.engine.counters().live == 0)
            return engine.ended

    assert asyncio.run(main()) == []


class Answering(asyncio.DatagramProtocol):
    """Answers each query with what `answer(query)` says."""

    def __init__(self, answer) -> None:
        self._answer = answer

    def connection_made(self, transport) -> None:
        self._transport = transport

    def datagram_received(self, data, peer) -> None:
        for reply in self._answer(data):
            self._transport.sendto(reply, peer)


RECORD = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\x0a\0\0\x09"


def reply(query: bytes, flags: int = 0x8180, records: bytes = RECORD, count: int = 1) -> bytes:
    return query[:2] + struct.pack("!HHHHH", flags, 1, count, 0, 0) + query[12:] + records


@contextlib.asynccontextmanager
async def name_server(answer):
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: Answering(answer), local_addr=("127.0.0.1", 0))
    try:
        yield transport.get_extra_info("sockname")[1]
    finally:
        transport.close()


REPLIES = {
    "an address": lambda query: [reply(query)],
    "no such name": lambda query: [reply(query, 0x8183, b"", 0)],
    "a forged id first": lambda query: [bytes([query[0] ^ 1]) + reply(query)[1:], reply(query)],
    "another question first": lambda query: [reply(query).replace(b"line", b"evil"), reply(query)],
    "a record cut short": lambda query: [reply(query)[:-2]],
    "garbage": lambda query: [query[:2] + b"\x81\x80garbage"],
    "another kind of record": lambda query: [reply(query, records=b"\xc0\x0c\0\5\0\1\0\0\0\x3c\0\2\xc0\x0c")],
    "a query": lambda query: [query, reply(query)],
}


@pytest.mark.parametrize("name", REPLIES)
def test_a_lean_query_ends_as_an_ordinary_one(name):
    async def main():
        async with name_server(REPLIES[name]) as port, Lab() as engine:
            one = make_job(f"dns://127.0.0.1:{port}/line.test")
            first = await engine.one(one)
            assert machine(engine, one) is query.QUERY
            return first, await engine.one(one)

    ordinary, lean = asyncio.run(main())

    assert said(lean) == said(ordinary)


def test_a_silent_name_server_is_one_lost_datagram_to_both():
    async def main():
        async with name_server(lambda _: []) as port, Lab() as engine:
            one = make_job(f"dns://127.0.0.1:{port}/line.test", timeout=0.05, patience=0.05)
            return await engine.one(one), await engine.one(one)

    ordinary, lean = asyncio.run(main())

    assert (lean.failure, lean.sent, lean.lost, lean.late) == (Failure.TIMEOUT, 1, 1, True)
    assert said(lean) == said(ordinary)
