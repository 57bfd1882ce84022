"""Requests through a running proxy: connections kept, order, both ways at the other's pace, and what becomes of broken ends."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from tests.proxy.world import (
    LARGE,
    WITHIN,
    Endpoint,
    Loop,
    Proxy,
    ask,
    cluster,
    drain,
    forward,
    get,
    http,
    running,
    status,
    until,
)

from reachline.testing.wait import eventually


@pytest.fixture
def proxy(loop: Loop, endpoint: Endpoint) -> Iterator[Proxy]:
    routes = [forward("/short", "a", timeout="0.2s", prefix_rewrite="/hang"), forward("/", "a", timeout="0s")]
    given = http(routes, [cluster("a", [endpoint.port])], upgrade_configs=[{"upgrade_type": "websocket"}])
    with running(loop, given) as found:
        yield found


@pytest.fixture
def impatient(loop: Loop, endpoint: Endpoint, request: pytest.FixtureRequest) -> Iterator[Proxy]:
    """With the one limit that its test is of."""
    with running(loop, http([forward("/", "a")], [cluster("a", [endpoint.port])], **request.param)) as found:
        yield found


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=WITHIN)


def test_connections_to_both_sides_are_kept(proxy: Proxy, endpoint: Endpoint) -> None:
    with connect(proxy.port) as client:
        for _ in range(20):
            client.sendall(get("/x", last=False))
            assert until(client, b"\r\n\r\none").startswith(b"HTTP/1.1 200 OK")

    assert (len(endpoint.asked), endpoint.connections) == (20, 1)


def test_requests_sent_ahead_are_answered_in_order(proxy: Proxy, endpoint: Endpoint) -> None:
    paths = [f"/{number}" for number in (201, 404, 200, 500, 418)]

    answer = ask(proxy.port, b"".join(get(path, last=path == paths[-1]) for path in paths))

    found = [int(each.split(b" ")[0]) for each in answer.split(b"HTTP/1.1 ")[1:]]
    assert found == [201, 404, 200, 500, 418]


def test_a_request_that_breaks_the_protocol_does_not_take_those_before_it(proxy: Proxy) -> None:
    answer = ask(proxy.port, get("/201", last=False) + b"BAD\r\n\r\n")

    assert [each[:3] for each in answer.split(b"HTTP/1.1 ")[1:]] == [b"201", b"400"]


def test_a_large_answer_is_read_no_faster_than_it_is_taken(loop: Loop, endpoint: Endpoint) -> None:
    given = http([forward("/", "a")], [cluster("a", [endpoint.port])])
    with running(loop, given) as proxy, connect(proxy.port) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 17)
        client.sendall(get("/large"))
        head = until(client, b"\r\n\r\n")
        seen: list[int] = []

        def stands_still() -> bool:
            seen.append(proxy.figures()["http.in.downstream_cx_tx_bytes_total"])
            return len(seen) > 9 and len(set(seen[-10:])) == 1

        eventually(stands_still)
        rest = drain(client)

    assert seen[-1] < LARGE * 3 / 4
    assert len(head) + len(rest) - (head + rest).index(b"\r\n\r\n") - 4 == LARGE


def test_a_large_body_is_read_no_faster_than_the_endpoint_takes_it(loop: Loop, endpoint: Endpoint) -> None:
    size = 64 << 20
    given = http([forward("/", "a")], [cluster("a", [endpoint.port])])
    with running(loop, given, grace=0.0) as proxy, connect(proxy.port) as client:
        client.sendall(get("/slurp", method="POST", more=b"content-length: %d\r\n" % size))
        client.settimeout(0.3)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < size:
                sent += client.send(b"x" * min(1 << 16, size - sent))
        assert sent < 32 << 20  # what the kernel holds for three ends, and a mebibyte of ours


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def say_no_more(client: socket.socket) -> None:
    client.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("go", [reset, say_no_more])
def test_the_endpoint_is_left_when_the_client_goes(
    proxy: Proxy, endpoint: Endpoint, go: Callable[[socket.socket], None]
) -> None:
    with connect(proxy.port) as client:
        client.sendall(get("/hang", last=False))
        eventually(lambda: endpoint.asked)
        go(client)

        # Also by half a close, as in Envoy: most who close say nothing else, and few wait for an answer after it.
        eventually(lambda: proxy.figures()["cluster.a.upstream_rq_active"] == 0)
        eventually(lambda: proxy.figures()["cluster.a.upstream_cx_active"] == 0)
        eventually(lambda: proxy.figures()["http.in.downstream_cx_active"] == 0)


def test_an_answer_that_breaks_off_is_not_ended_as_if_it_were_whole(proxy: Proxy) -> None:
    answer = ask(proxy.port, get("/partial"))

    assert answer.endswith(b"\r\n\r\nabc")
    assert b"content-length: 100" in answer


def test_an_answer_before_the_request_is_whole_ends_both_connections(proxy: Proxy, endpoint: Endpoint) -> None:
    answer = ask(proxy.port, get("/early", method="POST", more=b"content-length: 10\r\n", last=False) + b"ab")

    assert answer.endswith(b"early")
    assert b"connection: close" in answer
    assert status(ask(proxy.port, get("/x"))) == 200
    assert endpoint.connections == 2


@pytest.mark.parametrize("impatient", [{"request_headers_timeout": "0.2s"}], indirect=True)
def test_a_head_that_comes_slowly_is_not_waited_for(impatient: Proxy) -> None:
    with connect(impatient.port) as client:
        client.sendall(b"GET / HTTP/1.1\r\nhost: a")

        assert status(drain(client)) == 408


@pytest.mark.parametrize("impatient", [{"request_timeout": "0.4s"}], indirect=True)
def test_a_body_that_comes_slowly_is_not_waited_for(impatient: Proxy) -> None:
    with connect(impatient.port) as client:
        client.sendall(get("/x", method="POST", more=b"content-length: 10\r\n", last=False) + b"ab")

        assert drain(client).endswith(b"request timeout")


@pytest.mark.parametrize("impatient", [{"common_http_protocol_options": {"idle_timeout": "0.3s"}}], indirect=True)
def test_a_silent_connection_is_ended(impatient: Proxy) -> None:
    with connect(impatient.port) as client:
        assert drain(client) == b""


def test_a_routes_time_is_its_answers(proxy: Proxy) -> None:
    answer = ask(proxy.port, get("/short"))

    assert status(answer) == 504
    assert answer.endswith(b"upstream request timeout")


def test_another_protocol_is_passed_on_both_ways(loop: Loop, far_loop: Loop) -> None:
    import asyncio

    async def echo(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        assert b"upgrade: websocket\r\n" in head
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello ")
        while data := await reader.read(1_000):
            writer.write(data.upper())
        writer.write(b"bye")
        return False

    server = Endpoint(far_loop, answering=echo)
    given = http([forward("/", "a")], [cluster("a", [server.port])], upgrade_configs=[{"upgrade_type": "websocket"}])
    with running(loop, given) as proxy, connect(proxy.port) as client:
        client.sendall(b"GET /ws HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nahead ")
        head = until(client, b"AHEAD ")
        client.sendall(b"frames")
        until(client, b"FRAMES")
        client.shutdown(socket.SHUT_WR)

        assert drain(client) == b"bye"
    assert head.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
    assert b"connection: upgrade\r\n" in head
    server.close()


def test_an_upgrade_that_the_endpoint_declines_is_an_ordinary_answer_and_requests_go_on(proxy: Proxy) -> None:
    wish = b"GET /x HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
    with connect(proxy.port) as client:
        client.sendall(wish)
        assert until(client, b"one").startswith(b"HTTP/1.1 200")
        client.sendall(wish + get("/404"))

        assert [each[:3] for each in drain(client).split(b"HTTP/1.1 ")[1:]] == [b"200", b"404"]


def test_told_to_stop_it_ends_once_what_is_under_way_is_over(loop: Loop, endpoint: Endpoint) -> None:
    with running(loop, http([forward("/", "a")], [cluster("a", [endpoint.port])])) as proxy:
        with connect(proxy.port) as client, connect(proxy.port) as idle:
            idle.sendall(get("/x", last=False))
            until(idle, b"one")
            client.sendall(get("/held", last=False))
            eventually(lambda: len(endpoint.asked) == 2)
            proxy.stop()
            assert drain(idle) == b""
            with pytest.raises(ConnectionRefusedError):
                connect(proxy.port).close()
            endpoint.gate.set()
            answer = drain(client)
        proxy.done()

    assert answer.endswith(b"held")
    assert b"connection: close\r\n" in answer


def test_who_waits_to_be_accepted_when_it_is_told_to_stop_is_answered(loop: Loop) -> None:
    direct = {"match": {"prefix": "/"}, "direct_response": {"status": 200}}
    held = threading.Event()
    with running(loop, http([direct], []), grace=60.0) as proxy, contextlib.ExitStack() as stack:
        loop.loop.call_soon_threadsafe(held.wait)
        # More than are taken in the turns of the loop until it hears of its end.
        clients = [stack.enter_context(connect(proxy.port)) for _ in range(400)]
        for client in clients:
            client.sendall(get("/", last=False))
        proxy.stop()
        held.set()

        assert Counter(drain(client)[:12] for client in clients) == {b"HTTP/1.1 200": 400}


def test_what_is_not_over_within_its_grace_is_cut_off(loop: Loop, endpoint: Endpoint) -> None:
    given = http([forward("/", "a")], [cluster("a", [endpoint.port])])
    with running(loop, given, grace=0.1) as proxy, connect(proxy.port) as client:
        client.sendall(get("/hang"))
        eventually(lambda: endpoint.asked)
        proxy.stop()
        proxy.done()

        assert drain(client) == b""
