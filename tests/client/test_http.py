from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trustme

from reachline.client.http import BODY_MOST, Answer, Connection, Lost, Request
from reachline.client.options import CenterAddress
from reachline.testing.serving import Service
from reachline.testing.wait import until

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]
GET = Request("GET", "/x", {"accept": "application/json"})
POST = Request("POST", "/x", {}, b"{}")


def answering(*answers: bytes, hang_up: bool = True) -> Serve:
    """A server that answers the requests of one connection with these bytes, in turn."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            head = await reader.readuntil(b"\r\n\r\n")
            length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
            if length:
                await reader.readexactly(int(length[0].split(b":")[1]))
            writer.write(answer)
            await writer.drain()
        if hang_up:
            writer.close()

    return serve


@asynccontextmanager
async def listening(serve: Serve, server: ssl.SSLContext | None = None) -> AsyncIterator[tuple[str, int]]:
    """A server that is gone with all its connections when the block ends; the client must have hung up by then."""

    async def to_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await serve(reader, writer)
        await reader.read()

    service = await Service(to_the_end).listen(tls=server)
    try:
        yield service.address
        await until(lambda: service.open == 0, what="the client to hang up")
    finally:
        await service.close()


def exchanged(
    serve: Serve, *requests: Request, timeout: float = 30.0, server: ssl.SSLContext | None = None, **more: Any
) -> list[Answer | Lost]:
    async def run() -> list[Answer | Lost]:
        async with listening(serve, server) as (host, port):
            center = CenterAddress("", more.get("host", host), port, server is not None, more.get("prefix", ""))
            connection = Connection(center, more.get("tls"))
            found = [await connection.exchange(request, timeout=timeout) for request in requests]
            connection.close()
            return found

    return asyncio.run(run())


OK = b'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nETag: "1.1"\r\n\r\nhi'
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nhi\r\n1\r\n!\r\n0\r\nTrailer: x\r\n\r\n"


def test_an_answer_with_its_length() -> None:
    assert exchanged(answering(OK), GET) == [Answer(200, {"content-length": "2", "etag": '"1.1"'}, b"hi")]


@pytest.mark.parametrize(
    ("raw", "status", "body"),
    [
        (CHUNKED, 200, b"hi!"),
        (b"HTTP/1.1 304 Not Modified\r\nETag: x\r\nContent-Length: 900\r\n\r\n", 304, b""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", 200, b"until the end"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, 200, b"hi"),
        (b"HTTP/1.1 200\nContent-Length: 1\n\nx", 200, b"x"),
    ],
)
def test_every_framing_of_an_answer_is_read(raw: bytes, status: int, body: bytes) -> None:
    (found,) = exchanged(answering(raw), GET)

    assert isinstance(found, Answer)
    assert (found.status, found.body) == (status, body)


def test_one_connection_serves_many_requests() -> None:
    accepted = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(1)
        await answering(OK, CHUNKED, OK)(reader, writer)

    found = exchanged(serve, GET, GET, GET)

    assert [each.body for each in found if isinstance(each, Answer)] == [b"hi", b"hi!", b"hi"]
    assert accepted == [1]


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH_9\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        f"HTTP/1.1 200 OK\r\nContent-Length: {BODY_MOST + 1}\r\n\r\n".encode(),
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 OK\r\na: " + b"b" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
    ],
    ids=lambda raw: repr(raw[:70]),
)
def test_what_breaks_http_or_our_limits_is_malformed(raw: bytes) -> None:
    (found,) = exchanged(answering(raw), GET)

    assert isinstance(found, Lost)
    assert found.is_malformed


@pytest.mark.parametrize("raw", [b"", b"HTTP/1.1 200", OK[:-1], CHUNKED[:-9]], ids=repr)
def test_an_answer_that_ends_early_is_lost(raw: bytes) -> None:
    (found,) = exchanged(answering(raw), POST)

    assert found == Lost("the connection was closed before the answer was complete", was_sent=True)


def test_a_center_that_never_answers_costs_its_timeout_and_no_more() -> None:
    (found,) = exchanged(answering(b"", hang_up=False), GET, timeout=1.0)

    assert found == Lost("no answer within 1 s", was_sent=True)


def test_nothing_was_sent_where_nobody_listens() -> None:
    async def run() -> Answer | Lost:
        async with listening(answering()) as (host, port):
            pass
        return await Connection(CenterAddress("", host, port, False, ""), None).exchange(POST, timeout=5)

    assert asyncio.run(run()) == Lost("Connection refused", was_sent=False)


def test_a_name_is_looked_up_and_one_that_does_not_exist_is_data() -> None:
    (found,) = exchanged(answering(OK), GET, host="localhost")
    (lost,) = exchanged(answering(OK), GET, host="no-such-host.invalid")

    assert isinstance(found, Answer)
    assert isinstance(lost, Lost)
    assert not lost.was_sent


def test_a_kept_connection_that_the_server_closed_costs_a_get_nothing() -> None:
    found = exchanged(answering(OK), GET, GET)

    assert [each.status for each in found if isinstance(each, Answer)] == [200, 200]


def test_a_kept_connection_that_the_server_closed_is_not_trusted_with_a_post() -> None:
    async def run() -> Answer | Lost:
        async with listening(answering(OK)) as (host, port):
            connection = Connection(CenterAddress("", host, port, False, ""), None)
            await connection.exchange(GET, timeout=5)
            assert connection._streams is not None
            await connection._streams[0].read()
            try:
                return await connection.exchange(POST, timeout=5)
            finally:
                connection.close()

    assert isinstance(asyncio.run(run()), Answer)


def test_an_exchange_that_is_cancelled_leaves_no_half_answer_to_the_next() -> None:
    hold = asyncio.Event()

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answering(OK, hang_up=False)(reader, writer)
        await reader.readuntil(b"\r\n\r\n")
        await hold.wait()
        writer.write(OK.replace(b"hi", b"no"))

    async def run() -> Answer | Lost:
        calls = iter([late, answering(OK)])

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await next(calls)(reader, writer)

        async with listening(serve) as (host, port):
            connection = Connection(CenterAddress("", host, port, False, ""), None)
            await connection.exchange(GET, timeout=5)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await connection.exchange(GET, timeout=5)
            hold.set()
            try:
                return await connection.exchange(GET, timeout=5)
            finally:
                connection.close()

    found = asyncio.run(run())

    assert isinstance(found, Answer)
    assert found.body == b"hi"


def test_the_request_carries_host_prefix_and_length() -> None:
    seen = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK)

    exchanged(serve, POST, prefix="/reach")

    lines = seen[0].split(b"\r\n")
    assert lines[0] == b"POST /reach/x HTTP/1.1"
    assert lines[1].startswith(b"host: 127.0.0.1:")
    assert b"content-length: 2" in lines


def test_tls_is_spoken_where_the_url_says_so_and_a_stranger_is_refused() -> None:
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)

    (found,) = exchanged(answering(OK), GET, server=server, tls=trusting)
    (lost,) = exchanged(answering(OK), GET, server=server, tls=ssl.create_default_context())

    assert isinstance(found, Answer)
    assert isinstance(lost, Lost)
    assert "CERTIFICATE_VERIFY_FAILED" in lost.reason
    assert not lost.was_sent


@pytest.mark.parametrize("host", ["center..example", "a" * 70 + ".example"])
@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_name_that_cannot_be_one_is_said_at_once(host: str) -> None:
    connection = Connection(CenterAddress("", host, 80, False, ""), None)

    found = asyncio.run(connection.exchange(GET, timeout=30.0))

    assert found == Lost("the name is none that can be looked up", was_sent=False)
