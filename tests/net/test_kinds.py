"""Every kind against what it is made for: Redis, gRPC's own health service, nginx with HTTP/2, echo; and each over IPv6."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Iterator
from concurrent import futures
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
import trustme
from grpc_health.v1 import health, health_pb2_grpc
from tests.net.conftest import make_job, serving
from tests.net.test_datagram import Server, reply
from tests.wire.test_http2 import answered, frame

from reachline.model import Clock, Failure
from reachline.net.resolve import Resolver
from reachline.talk.http import HttpTalk
from reachline.testing import parts
from reachline.testing.wait import eventually

SERVICES = {"": 1, "shop.v1.Orders": 1, "shop.v1.Refunds": 2}


@pytest.fixture(scope="module")
def authority(tmp_path_factory) -> tuple[trustme.CA, str]:
    ca = trustme.CA()
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    ca.cert_pem.write_to_path(str(path))
    return ca, str(path)


def pair(ca: trustme.CA, directory: Path) -> tuple[Path, Path]:
    """Chain and key of a certificate for 127.0.0.1."""
    cert = ca.issue_cert("127.0.0.1")
    chain, key = directory / "chain.pem", directory / "key.pem"
    chain.write_bytes(b"".join(blob.bytes() for blob in cert.cert_chain_pems))
    cert.private_key_pem.write_to_path(str(key))
    return chain, key


@contextlib.contextmanager
def grpc_server(address: str = "127.0.0.1", *, ca: trustme.CA | None = None, bare: bool = False) -> Iterator[int]:
    """The official health service in the official server; `bare`: the server without it. Its port."""
    server = grpc.server(futures.ThreadPoolExecutor(2))
    if not bare:
        servicer = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
        for name, status in SERVICES.items():
            servicer.set(name, status)
    if ca is None:
        port = server.add_insecure_port(f"{address}:0")
    else:
        cert = ca.issue_cert("127.0.0.1")
        pair = (cert.private_key_pem.bytes(), b"".join(blob.bytes() for blob in cert.cert_chain_pems))
        port = server.add_secure_port(f"{address}:0", grpc.ssl_server_credentials([pair]))
    server.start()
    try:
        yield port
    finally:
        server.stop(None).wait()


@contextlib.asynccontextmanager
async def datagrams(answer, host: str = "127.0.0.1"):
    """A UDP server; its port."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: Server(answer), local_addr=(host, 0))
    try:
        yield transport.get_extra_info("sockname")[1]
    finally:
        transport.close()


def results(lab, *jobs):
    async def main():
        async with lab() as engine:
            return await engine.probe(*jobs)

    return asyncio.run(main())


def told(result) -> tuple[Failure | None, str]:
    return result.failure, result.note


# ----------------------------------------------------------------------------------------------------------------- gRPC


@pytest.mark.real
def test_the_official_health_service_is_understood(lab):
    with grpc_server() as port, grpc_server(bare=True) as other:
        good, named, bad, unknown, lacking = results(
            lab,
            make_job(f"grpc://127.0.0.1:{port}", token=1),
            make_job(f"grpc://127.0.0.1:{port}/shop.v1.Orders", token=2),
            make_job(f"grpc://127.0.0.1:{port}/shop.v1.Refunds", token=3),
            make_job(f"grpc://127.0.0.1:{port}/shop.v1.Nothing", token=4),
            make_job(f"grpc://127.0.0.1:{other}", token=5),
        )

    for result in (good, named):
        assert (told(result), result.status, result.clock) == ((None, ""), 200, Clock.RX_STAMP)
        assert result.rtt_us == result.phases.first
        assert (result.sent, result.lost) == (1, 0)
    assert told(bad) == (Failure.STATUS, "NOT_SERVING")
    assert told(unknown) == (Failure.STATUS, "NOT_FOUND")
    assert lacking.failure is Failure.STATUS
    assert lacking.note.startswith("UNIMPLEMENTED")


