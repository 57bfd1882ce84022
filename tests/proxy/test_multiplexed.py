"""HTTP/2 of clients, to endpoints of HTTP/1.1: many requests on one connection, each at its own pace, and how they end."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Iterator

import pytest
from tests.proxy.asking import GRPC, Client, head
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
)

from reachline.proxy.http2.connection import Connection
from reachline.proxy.http2.events import Answered, Event, Gone
from reachline.proxy.http2.frames import PREFACE
from reachline.proxy.http2.limits import Limits
from reachline.testing.wait import eventually

INTERNAL_ERROR = 2
ENHANCE_YOUR_CALM = 11
WINDOW = 65_535


@pytest.fixture
def proxy(loop: Loop, endpoint: Endpoint) -> Iterator[Proxy]:
    routes = [
        forward("/short", "a", timeout="0.2s", prefix_rewrite="/hang"), forward("/none", "none"), forward("/", "a", timeout="0s"),
    ]  # fmt: skip
    options = {"initial_stream_window_size": WINDOW, "initial_connection_window_size": 2 * WINDOW}
    given = http(routes, [cluster("a", [endpoint.port]), cluster("none", [])], http2_protocol_options=options)
    with running(loop, given) as found:
        yield found


def test_requests_of_one_connection_are_answered_each_when_it_is_ready(proxy: Proxy, endpoint: Endpoint) -> None:
    with Client(proxy.port) as client:
        held = client.ask(head("/held"))
        others = [client.ask(head(f"/{number}")) for number in (201, 404, 500) * 20]
        found = [client.came(stream).status for stream in others]
        assert not client.streams[held].status
        endpoint.gate.set()
        assert client.came(held).body == b"held"

        figures = proxy.figures()

    assert found == [b"201", b"404", b"500"] * 20
    assert figures["http.in.downstream_cx_total"] == 1
    assert figures["http.in.downstream_rq_total"] == 61


def test_a_body_comes_to_the_endpoint_by_its_length_or_in_chunks(proxy: Proxy, endpoint: Endpoint) -> None:
    with Client(proxy.port) as client:
        client.answer(head("/x", method="POST", more=[(b"content-length", b"3")]), b"abc")
        client.answer(head("/x", method="POST"), b"abc")
        client.answer(head("/x", method="POST"))
        expecting = client.answer(head("/x", method="POST", more=[(b"expect", b"100-continue")]), b"abc")
        crumbs = [(b"cookie", b"a=1"), (b"cookie", b"b=2")]
        client.answer(head("/x", more=crumbs, authority="b.example:81"))

    heads, bodies = zip(*(each.split(b"\r\n\r\n", 1) for each in endpoint.asked), strict=True)
    assert bodies == (b"abc", b"3\r\nabc\r\n0\r\n\r\n", b"", b"3\r\nabc\r\n0\r\n\r\n", b"")
    assert b"content-length: 3" in heads[0]
    assert b"content-length: 0" in heads[2]
    assert expecting.interim == [b"100"]
    assert b"expect" not in heads[3]
    assert b"host: b.example:81\r\n" in heads[4]
    assert b"cookie: a=1; b=2" in heads[4]


def test_an_answer_that_is_not_taken_holds_no_other_up_and_is_read_no_further(loop: Loop, far_loop: Loop) -> None:
    written = 0

    async def large(asked: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        nonlocal written
        del reader
        if b"GET /large" not in asked:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            return True
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % LARGE)
        for _ in range(LARGE >> 16):
            writer.write(b"x" * (1 << 16))
            await writer.drain()
            written += 1 << 16
        return True

    endpoint = Endpoint(far_loop, answering=large)
    given = http([forward("/", "a", timeout="0s")], [cluster("a", [endpoint.port])])
    with running(loop, given) as proxy, Client(proxy.port) as client:
        client.connection.increment_flow_control_window(
            LARGE
        )  # of the connection, so that it is the stream's that ends
        client.flush()
        client.takes = False
        large_one = client.ask(head("/large"))
        client.read_until(lambda: len(client.streams[large_one].pieces) >= WINDOW)
        client.takes = True
        for _ in range(20):
            assert client.answer(head("/small")).body == b"ok"
        seen: list[int] = []

        def stands_still() -> bool:
            seen.append(written)
            return len(seen) > 9 and len(set(seen[-10:])) == 1

        eventually(stands_still)
        assert written < LARGE * 3 / 4
        client.connection.increment_flow_control_window(LARGE, large_one)
        client.flush()

        assert len(client.came(large_one).body) == LARGE
    endpoint.close()


def test_a_body_comes_no_faster_than_the_endpoint_takes_it(proxy: Proxy, endpoint: Endpoint) -> None:
    size, sent = 24 << 20, 0
    with Client(proxy.port) as client:
        stream = client.ask(head("/slurp", method="POST", more=[(b"content-length", b"%d" % size)]), end=False)
        client.socket.settimeout(1.0)
        while sent < size:
            room = min(client.connection.local_flow_control_window(stream), 16_384, size - sent)
            if room:
                client.connection.send_data(stream, b"x" * room, end_stream=sent + room == size)
                client.flush()
                sent += room
                continue
            try:
                client.read()
            except TimeoutError:  # no room, and none comes
                break
        assert sent < size * 3 / 4
        client.socket.settimeout(WITHIN)
        endpoint.gate.set()
        while sent < size:
            client.read_until(lambda: client.connection.local_flow_control_window(stream) > 0)
            room = min(client.connection.local_flow_control_window(stream), 16_384, size - sent)
            client.connection.send_data(stream, b"x" * room, end_stream=sent + room == size)
            client.flush()
            sent += room

        assert client.came(stream).body == b"one"


@pytest.mark.parametrize("passes", [True, False])
def test_trailers_pass_where_http_1_is_to_have_them(loop: Loop, endpoint: Endpoint, passes: bool) -> None:
    name = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    options = {"explicit_http_config": {"http_protocol_options": {"enable_trailers": passes}}}
    to = cluster(
        "a",
        [endpoint.port],
        typed_extension_protocol_options={name: {"@type": f"type.googleapis.com/{name}", **options}},
    )
    with running(loop, http([forward("/", "a")], [to])) as proxy, Client(proxy.port) as client:
        found = client.answer(head("/chunk", method="POST"), b"abc", [(b"x-t", b"1")])

    assert found.body == b"abc"
    assert found.trailers == ([(b"t", b"v")] if passes else [])
    assert (b"x-t: 1" in endpoint.asked[0]) is passes


def test_a_request_that_is_reset_leaves_its_endpoint_and_no_other(proxy: Proxy, endpoint: Endpoint) -> None:
    with Client(proxy.port) as client:
        hanging, held = client.ask(head("/hang")), client.ask(head("/held"))
        eventually(lambda: len(endpoint.asked) == 2)
        client.connection.reset_stream(hanging)
        client.flush()

        eventually(lambda: proxy.figures()["cluster.a.upstream_rq_active"] == 1)
        eventually(lambda: proxy.figures()["cluster.a.upstream_cx_active"] == 1)
        endpoint.gate.set()
        assert client.came(held).body == b"held"


def test_who_goes_away_leaves_all_endpoints(proxy: Proxy, endpoint: Endpoint) -> None:
    with Client(proxy.port) as client:
        for _ in range(3):
            client.ask(head("/hang"))
        eventually(lambda: len(endpoint.asked) == 3)

    eventually(lambda: proxy.figures()["cluster.a.upstream_cx_active"] == 0)
    eventually(lambda: proxy.figures()["http.in.downstream_cx_active"] == 0)


def test_an_answer_that_breaks_off_ends_its_stream_and_not_the_connection(proxy: Proxy) -> None:
    with Client(proxy.port) as client:
        found = client.answer(head("/partial"))
        assert (found.status, found.body, found.is_whole, found.reset) == (b"200", b"abc", False, INTERNAL_ERROR)

        assert client.answer(head("/short")).status == b"504"
        assert client.answer(head("/x")).body == b"one"


def test_an_answer_before_the_request_is_whole_ends_the_stream(proxy: Proxy) -> None:
    with Client(proxy.port) as client:
        stream = client.ask(head("/none", method="POST"), b"abc", end=False)
        client.read_until(lambda: client.streams[stream].reset is not None)

        assert client.streams[stream].status == b"503"
        assert client.streams[stream].reset == 0
        assert client.answer(head("/x")).body == b"one"


def test_the_preface_is_known_however_it_comes(proxy: Proxy) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port), WITHIN) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(len(PREFACE)):
            plain.sendall(PREFACE[at : at + 1])
        plain.sendall(bytes.fromhex("000000040000000000"))
        first = plain.recv(9)

    assert first[3] == 4  # SETTINGS
    assert status(ask(proxy.port, b"PRI * HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")) == 400
    assert status(ask(proxy.port, get("/x"))) == 200


def test_a_manager_of_one_protocol_speaks_no_other(loop: Loop, endpoint: Endpoint) -> None:
    for codec, raw, begins in (("HTTP1", PREFACE, b"HTTP/1.1 400"), ("HTTP2", get("/x"), b"\0\0")):
        given = http([forward("/", "a")], [cluster("a", [endpoint.port])], codec_type=codec)
        with running(loop, given) as proxy:
            assert ask(proxy.port, raw).startswith(begins)

    assert not endpoint.asked


class Own:
    """A client by our own side of the protocol: it goes on behind a GOAWAY, as the h2 library does not."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=WITHIN)
        self.connection = Connection(Limits(), is_client=True)
        self.events: list[Event] = []

    def flush(self) -> None:
        while data := self.connection.take():
            self.socket.sendall(data)

    def ask(self, path: str) -> int:
        stream = self.connection.ask(head(path), True)
        self.flush()
        return stream

    def read_until_closed(self) -> None:
        while data := self.socket.recv(1 << 16):
            self.events += self.connection.feed(data)
            self.flush()
        self.socket.close()

    def of(self, kind: type[Event]) -> list[Event]:
        return [each for each in self.events if isinstance(each, kind)]


