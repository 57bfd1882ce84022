"""Connections passed on byte by byte."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest
from tests.proxy.world import TCP, WITHIN, Loop, Proxy, cluster, document, drain, listener, running, until

from reachline.testing.serving import Service
from reachline.testing.wait import eventually


class Echo:
    """Says everything back in capitals, and `bye` once the client sends no more."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.paused = asyncio.Event()
        self.paused.set()
        self._service: Service = loop.do(Service(self._serve).listen())
        self.port = self._service.port

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self.paused.wait()
        while data := await reader.read(1 << 16):
            writer.write(data.upper())
            await writer.drain()
        writer.write(b"bye")

    def close(self) -> None:
        self._loop.do(self._service.close())


@pytest.fixture
def echo(far_loop: Loop) -> Iterator[Echo]:
    made = Echo(far_loop)
    yield made
    made.close()


def through(port: int, **more: object) -> dict[str, object]:
    filters = {"@type": TCP, "stat_prefix": "t", "cluster": "a", **more}
    return document([listener(filters)], [cluster("a", [port])])


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), WITHIN)


def test_bytes_go_both_ways_and_each_half_closes_by_itself(loop: Loop, echo: Echo) -> None:
    with running(loop, through(echo.port)) as proxy, connect(proxy) as client:
        client.sendall(b"some")
        assert until(client, b"SOME") == b"SOME"
        client.shutdown(socket.SHUT_WR)

        assert drain(client) == b"bye"
        eventually(lambda: proxy.figures()["tcp.t.downstream_cx_active"] == 0)
        assert proxy.figures()["cluster.a.upstream_cx_active"] == 0


def test_nothing_is_lost_of_many_bytes_for_one_that_takes_them_slowly(loop: Loop, echo: Echo) -> None:
    sent = b"".join(b"%07d " % number for number in range(1_000_000))
    with running(loop, through(echo.port)) as proxy, socket.socket() as client:
        client.settimeout(WITHIN)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)  # the kernel takes a part of most pieces
        client.connect(("127.0.0.1", proxy.port))

        def send() -> None:
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        found = drain(client)
        sender.join(WITHIN)

    assert found == sent + b"bye"


def test_a_client_is_read_no_faster_than_its_endpoint_takes_it(loop: Loop, echo: Echo) -> None:
    echo.paused.clear()
    with running(loop, through(echo.port), grace=0.0) as proxy, connect(proxy) as client:
        client.settimeout(0.3)
        sent = 0
        try:
            while sent < 64 << 20:
                sent += client.send(b"x" * (1 << 16))
        except TimeoutError:
            pass
        assert sent < 32 << 20
    echo.paused.set()


def test_a_silent_connection_is_ended(loop: Loop, echo: Echo) -> None:
    with running(loop, through(echo.port, idle_timeout="0.2s")) as proxy, connect(proxy) as client:
        assert drain(client) == b""
        assert proxy.figures()["tcp.t.idle_timeout"] == 1


def test_without_an_endpoint_the_client_is_let_go(loop: Loop) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with running(loop, through(unused.getsockname()[1])) as proxy, connect(proxy) as client:
            assert drain(client) == b""
            assert proxy.figures()["cluster.a.upstream_cx_connect_fail"] == 1