@pytest.mark.real
def test_the_health_service_inside_tls_must_agree_on_http2(lab, authority):
    ca, path = authority
    with grpc_server(ca=ca) as port:
        [good] = results(lab, make_job(f"grpcs://127.0.0.1:{port}", {"ca": path}))

    assert told(good) == (None, "")
    assert good.phases.tls > 0
    assert good.phases.expires is not None


def test_settings_that_come_by_themselves_are_no_round_trip(lab):
    async def peer(reader, writer):
        writer.write(frame(4, b""))
        sent = await reader.read(4096)
        await asyncio.sleep(0.2)
        writer.write(answered(sent, body=b"ok"))
        await reader.read()

    async def main():
        async with serving(peer) as port, lab() as engine:
            return await engine.one(make_job(f"http://127.0.0.1:{port}/", {"version": 2}))

    result = asyncio.run(main())

    assert told(result) == (None, "")
    assert result.rtt_us >= 190_000


def test_making_up_a_request_is_no_part_of_the_round_trip(lab, monkeypatch):
    begin = HttpTalk.begin

    def laborious(self) -> bytes:
        until = time.perf_counter() + 0.3
        while time.perf_counter() < until:
            pass
        return begin(self)

    async def main():
        async with serving(_page) as port, lab() as engine:
            return await engine.one(make_job(f"http://127.0.0.1:{port}/", {"body": "ok"}))

    monkeypatch.setattr(HttpTalk, "begin", laborious)
    result = asyncio.run(main())

    assert told(result) == (None, "")
    assert result.rtt_us < 300_000


# --------------------------------------------------------------------------------------------------------------- HTTP/2


@pytest.mark.real
def test_nginx_answers_http2_without_tls(lab, tmp_path):
    server = "location / { return 200 'fine'; } location /bad { return 503; } keepalive_requests 1;"
    with parts.nginx(tmp_path, server=server, http2=True) as nginx:
        at = f"http://127.0.0.1:{nginx.port}"
        good, bad, first, grpc_of_it = results(
            lab,
            make_job(f"{at}/", {"version": 2, "body": "fine"}, token=1),
            make_job(f"{at}/bad", {"version": 2}, token=2),
            make_job(f"{at}/", token=3),
            make_job(f"{at}/", kind="grpc", token=4),
        )

    assert (told(good), good.status, good.clock) == ((None, ""), 200, Clock.RX_STAMP), "though it went away at once"
    assert (told(bad), bad.status) == ((Failure.STATUS, "status 503"), 503)
    assert told(first) == (Failure.PROTOCOL, "not HTTP")
    assert told(grpc_of_it) == (Failure.PROTOCOL, "answered by something that is not gRPC")


@pytest.mark.real
def test_nginx_agrees_on_http2_or_fails_as_tls(lab, tmp_path, authority):
    ca, path = authority
    files = pair(ca, tmp_path)
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "big").write_bytes(b"x" * 3_000_000 + b"needle")
    root = f"root {tmp_path / 'two'};"
    with (
        parts.nginx(tmp_path / "one", certificate=files) as one,
        parts.nginx(tmp_path / "two", server=f"{root} ssl_protocols TLSv1.2;", certificate=files, http2=True) as two,
    ):
        wants = {"ca": path, "version": 2}
        big, refused, offered, agreed, old = results(
            lab,
            make_job(
                f"https://127.0.0.1:{two.port}/big",
                {**wants, "body": "needle", "limit": 4_000_000},
                token=1,
                timeout=9.0,
            ),
            make_job(f"https://127.0.0.1:{one.port}/", wants, token=2),
            make_job(f"tls://127.0.0.1:{one.port}", {"ca": path, "expect_alpn": "h2"}, token=3),
            make_job(f"tls://127.0.0.1:{two.port}", {"ca": path, "expect_alpn": "h2"}, token=4),
            make_job(f"tls://127.0.0.1:{two.port}", {"ca": path, "min_tls": "1.3"}, token=5),
        )

    assert (told(big), big.status) == ((None, ""), 200)
    assert refused.failure is offered.failure is Failure.TLS
    assert "no application protocol" in refused.note
    assert (told(agreed), agreed.clock) == ((None, ""), Clock.TCP_INFO)
    assert (old.failure, "protocol version" in old.note) == (Failure.TLS, True), "it speaks 1.2 and nothing newer"