def test_a_connection_ends_with_the_last_request_that_was_on_its_way(loop: Loop, endpoint: Endpoint) -> None:
    with running(loop, http([forward("/", "a", timeout="0s")], [cluster("a", [endpoint.port])]), grace=WITHIN) as proxy:
        client = Own(proxy.port)
        client.ask("/held")
        eventually(lambda: endpoint.asked)
        proxy.stop()
        while not client.of(Gone):
            client.events += client.connection.feed(client.socket.recv(1 << 16))
        endpoint.gate.set()
        client.flush()
        client.read_until_closed()
        proxy.done()

    assert [each for each in client.of(Gone) if isinstance(each, Gone)] == [Gone(2**31 - 1, 0), Gone(1, 0)]
    assert [each.status for each in client.of(Answered) if isinstance(each, Answered)] == [200]


def test_who_does_not_answer_to_the_warning_may_ask_no_longer_than_others_drain(loop: Loop, endpoint: Endpoint) -> None:
    given = http([forward("/", "a", timeout="0s")], [cluster("a", [endpoint.port])], drain_timeout="0.2s")
    with running(loop, given, grace=WITHIN) as proxy, Client(proxy.port) as client:
        client.ask(head("/held"))
        eventually(lambda: endpoint.asked)
        proxy.stop()
        raw = b""
        while raw.count(b"\0\0\x08\x07\0\0\0\0\0") < 2:  # GOAWAY of eight bytes, on no stream
            raw += client.socket.recv(1 << 16)
        endpoint.gate.set()
        client.socket.close()
        proxy.done()

    assert raw.index(b"\x7f\xff\xff\xff") < raw.rindex(b"\0\0\x08\x07")


