"""Endpoints that speak HTTP/2: requests share connections, end alone, wait for windows, and are told of as Envoy tells of them."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import trustme
from tests.proxy.asking import Client, head
from tests.proxy.serving import Endpoint2
from tests.proxy.world import (
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

from reachline.testing.wait import eventually

OPTIONS = "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
UP = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
LARGE = 4 << 20


def speaking(**more: Any) -> dict[str, Any]:
    """Of a cluster whose endpoints speak HTTP/2."""
    options = {"@type": OPTIONS, "explicit_http_config": {"http2_protocol_options": more.pop("http2", {})}, **more}
    return {"typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options}}


@pytest.fixture
def endpoint(far_loop: Loop) -> Iterator[Endpoint2]:
    made = Endpoint2(far_loop)
    yield made
    made.close()


@contextlib.contextmanager
def proxied(
    loop: Loop,
    endpoint: Endpoint2,
    *,
    route: dict[str, Any] | None = None,
    own: dict[str, Any] | None = None,
    grace: float = 5.0,
    **more: Any,
) -> Iterator[Proxy]:
    given = http(
        [forward("/", "a", **(route or {}))], [cluster("a", [endpoint.port], **speaking(**more), **(own or {}))]
    )
    with running(loop, given, grace=grace) as proxy:
        yield proxy


def asked(endpoint: Endpoint2) -> dict[bytes, bytes]:
    return dict(endpoint.asked[-1].headers)


def test_a_request_of_http_1_is_said_in_http_2_and_its_answer_back(loop: Loop, endpoint: Endpoint2) -> None:
    with proxied(loop, endpoint) as proxy:
        answer = ask(
            proxy.port, get("/x?y=1", method="POST", more=b"content-length: 3\r\nX-A: b\r\nte: trailers\r\n") + b"abc"
        )

    said = asked(endpoint)
    assert [name for name, _ in endpoint.asked[-1].headers][:4] == [b":method", b":scheme", b":authority", b":path"]
    assert (said[b":method"], said[b":scheme"], said[b":authority"], said[b":path"]) == (
        b"POST",
        b"http",
        b"a.example",
        b"/x?y=1",
    )
    assert (said[b"x-a"], said[b"content-length"], said[b"te"], endpoint.asked[-1].body) == (
        b"b",
        b"3",
        b"trailers",
        b"abc",
    )
    assert not {b"host", b"connection"} & said.keys()
    assert (status(answer), body(answer), b"x-foo: bar" in answer) == (200, b"one", True)


@pytest.mark.parametrize(
    ("path", "method", "line"),
    [("/nothing", "GET", b"content-length: 0"), ("/204", "GET", b""), ("/trailers", "GET", b"transfer-encoding: chunked"), ("/x", "HEAD", b"content-length: 3"), ("/interim", "GET", b"content-length: 0")],
)  # fmt: skip
def test_the_framing_of_http_1_says_what_http_2_says_by_its_end(
    loop: Loop, endpoint: Endpoint2, path: str, method: str, line: bytes
) -> None:
    with proxied(loop, endpoint) as proxy:
        first = ask(proxy.port, get(path, method=method))
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=WITHIN) as client:
            client.sendall(get(path, method=method, last=False) + get("/x"))
            both = drain(client)

    assert line in first
    assert both.count(b"HTTP/1.1 20") == 2


def test_trailers_pass_both_ways(loop: Loop, endpoint: Endpoint2) -> None:
    with proxied(loop, endpoint) as proxy, Client(proxy.port) as client:
        came = client.answer(head("/trailers", method="POST"), b"abc", [(b"x-t", b"1")])

    assert (came.status, came.body, came.trailers) == (b"200", b"one", [(b"grpc-status", b"0"), (b"t", b"v")])
    assert endpoint.asked[-1].trailers == [(b"x-t", b"1")]


def test_a_body_without_a_length_passes_both_ways(loop: Loop, endpoint: Endpoint2) -> None:
    chunks = b"3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n"
    with proxied(loop, endpoint) as proxy:
        answer = ask(proxy.port, get("/echo", method="POST", more=b"transfer-encoding: chunked\r\n") + chunks)

    assert endpoint.asked[-1].body == b"abcdefg"
    assert b"transfer-encoding: chunked" in answer
    assert re.sub(rb"[0-9a-f]+\r\n|\r\n", b"", body(answer)) == b"abcdefg"


def test_requests_share_a_connection_until_it_is_full(loop: Loop, far_loop: Loop) -> None:
    endpoint = Endpoint2(far_loop, streams=3)
    with contextlib.closing(endpoint), proxied(loop, endpoint) as proxy, Client(proxy.port) as client:
        client.answer(head("/x"))
        first = [client.ask(head("/held")) for _ in range(3)]
        eventually(lambda: len(endpoint.asked) == 4)
        shared = endpoint.connections
        more = [client.ask(head("/held")) for _ in range(2)]
        eventually(lambda: len(endpoint.asked) == 6)
        endpoint.gate.set()
        bodies = [client.came(stream).body for stream in (*first, *more)]
        figures = proxy.figures()

    assert (shared, endpoint.connections) == (1, 2)
    assert bodies == [b"held"] * 5
    assert figures["cluster.a.upstream_cx_total"] == 2


def test_a_connection_may_be_kept_to_so_many_requests(loop: Loop, endpoint: Endpoint2) -> None:
    with proxied(loop, endpoint, common_http_protocol_options={"max_requests_per_connection": 2}) as proxy:
        for _ in range(4):
            assert status(ask(proxy.port, get("/x"))) == 200
        eventually(lambda: endpoint.open == 0)

    assert [each.connection for each in endpoint.asked] == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("path", "code", "words"),
    [
        ("/reset", 503, b"reset reason: remote reset"), ("/refused", 503, b"reset reason: remote refused stream reset"),
        ("/close", 503, b"reset reason: connection termination"), ("/garbage", 502, b"reset reason: protocol error"), ("/malformed", 502, b"protocol error"),
    ],
)  # fmt: skip
def test_what_the_endpoint_breaks_off_is_told_as_envoy_tells_it(
    loop: Loop, endpoint: Endpoint2, path: str, code: int, words: bytes
) -> None:
    with proxied(loop, endpoint) as proxy:
        answer = ask(proxy.port, get(path))
        after = ask(proxy.port, get("/x"))

    assert status(answer) == code
    assert words in body(answer)
    assert status(after) == 200


def test_one_stream_s_reset_is_not_the_others_affair(loop: Loop, endpoint: Endpoint2) -> None:
    with proxied(loop, endpoint) as proxy, Client(proxy.port) as client:
        held = client.ask(head("/held"))
        eventually(lambda: endpoint.asked)
        cut = client.answer(head("/partial"))
        endpoint.gate.set()

        assert (cut.status, cut.body, cut.is_whole) == (b"200", b"abc", False)
        assert client.came(held).body == b"held"
    assert endpoint.connections == 1


def test_a_leaving_endpoint_answers_what_it_took_and_the_next_request_goes_elsewhere(
    loop: Loop, endpoint: Endpoint2
) -> None:
    with proxied(loop, endpoint) as proxy:
        answers = [ask(proxy.port, get(path)) for path in ("/x", "/leave", "/x")]

    assert [body(each) for each in answers[::2]] == [b"one", b"one"]
    assert b"last" in answers[1]
    assert [each.connection for each in endpoint.asked] == [1, 1, 2]


@pytest.mark.parametrize(("path", "tries"), [("/refused", 3), ("/reset", 1)])
def test_a_refused_stream_is_tried_again_where_the_route_says_so(
    loop: Loop, endpoint: Endpoint2, path: str, tries: int
) -> None:
    with proxied(loop, endpoint, route={"retry_policy": {"retry_on": "refused-stream", "num_retries": 2}}) as proxy:
        answer = ask(proxy.port, get(path))

    assert status(answer) == 503
    assert len(endpoint.asked) == tries


def test_a_client_that_leaves_takes_its_stream_with_it(loop: Loop, endpoint: Endpoint2) -> None:
    with proxied(loop, endpoint) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=WITHIN) as client:
            client.sendall(get("/hang"))
            eventually(lambda: endpoint.asked)
        eventually(lambda: endpoint.asked[0].reset is not None)

        assert status(ask(proxy.port, get("/x"))) == 200
    assert endpoint.connections == 1


def test_a_large_body_reaches_an_endpoint_that_takes_it_slowly_and_no_more_is_held(
    loop: Loop, endpoint: Endpoint2
) -> None:
    endpoint.takes = False
    with (
        proxied(loop, endpoint, grace=0.1) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), timeout=WITHIN) as client,
    ):
        client.sendall(get("/slurp", method="POST", more=b"content-length: %d\r\n" % (64 << 20)))
        client.settimeout(0.5)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < 64 << 20:
                sent += client.send(b"x" * (1 << 16))

        assert len(endpoint.asked[0].body) == 65_535
    assert sent < 32 << 20


def test_a_large_answer_reaches_a_client_that_takes_it_late(loop: Loop, endpoint: Endpoint2) -> None:
    with (
        proxied(loop, endpoint) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), timeout=WITHIN) as client,
    ):
        client.sendall(get("/large"))
        until(client, b"\r\n\r\n")
        beside = ask(proxy.port, get("/x"))  # one slow client holds up nobody else
        rest = drain(client)

    assert body(beside) == b"one"
    assert len(rest) > LARGE - (1 << 17)


def test_another_protocol_goes_by_extended_connect(loop: Loop, far_loop: Loop) -> None:
    endpoint = Endpoint2(far_loop, connects=True)
    upgrade = b"connection: upgrade\r\nupgrade: websocket\r\n"
    with (
        contextlib.closing(endpoint),
        proxied(
            loop, endpoint, route={"upgrade_configs": [{"upgrade_type": "websocket"}]}, http2={"allow_connect": True}
        ) as proxy,
    ):
        assert status(ask(proxy.port, get("/x"))) == 200
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=WITHIN) as client:
            client.sendall(get("/ws", more=upgrade, last=False))
            switched = until(client, b"\r\n\r\n")
            client.sendall(b"abc")
            echoed = until(client, b"ABC")
            client.shutdown(socket.SHUT_WR)
            rest = drain(client)

    said = asked(endpoint)
    assert (said[b":method"], said[b":protocol"], said[b":path"]) == (b"CONNECT", b"websocket", b"/ws")
    assert (switched.split(b"\r\n")[0], echoed, rest) == (b"HTTP/1.1 101 Switching Protocols", b"ABC", b"")


def test_idle_connections_end_and_so_do_those_of_a_proxy_that_stops(loop: Loop, endpoint: Endpoint2) -> None:
    with proxied(loop, endpoint, common_http_protocol_options={"idle_timeout": "0.5s"}) as proxy:
        ask(proxy.port, get("/x"))
        eventually(lambda: endpoint.open == 0)

        assert status(ask(proxy.port, get("/x"))) == 200
    eventually(lambda: endpoint.open == 0)


def test_many_clients_at_once(loop: Loop, endpoint: Endpoint2) -> None:
    with proxied(loop, endpoint) as proxy:
        bad: list[bytes] = []

        def client(name: int) -> None:
            for at in range(20):
                sent = b"%d-%d" % (name, at) * 50
                answer = ask(proxy.port, get("/echo", method="POST", more=b"content-length: %d\r\n" % len(sent)) + sent)
                if sent not in answer:
                    bad.append(answer)

        threads = [threading.Thread(target=client, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WITHIN)

    assert bad == []
    assert endpoint.connections == 1


def shown(alpn: list[str]) -> tuple[ssl.SSLContext, dict[str, Any]]:
    """(TLS of an endpoint that agrees to these, a cluster's transport socket that trusts it)."""
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("a.example").configure_cert(context)
    if alpn:
        context.set_alpn_protocols(alpn)
    trusted = {"trusted_ca": {"inline_string": authority.cert_pem.bytes().decode()}}
    typed = {"@type": UP, "sni": "a.example", "common_tls_context": {"validation_context": trusted}}
    return context, {"transport_socket": {"name": "tls", "typed_config": typed}}


AUTO = {
    "typed_extension_protocol_options": {
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {"@type": OPTIONS, "auto_config": {}}
    }
}


@pytest.mark.parametrize("alpn", [["h2", "http/1.1"], ["h2"]])
@pytest.mark.parametrize("kind", [AUTO, speaking()], ids=["auto", "explicit"])
def test_an_endpoint_that_agrees_to_http_2_is_spoken_to_so(
    loop: Loop, far_loop: Loop, alpn: list[str], kind: dict[str, Any]
) -> None:
    context, trusting = shown(alpn)
    endpoint = Endpoint2(far_loop, ssl=context)
    given = http([forward("/", "a")], [cluster("a", [endpoint.port], **kind, **trusting)])
    with contextlib.closing(endpoint), running(loop, given) as proxy:
        answers = [ask(proxy.port, get("/x")) for _ in range(3)]

    assert [body(each) for each in answers] == [b"one"] * 3
    assert endpoint.connections == 1


DOWNSTREAM = {
    "typed_extension_protocol_options": {
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": OPTIONS,
            "use_downstream_protocol_config": {"http2_protocol_options": {}},
        }
    }
}


