"""Every kind of active check against peers on real sockets: what passes, what fails how, and which connections are kept."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent import futures
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import h2.config
import h2.connection
import pytest
import trustme
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from reachline.core.checking import Fault, Verdict
from reachline.core.checking_rules import CheckRules
from reachline.errors import ConfigError
from reachline.model import Health
from reachline.net.dialogue import Dialogue
from reachline.net.tls import Contexts
from reachline.talk.asking import Asked
from reachline.talk.checked import TABLE, GrpcCheck, HttpCheck, RedisCheck, TcpCheck
from reachline.talk.secure import Secure
from reachline.testing.serving import Serve, Service
from reachline.testing.wait import until
from reachline.upstream.checks import Checks, Target


@asynccontextmanager
async def serving(serve: Serve, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Service]:
    service = await Service(serve).listen(tls=tls)
    try:
        yield service
        await until(lambda: service.open == 0, what="connections to end")
    finally:
        await service.close()


def http(*answers: bytes, closes: bool = False) -> Serve:
    """Answers requests in turn, the last one for ever; `closes`: the connection, after each."""
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(left.pop(0) if len(left) > 1 else left[0])
            if closes:
                await writer.drain()
                return

    return serve


def says(answer: bytes, *, first: bool = False) -> Serve:
    """Says something, at once or to whatever comes, each time; then listens until the peer leaves."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if first:
            writer.write(answer)
        while await reader.read(1_000):
            if not first:
                writer.write(answer)

    return serve