def test_a_connection_ends_after_so_many_requests(loop: Loop, endpoint: Endpoint) -> None:
    limited = {"common_http_protocol_options": {"max_requests_per_connection": 2}}
    with running(loop, http([forward("/", "a")], [cluster("a", [endpoint.port])], **limited)) as proxy:
        client = Own(proxy.port)
        client.ask("/x")
        client.ask("/x")
        client.read_until_closed()

    assert len(client.of(Answered)) == 2
    assert len(client.of(Gone)) == 2


@pytest.mark.parametrize(
    ("more", "path", "end", "wanted"),
    [
        ({"stream_idle_timeout": "0.2s"}, "/hang", True, (b"504", b"stream timeout")),
        ({"stream_idle_timeout": "0.2s"}, "/hang", False, (b"408", b"stream timeout")),
        ({"request_timeout": "0.2s"}, "/hang", False, (b"408", b"request timeout")),
        ({"max_stream_duration": "0.2s"}, "/hang", True, (b"408", b"downstream duration timeout")),
    ],
)  # fmt: skip
def test_a_request_that_takes_too_long_ends_alone(
    loop: Loop, endpoint: Endpoint, more: dict[str, str], path: str, end: bool, wanted: tuple[bytes, bytes]
) -> None:
    common = {"max_stream_duration": more.pop("max_stream_duration")} if "max_stream_duration" in more else {}
    given = http(
        [forward("/", "a", timeout="0s")], [cluster("a", [endpoint.port])], common_http_protocol_options=common, **more
    )
    with running(loop, given) as proxy, Client(proxy.port) as client:
        found = client.answer(head(path, method="POST"), b"a", end=end)
        assert (found.status, found.body) == wanted

        assert client.answer(head("/x")).status == b"200"


