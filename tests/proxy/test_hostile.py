"""Clients and endpoints that mean no good, or know no better: what they send, take and leave costs nobody else anything."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.proxy.world import (  # fmt: skip
    LARGE,
    WITHIN,
    Endpoint,
    Loop,
    Proxy,
    ask,
    body,
    cluster,
    drain,
    forward,
    get,
    http,
    running,
    status,
    until,
)

from reachline.proxy.logs import File
from reachline.testing.wait import eventually

DIRECT = {"match": {"prefix": "/direct"}, "direct_response": {"status": 200, "body": {"inline_string": "x" * 3_000}}}


@pytest.fixture
def proxy(loop: Loop, far_loop: Loop, endpoint: Endpoint) -> Iterator[Proxy]:
    wordy = Endpoint(far_loop, b"z" * 3_000)
    more = {"http_protocol_options": {"accept_http_10": True, "default_host_for_http_10": "a"}}
    routes = [DIRECT, forward("/wordy", "wordy"), forward("/", "a")]
    given = http(routes, [cluster("a", [endpoint.port]), cluster("wordy", [wordy.port])], **more)
    with running(loop, given) as found:
        yield found
    wordy.close()


def connect(port: int, *, room: int = 1 << 16) -> socket.socket:
    """A client that holds little of what it is sent."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    made.settimeout(WITHIN)
    made.connect(("127.0.0.1", port))
    return made