def test_a_peer_that_agrees_on_no_protocol_fails_as_tls_and_its_certificate_is_read(lab, authority):
    ca, path = authority
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1").configure_cert(context)

    async def main():
        async with serving(_page, tls=context) as port, lab() as engine:
            return await engine.one(make_job(f"https://127.0.0.1:{port}/", {"ca": path, "version": 2}))

    result = asyncio.run(main())

    assert told(result) == (Failure.TLS, "ALPN: the peer chose no protocol, h2 is expected")
    assert result.phases.expires is not None


# ---------------------------------------------------------------------------------------------------------------- Redis


@pytest.mark.real
def test_redis_is_asked_in_its_own_words(lab, tmp_path):
    with parts.redis(tmp_path, "--requirepass", "geheim") as redis:
        at = f"redis://127.0.0.1:{redis.port}"
        let_in = {"password": "geheim"}
        good, shut, wrong, missing, beyond, greeting = results(
            lab,
            make_job(f"{at}/2", let_in, token=1),
            make_job(at, token=2),
            make_job(at, {"user": "bob", "password": "x"}, token=3),
            make_job(at, let_in | {"exists": "nothing"}, token=4),
            make_job(f"{at}/99", let_in, token=5),
            make_job(
                f"tcp://127.0.0.1:{redis.port}",
                {"send": r"AUTH geheim\r\nSET k 1\r\n", "expect": r"+OK\r\n+OK\r\n"},
                token=6,
            ),
        )
        [there] = results(lab, make_job(at, let_in | {"exists": "k"}))

    for result in (good, there):
        assert (told(result), result.clock) == ((None, ""), Clock.RX_STAMP)
        assert result.rtt_us == result.phases.first
    assert (told(greeting), greeting.clock, greeting.rtt_us) == ((None, ""), Clock.TCP_INFO, greeting.phases.connect)
    assert told(shut) == (Failure.STATUS, "NOAUTH Authentication required.")
    assert wrong.note.startswith("WRONGPASS")
    assert told(missing) == (Failure.STATUS, "the key does not exist")
    assert told(beyond) == (Failure.STATUS, "ERR DB index is out of range")


@pytest.mark.real
def test_redis_is_asked_inside_tls(lab, tmp_path, authority):
    ca, path = authority
    chain, key = pair(ca, tmp_path)
    port = parts.free_port()
    shut = (
        "--tls-auth-clients",
        "no",
        "--tls-cert-file",
        str(chain),
        "--tls-key-file",
        str(key),
        "--tls-ca-cert-file",
        path,
    )
    with parts.redis(tmp_path, "--tls-port", str(port), *shut):
        eventually(lambda: parts.is_open(port), what="redis inside TLS")
        good, greeting = results(
            lab,
            make_job(f"rediss://127.0.0.1:{port}", {"ca": path}, token=1),
            make_job(
                f"tcp://127.0.0.1:{port}",
                {"tls": True, "ca": path, "send": r"PING\r\n", "expect": r"+PONG\r\n"},
                token=2,
            ),
        )

    for result in (good, greeting):
        assert told(result) == (None, "")
        assert result.phases.tls > 0
        assert result.phases.expires is not None
    assert (good.clock, greeting.clock) == (Clock.RX_STAMP, Clock.TCP_INFO)


# ------------------------------------------------------------------------------------------------------------ tcp, udp


def test_tcp_keeps_the_connects_round_trip_and_times_the_answer_apart(lab):
    async def peer(reader, writer):
        await asyncio.sleep(0.2)
        writer.write(b"220 mail")
        await reader.read()

    async def main():
        async with serving(peer) as port, lab() as engine:
            return await engine.one(make_job(f"tcp://127.0.0.1:{port}", {"expect": "220"}))

    result = asyncio.run(main())

    assert (told(result), result.clock, result.late) == ((None, ""), Clock.TCP_INFO, False)
    assert result.rtt_us == result.phases.connect < 190_000 <= result.phases.first