def test_an_idle_connection_is_told_and_ended(loop: Loop, endpoint: Endpoint) -> None:
    common = {"idle_timeout": "0.2s"}
    given = http([forward("/", "a")], [cluster("a", [endpoint.port])], common_http_protocol_options=common)
    with running(loop, given) as proxy:
        client = Own(proxy.port)
        client.ask("/x")
        client.read_until_closed()
        eventually(lambda: proxy.figures()["http.in.downstream_cx_active"] == 0)

    assert len(client.of(Answered)) == 1
    assert client.of(Gone)


def test_who_answers_no_ping_is_left(loop: Loop, endpoint: Endpoint) -> None:
    alive = {"connection_keepalive": {"interval": "1s", "timeout": "1s"}}
    given = http([forward("/", "a")], [cluster("a", [endpoint.port])], http2_protocol_options=alive)
    with running(loop, given) as proxy, socket.create_connection(("127.0.0.1", proxy.port), WITHIN) as silent:
        silent.sendall(PREFACE + bytes.fromhex("000000040000000000"))
        drain(silent)

        assert proxy.figures()["http2.keepalive_timeout"] == 1


def test_an_answer_that_nobody_takes_is_given_up(loop: Loop, endpoint: Endpoint) -> None:
    given = http([forward("/", "a", timeout="0s")], [cluster("a", [endpoint.port])], stream_idle_timeout="0.5s")
    with running(loop, given) as proxy, Client(proxy.port) as client:
        client.takes = False
        stream = client.ask(head("/large"))
        client.read_until(lambda: client.streams[stream].reset is not None)

        assert len(client.streams[stream].body) == WINDOW
        client.takes = True
        client.connection.increment_flow_control_window(WINDOW)
        client.flush()
        assert client.answer(head("/x")).body == b"one"


GRPC_REPLIES = {
    "/none": (b"14", b"no healthy upstream"), "/nothing": (b"12", None), "/direct": (b"2", b"100%25 tea%0A"), "/401": (b"16", None),
    "/403": (b"7", None), "/short": (b"14", b"upstream request timeout"), "/400": (b"13", None), "/429": (b"14", None),
}  # fmt: skip


def grpc_routes() -> list[dict[str, object]]:
    direct = [
        {"match": {"prefix": f"/{number}"}, "direct_response": {"status": number}} for number in (400, 401, 403, 429)
    ]
    tea = {"match": {"prefix": "/direct"}, "direct_response": {"status": 418, "body": {"inline_string": "100% tea\n"}}}
    short = forward("/short", "a", timeout="0.2s", prefix_rewrite="/hang")
    return [*direct, tea, short, forward("/none", "none"), forward("/grpc", "a")]


