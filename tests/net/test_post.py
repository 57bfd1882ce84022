"""Batches and single packets say the same; what our own machine refuses or drops is never the line's loss."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.model import Clock, Failure
from reachline.net import echo_socket, mmsg, post
from reachline.net.attempt import Job
from reachline.net.route import route
from reachline.talk.icmp import IcmpProbe
from reachline.testing import parts
from reachline.testing.wait import eventually, until
from reachline.wire import icmp

HERE = {4: "127.0.0.1", 6: "::1"}
IDENT = 0x5157
TOKENS = [0x0123456789ABCDEF, 1, 2**64 - 1, 0xFFFF, 7 << 40]

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="raw sockets need root")
in_batches = pytest.mark.skipif(not mmsg.AVAILABLE, reason="this C library has no sendmmsg")


def starts(job, family: int, size: int, count: int):
    """So many requests to loopback, as the machine lays them."""
    made = job(f"icmp://{HERE[family] if family == 4 else '[::1]'}", {"size": size})
    found = route(made, {}, 0)
    assert not isinstance(found, str)
    return [(found._replace(raw=post.raw_address(found.family, found.address)), 0)] * count


def both(sock):
    """Both ways to use one socket."""
    return post.Batched(post.Buffers(), sock, IDENT), post.Single(sock, IDENT)


def replies(way: post.Post) -> list[post.Reply]:
    """All that have come by now, by token."""
    found: list[post.Reply] = []
    with contextlib.suppress(BlockingIOError):
        while True:
            found += way.replies()
    return sorted(found)


def awaited(way: post.Post, tokens: list[int]) -> list[post.Reply]:
    """What came of these until all did; others ping on this machine too."""
    found: list[post.Reply] = []

    def have_come() -> bool:
        found.extend(reply for reply in replies(way) if reply[0] in tokens)
        return set(tokens) <= {token for token, _ in found}

    eventually(have_come, what="replies")
    return sorted(found)


@contextlib.contextmanager
def listening(family: int):
    """A raw socket that sees the requests which arrive here."""
    try:
        with socket.socket(
            *((socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) if family == 4 else IPV6)
        ) as sniffer:
            sniffer.settimeout(5)
            yield sniffer
    except OSError:
        pytest.skip(f"no IPv{family} loopback here")


IPV6 = (socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)


def requests(sniffer: socket.socket, family: int, count: int) -> list[bytes]:
    """So many of our requests, as they came over the wire."""
    found: list[bytes] = []
    while len(found) < count:
        packet = sniffer.recv(65_536)
        packet = icmp.without_ip(packet) if family == 4 else packet
        if packet[0] == icmp.TYPES[family][0] and packet[4:6] == IDENT.to_bytes(2, "big"):
            found.append(packet)
    return found


@as_root
@in_batches
@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("size", [8, 56, 1_201])
def test_batches_and_single_packets_are_the_same_on_the_wire_and_back(job, family, size):
    if family == 6 and echo_socket.forbidden(6):
        pytest.skip(echo_socket.forbidden(6))
    sent, came = [], []
    with (
        listening(family) as sniffer,
        contextlib.closing(echo_socket.open_socket(int(sniffer.family), "", "")) as sock,
    ):
        for way in both(sock):
            way.lay(starts(job, family, size, len(TOKENS)), TOKENS, icmp.PLAIN + size)
            assert way.send() == len(TOKENS)
            sent.append(requests(sniffer, family, len(TOKENS)))
            came.append(awaited(way, TOKENS))

    assert sent[0] == sent[1]
    assert {len(packet) for packet in sent[0]} == {icmp.PLAIN + size}
    assert [token for token, _ in came[0]] == [token for token, _ in came[1]] == sorted(TOKENS)
    assert None not in {stamp for each in came for _, stamp in each}


@in_batches
@given(tokens=st.lists(st.integers(1, 2**64 - 1), min_size=2, max_size=post.BATCH), rounds=st.integers(1, 3))
def test_every_request_of_a_batch_has_the_checksum_of_its_bytes(tokens, rounds):
    job = Job(token=1, endpoint=parts_endpoint(), probe=IcmpProbe())
    found = route(job, {}, 0)
    assert not isinstance(found, str)
    due = [(found._replace(raw=post.raw_address(found.family, found.address)), 0)] * len(tokens)
    buffers = post.Buffers()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        way = post.Batched(buffers, sock, IDENT)
        for _ in range(rounds):
            way.lay(due, tokens, icmp.PLAIN + 56)
        out = buffers.outgoing(socket.AF_INET)

    for at, token in enumerate(tokens):
        packet = bytes(out.slots[at * out.width : (at + 1) * out.width])[-icmp.HEAD.size :]
        assert icmp.checksum(packet) == 0
        assert icmp.token_of(4, packet) == token


def parts_endpoint():
    from reachline.doors.addresses import parse_target

    return parse_target("icmp://127.0.0.1")


@as_root
@in_batches
def test_a_reply_with_ip_options_and_one_cut_short_are_taken_for_what_they_are():
    """By hand: nobody here sends such packets."""
    with (
        contextlib.closing(echo_socket.open_socket(socket.AF_INET, "", "")) as sock,
        socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as raw,
    ):
        reply = struct.pack("=BBHHHQ", 0, 0, 0, 0, 1, TOKENS[0]) + bytes(48)
        reply = reply[:2] + struct.pack("!H", icmp.checksum(reply)) + reply[4:]
        raw.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, b"\x01" * 4)
        raw.sendto(reply, ("127.0.0.1", 0))
        raw.sendto(reply[:9], ("127.0.0.1", 0))
        way = both(sock)[0]
        found = awaited(way, TOKENS[:1])

    assert [token for token, _ in found] == [TOKENS[0]]
    assert found[0][1] is not None


@pytest.mark.real
def test_a_full_send_queue_is_our_own_drop_and_no_loss(lab, job):
    with parts.veth() as wire:
        shape = f"tc qdisc add dev {wire.near_name} root tbf rate 64kbit burst 2000 limit 3000"
        if subprocess.run(shape.split(), capture_output=True, check=False).returncode:
            pytest.skip("this kernel has no tbf")

        async def main():
            async with lab() as engine:
                await engine.one(job(f"icmp://{wire.far}", token=999))
                jobs = [job(f"icmp://{wire.far}", token=number, timeout=8.0) for number in range(100)]
                return await engine.probe(*jobs, within=30)

        results = asyncio.run(main())

    refused = [result for result in results if not result.sent]
    assert 20 <= len(refused) <= 95
    told = {(each.failure, each.note, each.lost, each.rtt_us) for each in refused}
    assert told == {(Failure.AGENT, "the local send queue is full", 0, None)}
    assert sum(result.lost for result in results) == 0
    assert all(result.clock is Clock.RX_STAMP for result in results if not result.failure)


@as_root
def test_replies_that_find_no_room_here_are_our_own_drop_and_no_loss(lab, job):
    async def main():
        async with lab() as engine:
            await engine.one(job("icmp://127.0.0.1", token=999))
            (opened,) = engine.engine._echo._sockets.values()
            opened.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            jobs = [
                job("icmp://127.0.0.1", {"size": 1_000}, token=number, timeout=0.1, patience=0.1)
                for number in range(64)
            ]
            return await engine.probe(*jobs), engine.engine.counters().dropped

    results, dropped = asyncio.run(main())

    unheard = [result for result in results if result.failure]
    assert unheard
    assert dropped >= len(unheard), "some kernels count each twice"
    assert {(each.failure, each.note, each.lost) for each in unheard} == {
        (Failure.AGENT, "replies found no room in our receive buffer", 0)
    }


@pytest.mark.real
def test_a_vanished_interface_costs_its_own_lines_alone_and_is_taken_up_again(lab, job):
    with parts.veth() as wire:
        bound = job(f"icmp://{wire.far}", token=1, interface=wire.near_name)
        free = job("icmp://127.0.0.1", token=2)

        async def main():
            async with lab() as engine:
                before = await engine.probe(bound, free)
                subprocess.run(["ip", "link", "set", wire.near_name, "down"], check=True)
                during = await engine.probe(bound, free)
                subprocess.run(["ip", "link", "set", wire.near_name, "up"], check=True)
                await until(lambda: pinged(wire.far))
                after = await engine.probe(bound, free)
                return before, during, after, len(engine.engine._echo._sockets)

        before, during, after, sockets = asyncio.run(main())

    assert [result.failure for result in (*before, *after)] == [None] * 4
    assert during[0].failure in {Failure.UNREACHABLE, Failure.AGENT}
    assert during[0].sent == 0
    assert during[1].failure is None
    assert sockets == 2


@pytest.mark.skipif(bool(echo_socket.forbidden()), reason=echo_socket.forbidden())
def test_who_closes_the_engine_when_a_request_cannot_leave_hears_no_more(lab, job):
    seen = []

    async def main():
        async with lab() as engine:

            def done(*result):
                seen.append(result)
                engine.engine.close()

            absent = [job("icmp://127.0.0.1", source="198.51.100.7", token=number) for number in range(3)]
            await engine.probe(*absent)
            engine.engine._launcher.echo._done = done
            for one in absent:  # by their known routes: in one batch
                engine.engine.start(one, at=0.0)
            await until(lambda: seen)

    asyncio.run(main())

    assert [result[1] for result in seen] == [Failure.AGENT]


def pinged(address: str) -> bool:
    command = [parts.require("fping"), "-q", "-c1", "-t200", address]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone")
def test_batches_are_there_on_this_machine():
    assert mmsg.AVAILABLE