def test_an_echo_is_an_answer_and_a_strangers_datagram_is_none(lab):
    async def main():
        async with datagrams(lambda data: [b"stray", data[:-1], data]) as port, lab() as engine:
            return await engine.one(make_job(f"udp://127.0.0.1:{port}", {"size": 1_200}))

    result = asyncio.run(main())

    assert (told(result), result.clock) == ((None, ""), Clock.RX_STAMP)
    assert (result.sent, result.lost) == (1, 0)
    assert 0 < result.rtt_us < 3_000_000


def test_an_echo_with_other_content_is_one_lost_datagram(lab):
    async def main():
        async with datagrams(lambda data: [data[::-1]]) as port, lab() as engine:
            return await engine.one(make_job(f"udp://127.0.0.1:{port}", timeout=0.05, patience=0.05))

    result = asyncio.run(main())

    assert (told(result), result.late) == ((Failure.TIMEOUT, "no answer"), True)
    assert (result.sent, result.lost, result.rtt_us) == (1, 1, None)


def test_a_closed_udp_port_is_refused(lab):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        # Connected to somebody else, it takes nothing from us, and the kernel says so.
        taken.connect(("127.0.0.1", 9))
        [result] = results(lab, make_job(f"udp://127.0.0.1:{taken.getsockname()[1]}"))

    assert told(result) == (Failure.REFUSED, "connection refused")
    assert result.rtt_us is not None


# ----------------------------------------------------------------------------------------------------------------- IPv6


@pytest.fixture
def six() -> None:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return
    except OSError as error:
        pytest.skip(f"no IPv6 on loopback: {error}")


async def _page(reader, writer):
    await reader.read(4096)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


def test_every_kind_speaks_ipv6(lab, six):
    async def redis(reader, writer):
        await reader.read(4096)
        writer.write(b"+PONG\r\n")

    async def main():
        async with (
            serving(_page, "::1") as page,
            serving(redis, "::1") as cache,
            datagrams(lambda data: [data], "::1") as echo,
            datagrams(lambda query: [reply(query)], "::1") as names,
            lab() as engine,
        ):
            return await engine.probe(
                make_job(f"tcp://[::1]:{page}", token=1),
                make_job(f"http://[::1]:{page}/", token=2),
                make_job(f"redis://[::1]:{cache}", token=3),
                make_job(f"udp://[::1]:{echo}", token=4),
                make_job(f"dns://[::1]:{names}/line.test?type=a", token=5),
                make_job("http://line.test/", {"server": f"[::1]:{names}"}, kind="dns", token=6),
            )

    ended = asyncio.run(main())

    assert [told(result) for result in ended] == [(None, "")] * 6
    assert all(result.rtt_us is not None for result in ended)


@pytest.mark.real
def test_grpc_speaks_ipv6(lab, six):
    with grpc_server("[::1]") as port:
        [result] = results(lab, make_job(f"grpc://[::1]:{port}"))

    assert told(result) == (None, "")


def test_a_name_of_one_family_never_falls_back_to_the_other(lab, six):
    """The name has both; the server listens on IPv4 alone."""

    def job(port: int, family: int):
        made = make_job(f"tcp://both.test:{port}", token=family)
        return replace(made, endpoint=replace(made.endpoint, family=family))

    async def main():
        resolver = Resolver(lookup=lambda _, family: {0: ("::1", "127.0.0.1"), 4: ("127.0.0.1",), 6: ("::1",)}[family])
        async with serving(_page) as port, lab(resolver=resolver) as engine:
            return await engine.probe(job(port, 4), job(port, 6))

    four, other = asyncio.run(main())

    assert told(four) == (None, "")
    assert told(other) == (Failure.REFUSED, "connection refused")