@pytest.mark.parametrize("is_tls", [False, True])
def test_an_endpoint_may_be_spoken_to_as_its_client_speaks(loop: Loop, far_loop: Loop, is_tls: bool) -> None:
    # What is spoken by HTTP/1.1 an endpoint of HTTP/2 does not understand, and the other way round: each is asked in its turn.
    context, trusting = shown(["h2", "http/1.1"]) if is_tls else (None, {})
    for endpoint in (Endpoint(far_loop, ssl=context), Endpoint2(far_loop, ssl=context)):
        given = http([forward("/", "a")], [cluster("a", [endpoint.port], **DOWNSTREAM, **trusting)])
        with contextlib.closing(endpoint), running(loop, given) as proxy, Client(proxy.port) as client:
            if isinstance(endpoint, Endpoint):
                assert [body(ask(proxy.port, get("/x"))) for _ in range(2)] == [b"one"] * 2
            else:
                assert [client.answer(head("/x")).body for _ in range(2)] == [b"one"] * 2
            assert endpoint.connections == 1


@pytest.mark.parametrize("alpn", [["http/1.1"], []])
def test_an_endpoint_that_does_not_is_spoken_to_by_http_1(loop: Loop, far_loop: Loop, alpn: list[str]) -> None:
    context, trusting = shown(alpn)
    endpoint = Endpoint(far_loop, ssl=context)
    given = http([forward("/", "a")], [cluster("a", [endpoint.port], **AUTO, **trusting)])
    with contextlib.closing(endpoint), running(loop, given) as proxy:
        answers = [ask(proxy.port, get("/x")) for _ in range(3)]
        figures = proxy.figures()

    assert [body(each) for each in answers] == [b"one"] * 3
    assert (endpoint.connections, figures["cluster.a.upstream_cx_http1_total"]) == (1, 1)