@pytest.mark.parametrize("path", ["/direct", "/wordy"])
def test_who_sends_ahead_and_takes_no_answers_is_read_no_further(proxy: Proxy, path: str) -> None:
    one = get(path, last=False, more=b"x-filler: %b\r\n" % (b"y" * 4_000))
    all_of_it = one * ((48 << 20) // len(one))
    with connect(proxy.port) as client:
        client.settimeout(0.2)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < len(all_of_it):
                sent += client.send(memoryview(all_of_it)[sent : sent + (1 << 16)])
        assert sent < 32 << 20  # what kernels hold, and a read of ours
        client.settimeout(WITHIN)
        # By a last request, not by half a close, which would take away the answer that is awaited then.
        rest = one[sent % len(one) :] if sent % len(one) else b""
        ending = threading.Thread(target=client.sendall, args=(rest + get(path),))
        ending.start()

        # And what it did send is answered, once it takes that.
        assert drain(client).count(b"HTTP/1.1 200 OK") == -(-sent // len(one)) + 1
        ending.join(WITHIN)


def test_requests_ahead_of_the_end_of_what_a_client_sends_are_all_answered(proxy: Proxy) -> None:
    with connect(proxy.port) as client:
        client.sendall(get("/direct", last=False) * 5)
        client.shutdown(socket.SHUT_WR)

        assert drain(client).count(b"HTTP/1.1 200 OK") == 5


def test_a_client_that_takes_nothing_is_let_go(loop: Loop, endpoint: Endpoint) -> None:
    more = {"stream_idle_timeout": "0.3s", "delayed_close_timeout": "0.2s"}
    given = http([forward("/", "a")], [cluster("a", [endpoint.port])], **more)
    with running(loop, given) as proxy, connect(proxy.port) as client:
        client.sendall(get("/large"))

        eventually(lambda: proxy.figures()["http.in.downstream_rq_idle_timeout"] == 1)
        eventually(lambda: proxy.figures()["http.in.downstream_cx_active"] == 0)


def test_a_client_that_takes_its_last_answer_slowly_gets_all_of_it(loop: Loop, endpoint: Endpoint) -> None:
    given = http([forward("/", "a")], [cluster("a", [endpoint.port])], delayed_close_timeout="0.3s")
    with running(loop, given) as proxy, connect(proxy.port, room=1 << 20) as client:
        client.sendall(get("/large"))
        found = len(until(client, b"\r\n\r\n"))
        while proxy.figures()["cluster.a.upstream_rq_completed"] == 0:
            found += len(client.recv(1 << 20))
        while data := client.recv(1 << 14):  # from here on the proxy waits for nothing but this client
            found += len(data)
            proxy.figures()

    assert found > LARGE


def test_a_client_of_http_1_0_sees_where_an_answer_ends(proxy: Proxy) -> None:
    for path in (b"/chunk", b"/eof"):
        answer = ask(proxy.port, b"GET " + path + b" HTTP/1.0\r\nconnection: keep-alive\r\n\r\n")

        assert b"connection: close\r\n" in answer
        assert body(answer) in (b"abc", b"body")


def test_clients_that_are_gone_before_they_are_here_are_no_trouble(loop: Loop, proxy: Proxy) -> None:
    told: list[dict[str, Any]] = []
    loop.loop.set_exception_handler(lambda _, context: told.append(context))
    try:
        for _ in range(30):
            client = socket.create_connection(("127.0.0.1", proxy.port))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset at once
            client.close()
        assert status(ask(proxy.port, get("/x"))) == 200
        eventually(lambda: proxy.figures()["http.in.downstream_cx_active"] == 0)
    finally:
        loop.loop.set_exception_handler(None)

    assert told == []


def test_a_tunnel_that_nobody_allowed_is_refused(loop: Loop, endpoint: Endpoint) -> None:
    given = http([{"match": {"connect_matcher": {}}, "route": {"cluster": "a"}}], [cluster("a", [endpoint.port])])
    with running(loop, given) as proxy:
        answer = ask(proxy.port, b"CONNECT a:80 HTTP/1.1\r\nhost: a:80\r\n\r\nGET /x HTTP/1.1\r\nhost: a\r\n\r\n")

    assert (status(answer), endpoint.asked) == (403, [])


def test_a_port_of_thousands_of_digits_is_a_port_like_another(loop: Loop, endpoint: Endpoint) -> None:
    given = http([forward("/", "a")], [cluster("a", [endpoint.port])], strip_matching_host_port=True)
    with running(loop, given) as proxy:
        answer = ask(proxy.port, b"GET /x HTTP/1.1\r\nhost: a:" + b"9" * 5_000 + b"\r\nconnection: close\r\n\r\n")

    assert status(answer) == 200


def test_a_body_is_not_the_next_request_where_the_endpoint_hears_nothing_of_another_protocol(
    proxy: Proxy, endpoint: Endpoint
) -> None:
    inner = get("/smuggled")
    wish = b"connection: upgrade, close\r\nupgrade: h2c\r\ncontent-length: %d\r\n" % len(inner)

    answer = ask(proxy.port, get("/x", method="POST", last=False, more=wish) + inner)

    assert answer.count(b"HTTP/1.1 200") == 1
    (asked,) = endpoint.asked
    assert asked.endswith(b"\r\n\r\n" + inner)


def test_what_one_client_says_of_its_scheme_decides_nothing_for_others(loop: Loop, endpoint: Endpoint) -> None:
    given = http([forward("/", "a")], [cluster("a", [endpoint.port])])
    manager = given["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    manager["route_config"]["virtual_hosts"][0]["require_tls"] = "ALL"
    with running(loop, given) as proxy:
        found = [
            status(ask(proxy.port, get("/x", more=more)))
            for more in (b"", b"x-forwarded-proto: https\r\n", b"", b"x-forwarded-proto: javascript\r\n")
        ]

    assert found == [301, 200, 301, 301]


def test_a_redirect_goes_to_no_scheme_of_the_clients_own(loop: Loop) -> None:
    given = http([{"match": {"prefix": "/"}, "redirect": {"path_redirect": "/y"}}], [])
    with running(loop, given) as proxy:
        answer = ask(proxy.port, get("/x", more=b"x-forwarded-proto: javascript\r\n"))

    assert b"location: http://a.example/y\r\n" in answer


def test_a_body_of_which_a_part_was_sent_is_tried_again_whole(loop: Loop, far_loop: Loop) -> None:
    asked: list[bytes] = []

    async def answering(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        asked.append(await reader.readexactly(16 if asked else 8))
        writer.write(b"HTTP/1.1 %d So\r\ncontent-length: 0\r\n\r\n" % (503 if len(asked) == 1 else 200))
        return True

    server = Endpoint(far_loop, answering=answering)
    back_off = {"base_interval": "3s", "max_interval": "3s"}
    route = forward("/", "a", retry_policy={"retry_on": "5xx", "retry_back_off": back_off})
    given = http([{**route, "per_request_buffer_limit_bytes": 10}], [cluster("a", [server.port])])
    with running(loop, given) as proxy, connect(proxy.port) as client:
        client.sendall(get("/", method="POST", more=b"content-length: 16\r\n") + b"firsthal")
        eventually(lambda: proxy.figures()["cluster.a.upstream_rq_retry"] == 1)
        client.sendall(b"f,second")
        answer = drain(client)
    server.close()

    assert (status(answer), asked) == (200, [b"firsthal", b"firsthalf,second"])


def test_a_body_whose_length_is_taken_away_has_an_end_all_the_same(loop: Loop, endpoint: Endpoint) -> None:
    gone = {"request_headers_to_remove": ["content-length"], "response_headers_to_remove": ["content-length"]}
    with running(loop, http([{**forward("/", "a"), **gone}], [cluster("a", [endpoint.port])])) as proxy:
        answer = ask(proxy.port, get("/x", method="POST", more=b"content-length: 3\r\n") + b"abc")

    assert endpoint.asked[0].endswith(b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
    assert b"transfer-encoding: chunked\r\n" in answer
    assert body(answer) == b"3\r\none\r\n0\r\n\r\n"


def test_what_another_proxy_said_of_itself_is_not_said_beside_ours(loop: Loop, far_loop: Loop) -> None:
    async def answering(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        assert head.count(b"x-envoy-attempt-count: ") == 1
        assert b"x-envoy-attempt-count: 1\r\n" in head
        own = b"x-envoy-upstream-service-time: 12345\r\nx-envoy-attempt-count: 7\r\n"
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n" + own + b"\r\n")
        return True

    server = Endpoint(far_loop, answering=answering)
    given = http([forward("/", "a")], [cluster("a", [server.port])])
    manager = given["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    manager["route_config"]["virtual_hosts"][0] |= {
        "include_request_attempt_count": True,
        "include_attempt_count_in_response": True,
    }
    with running(loop, given) as proxy:
        answer = ask(proxy.port, get("/x", more=b"x-envoy-attempt-count: 9\r\n"))
    server.close()

    assert status(answer) == 200
    assert answer.count(b"x-envoy-upstream-service-time: ") == answer.count(b"x-envoy-attempt-count: 1\r\n") == 1
    assert b"12345" not in answer


def test_a_log_whose_reader_does_not_read_holds_nothing_up(tmp_path: Path) -> None:
    pipe = tmp_path / "log"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    file = File(str(pipe))
    for _ in range(3_000):
        file.add(b"x" * 1_023 + b"\n")
    lost = file.lost
    file.close()
    os.close(reader)

    assert lost > 1_000


def test_an_answer_that_stands_in_a_file_is_what_the_file_says_now(loop: Loop, tmp_path: Path) -> None:
    file = tmp_path / "answer"
    file.write_text("before")
    route = {"match": {"prefix": "/"}, "direct_response": {"status": 200, "body": {"filename": str(file)}}}
    with running(loop, http([route], [])) as proxy:
        before = ask(proxy.port, get("/"))
        file.write_text("after")
        after = ask(proxy.port, get("/"))
        file.unlink()
        gone = ask(proxy.port, get("/"))

    assert (body(before), body(after), status(gone)) == (b"before", b"after", 500)