async def leaves(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Closes at the first byte."""
    del writer
    await reader.readexactly(1)


def reply(status: int = 200, *, body: bytes = b"ok", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\n{headers}\r\n".encode() + body


async def asked(check: Asked, port: int, times: int = 1, *, reuse: bool = True, name: str = "") -> list[Verdict | None]:
    """The verdicts of some checks one after another."""
    dialogue = Dialogue(check, "127.0.0.1", port, authority="c", reuse=reuse, contexts=Contexts(), name=name)
    try:
        found = []
        for _ in range(times):
            async with asyncio.timeout(30):
                found.append(await dialogue.ask())
        return found
    finally:
        dialogue.close()


def one(check: Asked, serve: Serve) -> Verdict:
    async def main() -> Verdict | None:
        async with serving(serve) as served:
            return (await asked(check, served.port))[0]

    found = asyncio.run(main())
    assert found is not None
    return found


# HTTP.


@pytest.mark.parametrize(
    ("status", "fault", "retriable"),
    [
        (200, None, False),
        (201, Fault.ACTIVE, False),
        (404, Fault.ACTIVE, False),
        (503, Fault.ACTIVE, True),
        (299, None, False),
    ],
)
def test_expected_statuses_pass_and_of_the_others_some_are_retriable(
    status: int, fault: Fault | None, retriable: bool
) -> None:
    check = HttpCheck(expected_statuses=((200, 201), (299, 301)), retriable_statuses=((500, 600), (200, 300)))
    found = one(check, http(reply(status)))

    assert (found.fault, found.status) == (fault, status)
    assert found.retriable is (retriable or status == 201)


def test_blocks_of_the_body_must_follow_one_another_within_the_buffer() -> None:
    def passes(body: bytes, *, response_buffer_size: int = 1_024) -> bool:
        check = HttpCheck(receive=(b"up", b"42"), response_buffer_size=response_buffer_size)
        return one(check, http(reply(body=body))).fault is None

    assert passes(b"it is up, really: 42")
    assert not passes(b"42 and up")
    assert one(HttpCheck(receive=(b"upup", b"up")), http(reply(body=b"upup"))).fault is Fault.ACTIVE
    assert not passes(b"." * 1_020 + b"up 42")
    assert passes(b"." * 1_020 + b"up 42", response_buffer_size=0)


def test_a_wrong_body_is_a_hard_failure_even_where_the_status_is_expected() -> None:
    found = one(HttpCheck(receive=(b"up",), retriable_statuses=((200, 300),)), http(reply()))

    assert (found.fault, found.retriable, found.status) == (Fault.ACTIVE, False, 200)


def test_headers_ask_for_less_traffic_or_for_none() -> None:
    assert one(HttpCheck(), http(reply(headers="x-envoy-degraded: 1\r\n"))).degraded
    assert one(HttpCheck(), http(reply(503, headers="X-Envoy-Immediate-Health-Check-Fail: true\r\n"))).excluded
    assert not one(HttpCheck(), http(reply(200, headers="x-envoy-immediate-health-check-fail: true\r\n"))).excluded


def test_the_request_says_what_it_is_told_to() -> None:
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n") + await reader.readexactly(2))
        writer.write(reply())

    one(HttpCheck(path="/live?x=1", method="POST", send=b"hi", headers=(("x-a", "b"), ("User-Agent", "me"))), serve)

    head, _, body = heard[0].decode().partition("\r\n\r\n")
    assert head.split("\r\n") == ["POST /live?x=1 HTTP/1.1", "host: c", "content-length: 2", "x-a: b", "User-Agent: me"]
    assert body == "hi"


@pytest.mark.parametrize(
    ("check", "serve", "reuse", "connections"),
    [
        (HttpCheck(), http(reply()), True, 1),
        (HttpCheck(), http(reply()), False, 3),
        (HttpCheck(), http(reply(headers="connection: Close\r\n")), True, 3),
        (HttpCheck(), http(reply(503)), True, 1),
        (TcpCheck(), says(b""), True, 3),
        (TcpCheck(send=b"\0", receive=(b"\x01",)), says(b"\x01"), True, 1),
        (TcpCheck(send=b"\0", receive=(b"\x01",)), says(b"\x01"), False, 3),
        (RedisCheck(), says(b"+PONG\r\n"), True, 1),
        (RedisCheck(), says(b"-LOADING\r\n"), True, 1),
    ],
)
def test_a_connection_is_kept_where_that_is_wanted_and_the_answer_left_it_as_new(
    check: Asked, serve: Serve, reuse: bool, connections: int
) -> None:
    async def main() -> int:
        async with serving(serve) as served:
            await asked(check, served.port, 3, reuse=reuse)
            return served.connections

    assert asyncio.run(main()) == connections


@pytest.mark.parametrize("check", [HttpCheck(), RedisCheck()])
def test_a_peer_that_closes_between_two_checks_has_failed_none(check: Asked) -> None:
    async def main() -> list[Verdict | None]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1_000)
            writer.write(reply() if isinstance(check, HttpCheck) else b"+PONG\r\n")
            await writer.drain()

        found: list[Verdict | None] = []
        async with serving(serve) as served:
            dialogue = Dialogue(check, "127.0.0.1", served.port, authority="c", reuse=True, contexts=Contexts())
            for _ in range(3):
                found.append(await dialogue.ask())
                await until(lambda: dialogue._wire is None, every=0.001, what="the end to be seen")
            assert not dialogue.lost.is_set()
            assert served.connections == 3
            dialogue.close()
        return found

    assert [each and each.fault for each in asyncio.run(main())] == [None, None, None]


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort", b"SSH-2.0-x\r\n"])
def test_an_end_before_the_answer_is_whole_or_what_is_no_http_is_a_networks_failure(answer: bytes) -> None:
    found = one(HttpCheck(), http(answer, closes=True))

    assert found.fault is Fault.NETWORK
    assert found.note


def test_a_closed_port_is_a_networks_failure() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

        found = asyncio.run(asked(HttpCheck(), port))[0]

    assert found is not None
    assert (found.fault, "refused" in found.note.lower() or "connect" in found.note.lower()) == (Fault.NETWORK, True)


def test_where_this_machine_has_no_descriptor_left_nothing_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    async def main() -> Verdict | None:
        monkeypatch.setattr(socket, "socket", exhausted)
        found = await asked(TcpCheck(), 1)
        monkeypatch.undo()
        return found[0]

    assert asyncio.run(main()) is None


@pytest.mark.parametrize(
    ("check", "said"),
    [
        (lambda: HttpCheck(expected_statuses=((200, 200),)), "expected_statuses: must be a range of statuses"),
        (lambda: HttpCheck(expected_statuses=((99, 200),)), "expected_statuses: must be a range of statuses"),
        (lambda: HttpCheck(retriable_statuses=((500, 601),)), "retriable_statuses: must be a range of statuses"),
        (lambda: HttpCheck(method="CONNECT"), "method: must be an HTTP method other than CONNECT"),
        (lambda: HttpCheck(send=b"x"), "send: goes only with OPTIONS, PATCH, POST, PUT"),
        (lambda: HttpCheck(path="live"), "path: must begin with /"),
        (lambda: HttpCheck(headers=(("x", "a\r\nb: c"),)), "headers: must be a name and a value of one line"),
        (lambda: HttpCheck(headers=(("Host", "a"),)), "headers: is set by the check"),
        (lambda: HttpCheck(version="3"), "version: must be 1.1 or 2"),
    ],
)
def test_settings_that_envoy_or_http_refuses_are_refused_by_name(check: Callable[[], Asked], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check()


# TCP.


def test_without_anything_expected_being_connected_is_all() -> None:
    assert one(TcpCheck(), says(b"")).fault is None


def test_blocks_must_come_in_order_with_anything_between_them() -> None:
    check = TcpCheck(send=b"\0", receive=(b"\x01", b"\x02"))

    assert one(check, says(b"\x01\x03\x02")).fault is None
    assert one(check, leaves).fault is Fault.NETWORK


def test_blocks_are_found_however_they_are_cut_up_and_no_byte_serves_two_of_them() -> None:
    ask = TcpCheck(receive=(b"abab", b"", b"abc")).ask("c")

    assert [ask.received(piece) for piece in (b"xaba", b"ba", b"b", b"c")] == [b"", b"", b"", None]
    assert TcpCheck(receive=(b"abab", b"ab")).ask("c").received(b"ababxa") == b""


def test_wrong_bytes_are_no_failure_only_the_time_is() -> None:
    async def main() -> None:
        async with serving(says(b"\x02\x01")) as served:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await asked(TcpCheck(send=b"\0", receive=(b"\x01", b"\x02")), served.port)

    asyncio.run(main())


def test_a_peer_may_speak_first() -> None:
    assert one(TcpCheck(receive=(b"220 ",)), says(b"220 ready\r\n", first=True)).fault is None


def test_what_a_peer_says_before_it_is_asked_is_not_lost() -> None:
    async def main() -> Verdict | None:
        async with serving(says(b"220 ready\r\n", first=True)) as served:
            dialogue = Dialogue(
                TcpCheck(receive=(b"220 ",)), "127.0.0.1", served.port, authority="c", reuse=True, contexts=Contexts()
            )
            wire = await dialogue._connected()
            await until(lambda: bool(wire._early), every=0.001, what="the greeting")
            async with asyncio.timeout(30):
                found = await dialogue.ask()
            dialogue.close()
            return found

    assert asyncio.run(main()) == Verdict()


def test_a_kept_connection_that_the_peer_closes_fails_a_check_of_tcp_as_in_the_binary() -> None:
    async def main() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1_000)
            writer.write(b"\x01")
            await writer.drain()

        async with serving(serve) as served:
            dialogue = Dialogue(
                TcpCheck(send=b"\0", receive=(b"\x01",)), "127.0.0.1", served.port, authority="c", reuse=True,
                contexts=Contexts(),
            )  # fmt: skip
            assert await dialogue.ask() == Verdict()
            async with asyncio.timeout(30):
                await dialogue.lost.wait()
            dialogue.close()

    asyncio.run(main())


# Redis and gRPC.


@pytest.mark.parametrize(
    ("key", "answer", "fault"),
    [
        ("", b"+PONG\r\n", None),
        ("", b"$4\r\nPONG\r\n", Fault.ACTIVE),
        ("", b"-NOAUTH Authentication required.\r\n", Fault.ACTIVE),
        ("", b"HTTP/1.1 400\r\n", Fault.NETWORK),
        ("maintenance", b":0\r\n", None),
        ("maintenance", b":1\r\n", Fault.ACTIVE),
        ("maintenance", b"-ERR no\r\n", Fault.ACTIVE),
    ],
)
def test_redis_answers_pong_or_has_no_such_key(key: str, answer: bytes, fault: Fault | None) -> None:
    found = one(RedisCheck(key=key), says(answer))

    assert (found.fault, bool(found.note)) == (fault, fault is not None)


@pytest.fixture(scope="module")
def grpc_port() -> Iterator[int]:
    server = grpc.server(futures.ThreadPoolExecutor(2))
    servicer = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    servicer.set("", health_pb2.HealthCheckResponse.SERVING)
    servicer.set("down", health_pb2.HealthCheckResponse.NOT_SERVING)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield port
    server.stop(None).wait()


@pytest.mark.parametrize(
    ("service", "fault", "note"),
    [("", None, ""), ("down", Fault.ACTIVE, "NOT_SERVING"), ("nobody", Fault.ACTIVE, "HTTP 200, NOT_FOUND")],
)
def test_grpc_passes_only_where_it_is_serving(grpc_port: int, service: str, fault: Fault | None, note: str) -> None:
    found = asyncio.run(asked(GrpcCheck(service_name=service, timeout_ms=500), grpc_port, 2))

    assert [(each and each.fault, each and each.note) for each in found] == [(fault, note)] * 2


@pytest.mark.parametrize("code", ["9" * 5_000, "²", "-1", "x"])
def test_what_is_no_status_of_grpc_is_a_wrong_answer_whatever_it_is(code: str) -> None:
    ask = GrpcCheck().ask("c")
    server = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="latin-1"))
    server.initiate_connection()
    server.receive_data(ask.begin())
    server.send_headers(1, [(":status", "200"), ("grpc-status", code.encode("latin-1"))], end_stream=True)

    assert ask.received(server.data_to_send()) is None
    assert (ask.verdict().fault, ask.verdict().note) == (Fault.ACTIVE, "HTTP 200, no gRPC status")


def test_what_speaks_no_http2_is_a_networks_failure() -> None:
    assert one(GrpcCheck(), http(reply(400))).fault is Fault.NETWORK


# TLS, and all of it together.


@pytest.mark.parametrize(
    ("said", "found_by", "fault"),
    [
        ("good.example", "", None),
        ("", "good.example", None),
        ("other.example", "good.example", Fault.NETWORK),
        ("", "", Fault.NETWORK),
    ],
)
def test_tls_is_verified_by_the_name_that_is_said_or_that_the_endpoint_was_found_by(
    tmp_path: Path, said: str, found_by: str, fault: Fault | None
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("good.example").configure_cert(context)
    check = HttpCheck(secure=Secure(name=said, ca=str(tmp_path / "ca.pem")))

    async def main() -> list[Verdict | None]:
        async with serving(http(reply()), tls=context) as served:
            found = await asked(check, served.port, 2, name=found_by)
            assert served.connections == (1 if fault is None else 0)
            return found

    assert [each and each.fault for each in asyncio.run(main())] == [fault, fault]


def test_tls_that_cannot_be_set_up_is_refused_at_the_start() -> None:
    check = HttpCheck(secure=Secure(name="", ca="/nowhere/ca.pem"))

    with pytest.raises(ConfigError, match=r"clusters\.c\.health_check: tls: TLS cannot be set up"):
        Checks("c", check, CheckRules(1, 1, 1, 1), seed=1, told=lambda *_: None)


def test_a_name_that_cannot_be_one_proves_nothing() -> None:
    async def main() -> Verdict | None:
        dialogue = Dialogue(TcpCheck(), "a" * 70 + ".x", 1, authority="c", reuse=True, contexts=Contexts())
        return await dialogue.ask()

    assert asyncio.run(main()) is None


def test_checks_follow_a_service_down_and_up_again_and_leave_no_connection() -> None:
    rules = CheckRules(timeout_ms=2_000, interval_ms=5, unhealthy_threshold=2, healthy_threshold=2)
    state = {"answer": reply()}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(state["answer"])

    async def main() -> None:
        async with serving(serve) as served:
            checks = Checks("c", HttpCheck(), rules, seed=1, told=lambda *_: None)
            checks.replace([Target("a", "127.0.0.1", served.port)])
            task = asyncio.create_task(checks.run())

            def is_now(wanted: Health) -> bool:
                check = checks.of("a")
                return check is not None and check.health is wanted

            await until(lambda: is_now(Health.HEALTHY), what="the first pass")
            state["answer"] = reply(500)
            await until(lambda: is_now(Health.UNHEALTHY), what="a failure")
            state["answer"] = reply(headers="x-envoy-degraded: 1\r\n")
            await until(lambda: is_now(Health.DEGRADED), what="a degraded pass")
            assert served.connections == 1
            checks.replace([])
            await until(lambda: served.open == 0, what="the connection to end")
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


def test_every_kind_is_in_the_table() -> None:
    assert {each.checker for each in TABLE.values()} == {"HTTP", "TCP", "GRPC", "REDIS"}