@pytest.mark.parametrize("path", GRPC_REPLIES)
def test_a_call_by_grpc_gets_its_status_in_headers_alone(loop: Loop, endpoint: Endpoint, path: str) -> None:
    given = http(grpc_routes(), [cluster("a", [endpoint.port]), cluster("none", [])])
    with running(loop, given) as proxy, Client(proxy.port) as client:
        found = client.answer(head(path, method="POST", more=GRPC))

    assert (found.status, found.body, found.get(b"content-type")) == (b"200", b"", b"application/grpc")
    assert (found.get(b"grpc-status"), found.get(b"grpc-message")) == GRPC_REPLIES[path]


def test_a_call_by_grpc_over_http_1_is_told_alike(loop: Loop, endpoint: Endpoint) -> None:
    with running(loop, http(grpc_routes(), [cluster("a", [endpoint.port]), cluster("none", [])])) as proxy:
        answer = ask(proxy.port, get("/none", method="POST", more=b"content-type: application/grpc+proto\r\n"))
        web = ask(proxy.port, get("/none", method="POST", more=b"content-type: application/grpc-web\r\n"))

    assert status(answer) == 200
    assert b"grpc-status: 14\r\n" in answer
    assert status(web) == 503


def test_another_protocol_passes_where_it_is_let_through(loop: Loop, far_loop: Loop) -> None:
    async def echo(_: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nhello ")
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.write(b" bye")
        writer.close()
        return False

    endpoint = Endpoint(far_loop, answering=echo)
    wanted = {"http2_protocol_options": {"allow_connect": True}, "upgrade_configs": [{"upgrade_type": "websocket"}]}
    given = http([forward("/", "a")], [cluster("a", [endpoint.port])], **wanted)
    with running(loop, given) as proxy, Client(proxy.port) as client:
        client.read_until(lambda: client.connection.remote_settings.enable_connect_protocol == 1)
        stream = client.ask([*head("/chat", method="CONNECT"), (b":protocol", b"websocket")], b"early", end=False)
        client.read_until(lambda: client.streams[stream].body == b"hello early")
        assert client.streams[stream].status == b"200"
        client.connection.send_data(stream, b", late", end_stream=True)
        client.flush()
        assert client.came(stream).body == b"hello early, late bye"

        other = [*head("/chat", method="CONNECT"), (b":protocol", b"other")]
        assert client.answer(other, end=False).status == b"403"
    endpoint.close()


def test_resets_in_haste_end_the_connection_and_leave_nothing_behind(proxy: Proxy, endpoint: Endpoint) -> None:
    with Client(proxy.port) as client:
        while not client.gone:
            stream = client.ask(head("/hang"))
            client.connection.reset_stream(stream)
            client.flush()
            while select.select([client.socket], [], [], 0)[0] and not client.gone:
                client.read()
            assert len(client.streams) < 30_000
        assert client.gone[0][0] == ENHANCE_YOUR_CALM

    eventually(lambda: proxy.figures()["http.in.downstream_cx_active"] == 0)
    figures = proxy.figures()
    assert figures["cluster.a.upstream_rq_active"] == figures["cluster.a.upstream_rq_pending_active"] == 0
    assert figures["http.in.downstream_cx_protocol_error"] == 1
    assert figures["http2.downstream_rq_too_many_premature_resets"] == 1
    assert status(ask(proxy.port, get("/x"))) == 200


def test_a_head_that_does_not_come_is_waited_for_no_longer_than_allowed(loop: Loop, endpoint: Endpoint) -> None:
    given = http([forward("/", "a")], [cluster("a", [endpoint.port])], request_headers_timeout="0.2s")
    with running(loop, given) as proxy, socket.create_connection(("127.0.0.1", proxy.port), WITHIN) as plain:
        settings = bytes.fromhex("000000040000000000")
        began = bytes.fromhex("000001010000000001") + b"\x82"  # HEADERS without END_HEADERS: `:method GET`, and no more
        plain.sendall(PREFACE + settings + began)
        raw = drain(plain)

    assert b"\0\0\x08\x07\0\0\0\0\0" in raw  # GOAWAY
    assert not endpoint.asked
