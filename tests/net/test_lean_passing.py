"""By way of proxies too the lean machine says what the ordinary one says, whatever a proxy answers and however that is cut."""

from __future__ import annotations

import asyncio
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.net.conftest import Lab, make_job, serving
from tests.net.test_lean import OK, machine, said

from reachline.doors.outbounds import hops
from reachline.model import Clock, Failure
from reachline.net import plain
from reachline.net.fleet import Fleet

METHOD = b"\x05\x00"
SIGN_IN = b"\x05\x02"
SIGNED_IN = b"\x01\x00"
YES = b"\x05\x00\x00\x01\x7f\x00\x00\x01\x04\x38"
ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"

SOCKS = ("socks5h://127.0.0.1:{}",)
SIGNING = ("socks5h://me:secret@127.0.0.1:{}",)
HTTP = ("http://127.0.0.1:{}",)
CHAIN = ("socks5h://127.0.0.1:{}", "http://proxy.test:3128", "socks5h://me:secret@other.test:1080")

WELL = {
    "socks": (SOCKS, (METHOD, YES, OK)),
    "socks, a name bound": (SOCKS, (METHOD, b"\x05\x00\x00\x03\x04line\x00\x50", OK)),
    "socks, an IPv6 address bound": (SOCKS, (METHOD, b"\x05\x00\x00\x04" + b"\0" * 18, OK)),
    "socks with a user": (SIGNING, (SIGN_IN, SIGNED_IN, YES, OK)),
    "http": (HTTP, (ESTABLISHED, OK)),
    "http, with headers": (HTTP, (b"HTTP/1.0 200 OK\r\nProxy-Agent: x\r\nContent-Length: 7\r\n\r\n", OK)),
    "a chain": (CHAIN, (METHOD, YES, ESTABLISHED, SIGN_IN, SIGNED_IN, YES, OK)),
}
ILL = {
    "socks, refused": (SOCKS, (METHOD, b"\x05\x05\x00\x01\0\0\0\0\0\0")),
    "socks, unreachable and short": (SOCKS, (METHOD, b"\x05\x04")),
    "socks, its own failure": (SOCKS, (METHOD, b"\x05\x01\x00\x01\0\0\0\0\0\0")),
    "socks, asks for a user": (SOCKS, (b"\x05\xff",)),
    "socks, signs in nobody": (SIGNING, (SIGN_IN, b"\x01\x01")),
    "socks, needs no user": (SIGNING, (METHOD, YES, OK)),
    "socks, signs in by another version": (SIGNING, (SIGN_IN, b"\x05\x00", YES, OK)),
    "socks, an unknown kind of address": (SOCKS, (METHOD, b"\x05\x00\x00\x09\0\0\0\0\0\0")),
    "socks, spoke out of turn": (SOCKS, (METHOD + YES,)),
    "socks, the endpoint spoke first": (SOCKS, (METHOD, YES + OK)),
    "socks, not at all": (SOCKS, (b"HTTP/1.1 400 Bad Request\r\n\r\n",)),
    "socks, closes": (SOCKS, (b"",)),
    "socks, closes when asked": (SOCKS, (METHOD, b"")),
    "socks, closes once through": (SOCKS, (METHOD, YES, b"")),
    "http, forbidden": (HTTP, (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno",)),
    "http, asks for a user": (HTTP, (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",)),
    "http, bad gateway": (HTTP, (b"HTTP/1.1 502 Bad Gateway\r\nX-Squid-Error: ERR_CONNECT_FAIL 111\r\n\r\n",)),
    "http, interim": (HTTP, (b"HTTP/1.1 100 Continue\r\n\r\n" + ESTABLISHED, OK)),
    "http, bare line feeds": (HTTP, (b"HTTP/1.1 200 OK\n\n", OK)),
    "http, the endpoint spoke first": (HTTP, (ESTABLISHED + OK,)),
    "http, garbage": (HTTP, (b"SSH-2.0-x\r\n",)),
    "http, closes within the header": (HTTP, (ESTABLISHED[:-3],)),
    "a chain, its second refuses": (CHAIN, (METHOD, YES, b"HTTP/1.1 503 No\r\n\r\n")),
    "a chain, its third signs in nobody": (CHAIN, (METHOD, YES, ESTABLISHED, SIGN_IN, b"\x01\x01")),
    "a chain, the endpoint is busy": (
        CHAIN,
        (METHOD, YES, ESTABLISHED, SIGN_IN, SIGNED_IN, YES, b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"),
    ),
}
CASES = WELL | ILL


def answering(answers: tuple[bytes, ...], cuts: tuple[int, ...] = (), *, stays: bool = False):
    """A peer that says each answer once it was asked, in two pieces where `cuts` says so, then closes, or `stays`."""

    async def peer(reader, writer):
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number, answer in enumerate(answers):
            if not await reader.read(4096):
                break
            at = cuts[number] % (len(answer) + 1) if number < len(cuts) else 0
            for piece in (answer[:at], answer[at:]):
                writer.write(piece)
                await writer.drain()
                for _ in range(3):
                    await asyncio.sleep(0)
        if stays:
            await reader.read()
        writer.close()

    return peer


async def by_both(vias: tuple[str, ...], peer, **fields):
    """The result of the ordinary machine, which takes a job's first attempt, and that of the lean one."""
    async with serving(peer) as port, Lab() as engine:
        way = hops(",".join(via.format(port) for via in vias))
        one = make_job("http://line.test/", hops=way, **fields)
        first = await engine.one(one)
        assert machine(engine, one) is plain.PLAIN
        return first, await engine.one(one)


@pytest.mark.parametrize("name", CASES)
def test_a_lean_passage_ends_as_an_ordinary_one(name):
    vias, answers = CASES[name]

    ordinary, lean = asyncio.run(by_both(vias, answering(answers)))

    assert said(lean) == said(ordinary)
    assert lean.rtt_us is None or 0 < lean.rtt_us < 3_000_000


@given(name=st.sampled_from(sorted(CASES)), cuts=st.lists(st.integers(0, 99), min_size=7, max_size=7).map(tuple))
@settings(max_examples=25)
def test_however_a_proxy_cuts_what_it_says_both_machines_say_the_same(name, cuts):
    vias, answers = CASES[name]

    for _ in range(5):  # a figure is missing where this process was away while it was made
        ordinary, lean = asyncio.run(by_both(vias, answering(answers, cuts)))
        if said(lean) == said(ordinary):
            break

    assert said(lean) == said(ordinary)


@pytest.mark.parametrize("name", WELL)
def test_proxies_that_say_yes_at_once_need_no_ordinary_machine(name, monkeypatch):
    """Else nothing here would be lean at all."""
    handed: list[object] = []
    original = Fleet.promoted

    def counted(self, fd, lean):
        handed.append(lean)
        return original(self, fd, lean)

    monkeypatch.setattr(Fleet, "promoted", counted)
    vias, answers = WELL[name]
    ordinary, lean = asyncio.run(by_both(vias, answering(answers)))

    assert (lean.failure, lean.status, lean.clock) == (None, 200, Clock.RX_STAMP)
    assert handed == []
    for each in (ordinary.phases, lean.phases):
        assert each.connect + each.proxy + each.first == each.pure <= each.total


@pytest.mark.parametrize("number", range(7))
def test_silence_at_any_step_is_blamed_on_the_same_by_both(number):
    vias, answers = WELL["a chain"]

    peer = answering(answers[:number], stays=True)
    ordinary, lean = asyncio.run(by_both(vias, peer, timeout=0.1, patience=0.1))

    assert lean.late
    assert lean.failure in {Failure.TIMEOUT, Failure.PROXY}
    assert said(lean) == said(ordinary)
