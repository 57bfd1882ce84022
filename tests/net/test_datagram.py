"""DNS against a name server that lies, a port that is closed, and dnsmasq."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct

import pytest

from reachline.model import Clock, Failure
from reachline.testing import parts


class Server(asyncio.DatagramProtocol):
    """Answers each query with what `answer(query)` returns, in that order."""

    def __init__(self, answer) -> None:
        self._answer = answer
        self.peers: list[tuple[str, int]] = []

    def connection_made(self, transport) -> None:
        self._transport = transport

    def datagram_received(self, data, peer) -> None:
        self.peers.append(peer)
        for reply in self._answer(data):
            self._transport.sendto(reply, peer)


@contextlib.asynccontextmanager
async def name_server(answer):
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(lambda: Server(answer), local_addr=("127.0.0.1", 0))
    try:
        yield transport.get_extra_info("sockname")[1], server
    finally:
        transport.close()


def reply(query: bytes, *, flags: int = 0x8180, address: str = "10.0.0.9", number: int | None = None) -> bytes:
    head = struct.pack("!HHHHHH", int.from_bytes(query[:2], "big") if number is None else number, flags, 1, 1, 0, 0)
    return head + query[12:] + b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + socket.inet_aton(address)


def ask(lab, job, answer, options=None, **fields):
    async def main():
        async with name_server(answer) as (port, server), lab() as engine:
            one = job(f"dns://127.0.0.1:{port}/line.test", options, **fields)
            return await engine.one(one), await engine.one(one), server.peers

    return asyncio.run(main())


def test_an_answer_is_stamped_by_the_kernel_and_each_query_has_a_port_of_its_own(lab, job):
    first, second, peers = ask(lab, job, lambda query: [reply(query)], {"expect": "10.0.0.9"})

    for result in (first, second):
        assert (result.failure, result.clock, result.status, result.note) == (None, Clock.RX_STAMP, 0, "")
        assert 0 < result.rtt_us < 500_000
        assert (result.sent, result.lost) == (1, 0)
    assert len({port for _, port in peers}) == 2


@pytest.mark.parametrize(
    ("answer", "options", "failure", "status", "note"),
    [
        (lambda query: [reply(query)], {"expect": "10.0.0.8"}, Failure.STATUS, 0, "no 10.0.0.8 among the answers"),
        (lambda query: [reply(query)], {"min_ttl": 61}, Failure.STATUS, 0, "TTL 60, at least 61 is expected"),
        (lambda query: [reply(query)], {"min_ttl": 60}, None, 0, ""),
        (lambda query: [reply(query, flags=0x8183)], {}, Failure.STATUS, 3, "NXDOMAIN"),
        (lambda query: [reply(query, flags=0x8183)], {"rcode": "nxdomain"}, None, 3, ""),
        (lambda query: [reply(query, flags=0x8182)], {}, Failure.STATUS, 2, "SERVFAIL"),
        (lambda query: [query[:2] + b"\x81\x80garbage"], {}, Failure.PROTOCOL, 0, "DNS header cut short"),
    ],
)
def test_an_answer_is_judged_by_code_and_records(lab, job, answer, options, failure, status, note):
    result, _, _ = ask(lab, job, answer, options)

    assert (result.failure, result.status, result.note) == (failure, status, note)


def test_answers_to_other_questions_are_passed_over(lab, job):
    def forged(query):
        other = bytearray(query)
        other[13:17] = b"evil"
        wrong_id = int.from_bytes(query[:2], "big") ^ 1
        return [reply(query, number=wrong_id), reply(bytes(other)), b"", b"x", reply(query)]

    result, _, _ = ask(lab, job, forged, {"expect": "10.0.0.9"})

    assert result.failure is None


def test_silence_is_one_lost_datagram(lab, job):
    result, _, _ = ask(lab, job, lambda _: [], timeout=0.05, patience=0.05)

    assert (result.failure, result.late, result.sent, result.lost) == (Failure.TIMEOUT, True, 1, 1)
    assert result.note == "no answer"


def test_a_closed_port_is_refused(lab, job):
    async def main():
        async with lab() as engine:
            return await engine.one(job(f"dns://127.0.0.1:{parts.free_port(socket.SOCK_DGRAM)}/line.test"))

    result = asyncio.run(main())

    assert (result.failure, result.note) == (Failure.REFUSED, "connection refused")


def test_a_truncated_answer_is_asked_for_again_by_tcp_and_keeps_its_rtt(lab, job, serve):
    async def by_stream(reader, writer):
        size = int.from_bytes(await reader.readexactly(2), "big")
        query = await reader.readexactly(size)
        whole = reply(query)
        writer.write(len(whole).to_bytes(2, "big") + whole[:10])
        await writer.drain()
        writer.write(whole[10:])
        await reader.read()

    async def main():
        async with serve(by_stream) as port, lab() as engine:
            loop = asyncio.get_running_loop()
            truncated = lambda query: [struct.pack("!2sHHHHH", query[:2], 0x8380, 1, 0, 0, 0) + query[12:]]  # noqa: E731
            transport, _ = await loop.create_datagram_endpoint(
                lambda: Server(truncated), local_addr=("127.0.0.1", port)
            )
            try:
                return await engine.one(job(f"dns://127.0.0.1:{port}/line.test", {"expect": "10.0.0.9"}))
            finally:
                transport.close()

    result = asyncio.run(main())

    assert (result.failure, result.status, result.clock) == (None, 0, Clock.RX_STAMP)
    assert (result.sent, result.lost) == (2, 0)


@pytest.mark.real
def test_dnsmasq_answers_and_a_server_option_asks_it_about_any_line(lab, job, tmp_path):
    with parts.dnsmasq(tmp_path, records={"line.test": "10.1.2.3"}) as dnsmasq:

        async def main():
            async with lab() as engine:
                server = {"server": f"127.0.0.1:{dnsmasq.port}"}
                return await engine.probe(
                    job(f"dns://127.0.0.1:{dnsmasq.port}/line.test", {"expect": "10.1.2.3"}, token=1),
                    job("https://line.test/", server | {"expect": "10.1.2.3"}, kind="dns", token=2),
                    job("https://line.test/", server | {"type": "AAAA"}, kind="dns", token=3),
                    job(f"dns://127.0.0.1:{dnsmasq.port}/other.test", token=4),
                )

        direct, about, empty, unknown = asyncio.run(main())

    assert (direct.failure, direct.clock) == (None, Clock.RX_STAMP)
    assert about.failure is None
    assert (empty.failure, empty.note) == (Failure.STATUS, "REFUSED")
    assert (unknown.failure, unknown.note) == (Failure.STATUS, "REFUSED")
