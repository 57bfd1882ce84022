"""Probes by way of proxies: real ones (microsocks, dante, tinyproxy, squid) and ones that behave as badly as proxies do."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from pathlib import Path
from typing import NamedTuple

import pytest
import trustme
from tests.descriptors import open_files
from tests.net.test_kinds import grpc_server

from reachline.doors.outbounds import hops
from reachline.errors import LocalProtocolError
from reachline.model import Clock, Failure
from reachline.net.resolve import Resolver
from reachline.testing import parts, proxies

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
YES = b"\x05\x00\x00\x01\x7f\x00\x00\x01\x04\x38"
ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


def run(lab, *jobs, **options):
    """Results by token; every descriptor is closed again."""

    async def main():
        async with lab(**options) as engine:
            before = open_files()
            results = await engine.probe(*jobs)
            assert engine.engine.counters().live == 0
            assert not open_files() - before
            return results

    return asyncio.run(main())


def by_peers(lab, make, *peers, **options):
    """The result of `make(*ports)` with a bad peer on each port."""

    async def main():
        async with contextlib.AsyncExitStack() as stack:
            ports = [await stack.enter_async_context(peer) for peer in peers]
            async with lab(**options) as engine:
                before = open_files()
                result = await engine.one(make(*ports))
                assert engine.engine.counters().live == 0
                # The peers' ends of the connection close when they notice; ours is gone now.
                assert len(open_files() - before) <= 2 * len(peers)
                return result

    return asyncio.run(main())


# -- real proxies -------------------------------------------------------------------------------------------------------


class Web(NamedTuple):
    """What lies behind the proxies, and the proxies by name."""

    port: int
    secure: int
    ca: Path
    vias: dict[str, str]


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    directory = tmp_path_factory.mktemp("proxied")
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(directory / "ca.pem"))
    cert = ca.issue_cert("line.test", "127.0.0.1")
    chain, key = directory / "chain.pem", directory / "key.pem"
    chain.write_bytes(b"".join(blob.bytes() for blob in cert.cert_chain_pems))
    cert.private_key_pem.write_to_path(str(key))
    # squid reads them as a user of its own.
    for path in (*directory.parents[:2], directory, chain, key):
        path.chmod(path.stat().st_mode | (0o055 if path.is_dir() else 0o044))

    def room(name: str) -> Path:
        (directory / name).mkdir()
        return directory / name

    with contextlib.ExitStack() as stack:

        def start(made) -> int:
            return stack.enter_context(made).port

        port = start(parts.nginx(room("web")))
        secure = start(parts.nginx(room("secure"), certificate=(chain, key), http2=True))
        plain, signed = (
            start(proxies.microsocks(room("plain"))),
            start(proxies.microsocks(room("signed"), user="bob", password="p@ss,word")),
        )
        dante = start(proxies.dante(room("dante")))
        tiny, basic = (
            start(proxies.tinyproxy(room("tiny"))),
            start(proxies.tinyproxy(room("basic"), user="bob", password="geheim")),
        )
        squid, tls = start(proxies.squid(room("squid"))), start(proxies.squid(room("tls"), certificate=(chain, key)))
        vias = {
            "microsocks": f"socks5://127.0.0.1:{plain}",
            "microsocks, signed in": f"socks5h://bob:p%40ss%2Cword@127.0.0.1:{signed}",
            "dante": f"socks5h://127.0.0.1:{dante}",
            "tinyproxy": f"http://127.0.0.1:{tiny}",
            "tinyproxy, signed in": f"http://bob:geheim@127.0.0.1:{basic}",
            "squid": f"http://127.0.0.1:{squid}",
            "squid in TLS": f"https://127.0.0.1:{tls}?ca={directory / 'ca.pem'}",
        }
        vias["microsocks, then tinyproxy"] = f"{vias['microsocks']},{vias['tinyproxy']}"
        vias["tinyproxy, then squid in TLS"] = f"{vias['tinyproxy']},{vias['squid in TLS']}"
        vias["squid in TLS, then microsocks"] = f"{vias['squid in TLS']},{vias['microsocks']}"
        vias["squid in TLS, then itself"] = f"{vias['squid in TLS']},{vias['squid in TLS']}"
        yield Web(port, secure, directory / "ca.pem", vias)


WAYS = [
    "microsocks",
    "microsocks, signed in",
    "dante",
    "tinyproxy",
    "tinyproxy, signed in",
    "squid",
    "squid in TLS",
    "microsocks, then tinyproxy",
    "tinyproxy, then squid in TLS",
    "squid in TLS, then microsocks",
    "squid in TLS, then itself",
]


@pytest.mark.real
@pytest.mark.parametrize("way", WAYS)
def test_every_kind_on_a_stream_goes_by_every_way(lab, job, web, way):
    through = hops(web.vias[way])
    trusting = {"ca": str(web.ca), "sni": "line.test"}

    tcp, expecting, http, https, tls, distrusted = run(
        lab,
        job(f"tcp://127.0.0.1:{web.port}", token=1, hops=through),
        job(f"tcp://127.0.0.1:{web.port}", {"send": "GET / HTTP/1.0\\r\\n\\r\\n", "expect": "200 OK"}, token=2, hops=through),
        job(f"http://127.0.0.1:{web.port}/", {"body": "ok"}, token=3, hops=through),
        job(f"https://127.0.0.1:{web.secure}/", trusting, token=4, hops=through),
        job(f"tls://127.0.0.1:{web.secure}", trusting, token=5, hops=through),
        job(f"tls://127.0.0.1:{web.secure}", token=6, hops=through),
    )  # fmt: skip

    for result in (tcp, expecting, http, https, tls):
        assert (result.failure, result.note, result.clock) == (None, "", Clock.RX_STAMP)
        assert (result.sent, result.lost) == (1, 0)
        assert result.phases.connect < 500_000
        assert 0 < result.phases.proxy <= result.phases.total
    assert tcp.rtt_us <= tcp.phases.proxy, "the last hop's part of it"
    assert (http.status, https.status) == (200, 200)
    assert http.rtt_us == http.phases.first
    assert https.phases.expires == tls.phases.expires == distrusted.phases.expires > 0
    assert https.phases.tls > 0
    assert distrusted.failure is Failure.TLS
    assert "certificate" in distrusted.note


@pytest.mark.real
@pytest.mark.parametrize(
    ("way", "failure", "words"),
    [
        ("microsocks", Failure.REFUSED, "connection refused, says proxy socks5://"),
        ("dante", Failure.REFUSED, "connection refused, says proxy socks5h://"),
        ("tinyproxy", Failure.UNREACHABLE, "status 500 Unable to connect, says proxy http://"),
        ("squid", Failure.REFUSED, "connection refused (status 503 Service Unavailable), says proxy http://"),
        ("microsocks, then tinyproxy", Failure.UNREACHABLE, "status 500 Unable to connect, says proxy http://"),
        ("squid in TLS, then microsocks", Failure.REFUSED, "connection refused, says proxy socks5://"),
    ],
)
def test_what_a_proxy_tells_of_the_target_is_the_targets(lab, job, web, way, failure, words):
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
        gone.shutdown(socket.SHUT_RDWR)  # kept bound, refuses

        results = run(
            lab,
            *(
                job(f"{kind}://127.0.0.1:{port}", token=token, hops=hops(web.vias[way]))
                for token, kind in enumerate(("tcp", "http", "tls"), 1)
            ),
        )

    for result in results:
        assert (result.failure, result.note[: len(words)]) == (failure, words)
        assert (result.rtt_us is not None) is (failure is Failure.REFUSED), "refused is an answer"
        assert result.phases.proxy is None
        assert result.late is False


@pytest.mark.real
@pytest.mark.parametrize(
    ("way", "user", "words"),
    [
        ("microsocks, signed in", "", "asks for a user and a password"),
        ("microsocks, signed in", "bob:falsch@", "refuses the user or the password"),
        ("tinyproxy, signed in", "", "asks for a user and password (status 407 Proxy Authentication Required)"),
        ("tinyproxy, signed in", "bob:falsch@", "refuses the user and password (status 401 Unauthorized)"),
    ],
)
def test_a_proxy_that_does_not_let_us_in_is_at_fault_itself(lab, job, web, way, user, words):
    scheme, _, rest = web.vias[way].partition("://")
    via = f"{scheme}://{user}{rest.rpartition('@')[2]}"

    [result] = run(lab, job(f"http://127.0.0.1:{web.port}/", hops=hops(via)))

    assert (result.failure, result.note) == (Failure.PROXY, f"proxy {hops(via)[0]}: {words}")
    assert (result.rtt_us, result.phases.proxy, result.status) == (None, None, 0)
    assert "falsch" not in str(result)


@pytest.mark.real
@pytest.mark.parametrize("way", ["microsocks", "dante", "squid"])
def test_dns_goes_by_tcp_through_a_proxy(lab, job, web, tmp_path, way):
    with parts.dnsmasq(tmp_path, records={"a.test": "127.0.0.9"}) as dnsmasq:
        asked = f"dns://127.0.0.1:{dnsmasq.port}/a.test"

        good, bad = run(
            lab,
            job(asked, {"expect": "127.0.0.9"}, token=1, hops=hops(web.vias[way])),
            job(asked, {"expect": "127.0.0.8"}, token=2, hops=hops(web.vias[way])),
        )

    assert (good.failure, good.clock) == (None, Clock.RX_STAMP)
    assert good.rtt_us == good.phases.first
    assert (bad.failure, bad.note) == (Failure.STATUS, "no 127.0.0.8 among the answers")


@pytest.mark.real
@pytest.mark.parametrize("way", ["microsocks, signed in", "tinyproxy, then squid in TLS"])
def test_redis_grpc_and_http2_go_by_proxy_like_all_that_is_a_stream(lab, job, web, tmp_path, way):
    through = hops(web.vias[way])
    with parts.redis(tmp_path) as redis, grpc_server() as grpc:
        results = run(
            lab,
            job(f"redis://127.0.0.1:{redis.port}", token=1, hops=through),
            job(f"grpc://127.0.0.1:{grpc}/shop.v1.Orders", token=2, hops=through),
            job(f"https://127.0.0.1:{web.secure}/", {"version": "2", "verify": False}, token=3, hops=through),
        )

    for result in results:
        assert (result.failure, result.note, result.clock) == (None, "", Clock.RX_STAMP)
        assert result.rtt_us == result.phases.first
        assert result.phases.proxy > 0
    assert results[2].phases.tls > 0


@pytest.mark.real
def test_a_dead_hop_is_told_by_its_own_name(lab, job, web):
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
        gone.shutdown(socket.SHUT_RDWR)
        dead = f"http://127.0.0.1:{port}"

        first, second = run(
            lab,
            job(f"tcp://127.0.0.1:{web.port}", token=1, hops=hops(dead)),
            job(f"tcp://127.0.0.1:{web.port}", token=2, hops=hops(f"{web.vias['microsocks']},{dead}")),
        )

    assert (first.failure, first.note) == (Failure.PROXY, f"proxy {dead}: connection refused")
    assert second.failure is Failure.PROXY
    assert second.note == f"proxy {dead}: connection refused, says proxy {web.vias['microsocks']}"
    assert first.rtt_us is second.rtt_us is None


# -- proxies of our own: what is asked, and what goes wrong -----------------------------------------------------------------


def proxying(serve, heard: list[bytes], *answers: bytes, wait: bool = True, pause: float = 0.0):
    """A proxy that says `answers` one after the other, each to whatever it hears."""

    async def peer(reader, writer):
        for answer in answers:
            heard.append(await reader.read(4096))
            await asyncio.sleep(pause)
            writer.write(answer)
            await writer.drain()
        if wait:
            heard.append(await reader.read(4096))
            await reader.read()

    return serve(peer)


NAMES = {"proxy.test": "127.0.0.1", "line.test": "10.9.8.7"}


def naming(asked: list[str]) -> Resolver:
    """A resolver of NAMES that tells what it was asked."""

    def look_up(host: str, family: int) -> tuple[str, ...]:
        asked.append(host)
        return (NAMES[host],)

    return Resolver(lookup=look_up)


@pytest.mark.parametrize(
    ("scheme", "answers", "request_holds", "looked_up"),
    [
        ("socks5", (b"\x05\x00", YES), b"\x01\x0a\x09\x08\x07\x00\x07", ["proxy.test", "line.test"]),
        ("socks5h", (b"\x05\x00", YES), b"\x03\x09line.test\x00\x07", ["proxy.test"]),
        ("http", (ESTABLISHED,), b"CONNECT line.test:7 HTTP/1.1\r\n", ["proxy.test"]),
    ],
)
def test_the_targets_name_is_resolved_where_the_scheme_says(lab, job, serve, scheme, answers, request_holds, looked_up):
    heard, asked = [], []

    result = by_peers(
        lab,
        lambda port: job("tcp://line.test:7", hops=hops(f"{scheme}://proxy.test:{port}")),
        proxying(serve, heard, *answers),
        resolver=naming(asked),
    )

    assert (result.failure, result.clock) == (None, Clock.RX_STAMP)
    assert result.phases.resolve > 0
    assert request_holds in heard[-2 if len(heard) > len(answers) else -1]
    assert asked == looked_up


def test_a_chain_hands_over_the_next_proxys_name_as_its_scheme_says(lab, job, serve):
    heard, asked = [], []
    # One peer plays both proxies: the first says yes, then what comes through it is said to the second.
    made = proxying(serve, heard, b"\x05\x00", YES, ESTABLISHED, OK)

    result = by_peers(
        lab,
        lambda port: job("http://line.test:7/", hops=hops(f"socks5h://proxy.test:{port},http://bob:pw@second.test:3128")),
        made,
        resolver=naming(asked),
    )  # fmt: skip

    assert (result.failure, result.status) == (None, 200)
    assert b"second.test\x0c\x38" in heard[1]
    assert heard[2].startswith(b"CONNECT line.test:7 HTTP/1.1\r\n")
    assert heard[3].startswith(b"GET / HTTP/1.1\r\n")
    assert b"Proxy-Authorization" not in heard[3]
    assert asked == ["proxy.test"]


def test_a_name_that_does_not_resolve_here_is_told_by_name(lab, job):
    def look_up(host: str, family: int) -> tuple[str, ...]:
        raise socket.gaierror(socket.EAI_NONAME, host)

    [result] = run(lab, job("tcp://127.0.0.1:7", hops=hops("http://proxy.test:1")), resolver=Resolver(lookup=look_up))

    assert (result.failure, result.note, result.sent) == (Failure.RESOLVE, "proxy.test: name does not resolve", 0)


def test_the_time_to_the_proxy_and_beyond_it_are_apart(lab, job, serve):
    heard = []

    result = by_peers(
        lab,
        lambda port: job("tcp://line.test:7", hops=hops(f"socks5h://127.0.0.1:{port}")),
        proxying(serve, heard, b"\x05\x00", YES, pause=0.1),
    )

    assert result.failure is None
    assert 95_000 <= result.rtt_us < result.phases.proxy, "from asking to the yes"
    assert result.phases.proxy >= 190_000, "the greeting too"
    assert result.phases.connect < 90_000


def test_late_is_what_connect_and_proxies_took_together(lab, job, serve):
    result = by_peers(
        lab,
        lambda port: job("tcp://line.test:7", hops=hops(f"socks5h://127.0.0.1:{port}"), timeout=0.15, patience=3.0),
        proxying(serve, [], b"\x05\x00", YES, pause=0.1),
    )

    assert (result.failure, result.late) == (None, True)


@pytest.mark.parametrize("scheme", ["socks5h", "http"])
def test_an_answer_in_single_bytes_is_the_same_answer(lab, job, serve, scheme):
    async def peer(reader, writer):
        answers = (b"\x05\x00", YES) if scheme == "socks5h" else (ESTABLISHED,)
        for answer in (*answers, OK):
            await reader.read(4096)
            for byte in answer:
                writer.write(bytes((byte,)))
                await writer.drain()
                await asyncio.sleep(0)

    result = by_peers(
        lab, lambda port: job("http://line.test/", hops=hops(f"{scheme}://127.0.0.1:{port}")), serve(peer)
    )

    assert (result.failure, result.status) == (None, 200)


@pytest.mark.parametrize(
    ("scheme", "answers"),
    [("socks5h", (b"\x05\x00", YES + b"220 hello\r\n")), ("http", (ESTABLISHED + b"220 hello\r\n",))],
)
def test_a_target_that_speaks_first_is_heard_though_it_comes_with_the_yes(lab, job, serve, scheme, answers):
    result = by_peers(
        lab,
        lambda port: job("tcp://line.test:25", {"expect": "220 "}, hops=hops(f"{scheme}://127.0.0.1:{port}")),
        proxying(serve, [], *answers),
    )  # fmt: skip

    assert (result.failure, result.note) == (None, "")


STALLS = [
    ("socks5", (), Failure.PROXY, "accepts and does not answer"),
    ("socks5", (b"\x05",), Failure.PROXY, "accepts and does not answer"),
    ("socks5", (b"\x05\x00",), Failure.TIMEOUT, "does not say whether it reaches the target"),
    ("socks5", (b"\x05\x00", b"\x05\x00\x00"), Failure.TIMEOUT, "does not say whether it reaches the target"),
    ("socks5", (b"\x05\x00", YES), Failure.TIMEOUT, "no answer within the time"),
    ("http", (), Failure.TIMEOUT, "does not say whether it reaches the target"),
    ("http", (b"HTTP/1.1 200 OK\r\n",), Failure.TIMEOUT, "does not say whether it reaches the target"),
    ("http", (ESTABLISHED,), Failure.TIMEOUT, "no answer within the time"),
    ("https", (), Failure.PROXY, "accepts and does not answer"),
]


def test_a_stall_is_told_by_where_it_is(lab, job, serve):
    """All at once: each takes its whole time, which is long enough for a busy machine to say what the proxy says."""

    async def main():
        async with contextlib.AsyncExitStack() as stack:
            jobs = []
            for token, (scheme, answers, _, _) in enumerate(STALLS):
                port = await stack.enter_async_context(proxying(serve, [], *answers))
                via = hops(f"{scheme}://127.0.0.1:{port}")
                jobs.append(job("http://10.9.8.7/", token=token, hops=via, timeout=0.5, patience=0.5))
            async with lab() as engine:
                return await engine.probe(*jobs)

    for result, (scheme, answers, failure, words) in zip(asyncio.run(main()), STALLS, strict=True):
        assert (result.failure, result.late) == (failure, True), (scheme, answers)
        assert result.note.endswith(words), (scheme, answers)
        assert result.rtt_us is None
        assert (result.phases.proxy is None) is (words != "no answer within the time")
        assert (result.sent, result.lost) == (1, 0), "no SYN was lost"


@pytest.mark.parametrize("scheme", ["socks5", "http", "https"])
@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("nothing", b""),
        ("a greeting of something else", b"SSH-2.0-OpenSSH_9.6\r\n"),
        ("megabytes", b"\x05\x00" * 2_000_000),
        ("a header without an end", b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500_000),
    ],
    ids=["nothing", "ssh", "megabytes", "endless-header"],
)
def test_a_proxy_that_talks_nonsense_is_at_fault_and_costs_no_memory(lab, job, serve, say, scheme, name, data):
    result = by_peers(
        lab, lambda port: job("http://10.9.8.7/", hops=hops(f"{scheme}://127.0.0.1:{port}")), serve(say(data))
    )

    assert (result.failure, result.late) == (Failure.PROXY, False)
    assert result.note.startswith(f"proxy {scheme}://127.0.0.1:")
    assert (result.rtt_us, result.phases.proxy) == (None, None)


@pytest.mark.parametrize("scheme", ["socks5", "http"])
def test_a_reset_by_the_proxy_is_the_proxys(lab, job, serve, say, scheme):
    result = by_peers(
        lab,
        lambda port: job("tcp://10.9.8.7:7", hops=hops(f"{scheme}://127.0.0.1:{port}")),
        serve(say(b"", reset=True)),
    )

    assert result.failure is Failure.PROXY
    assert result.note.partition(": ")[2] in {"connection reset", "closed without an answer"}


def test_a_tunnel_that_closes_is_the_targets_end(lab, job, serve):
    result = by_peers(
        lab,
        lambda port: job("http://10.9.8.7/", hops=hops(f"http://127.0.0.1:{port}")),
        proxying(serve, [], ESTABLISHED, wait=False),
    )

    assert (result.failure, result.note) == (Failure.RESET, "closed without an answer")
    assert result.phases.proxy > 0


@pytest.mark.parametrize(("verify", "is_told"), [("yes", False), ("no", True)])
def test_a_proxy_gets_the_password_only_once_its_certificate_verified(lab, job, serve, verify, is_told):
    heard = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)

    async def peer(reader, writer):
        heard.append(await reader.read(4096))

    result = by_peers(
        lab,
        lambda port: job("http://10.9.8.7/", hops=hops(f"https://bob:geheim@127.0.0.1:{port}?verify={verify}")),
        serve(peer, tls=context),
    )

    assert result.failure is Failure.PROXY
    assert result.note.startswith("proxy https://127.0.0.1:")
    assert ("certificate" in result.note) is not is_told
    assert any(b"Proxy-Authorization: Basic" in each for each in heard) is is_told


def test_what_a_proxy_adds_to_its_yes_breaks_the_handshake_behind_it(lab, job, serve):
    result = by_peers(
        lab,
        lambda port: job("tls://10.9.8.7:443", {"verify": False}, hops=hops(f"http://127.0.0.1:{port}")),
        proxying(serve, [], ESTABLISHED + b"surprise"),
    )

    assert result.failure is Failure.TLS
    assert result.note.startswith("TLS: ")


def test_no_answer_from_the_proxys_address_is_a_timeout_with_its_lost_syns(lab, job):
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, socket.create_connection(full.getsockname()):
        via = f"http://127.0.0.1:{full.getsockname()[1]}"

        [result] = run(lab, job("tcp://10.9.8.7:7", hops=hops(via), timeout=0.1, patience=0.1))

    assert (result.failure, result.note) == (Failure.TIMEOUT, f"proxy {via}: no answer to connect")
    assert result.sent == result.lost >= 1


def test_source_and_interface_are_those_of_the_connection_to_the_proxy(lab, job, serve):
    seen = []

    async def peer(reader, writer):
        seen.append(writer.get_extra_info("peername")[0])
        await reader.read(4096)
        writer.write(ESTABLISHED)

    interface = "lo" if os.geteuid() == 0 else ""
    result = by_peers(
        lab,
        lambda port: job(
            "tcp://10.9.8.7:7", hops=hops(f"http://127.0.0.1:{port}"), source="127.0.0.5", interface=interface
        ),
        serve(peer),
    )

    assert result.failure is None
    assert seen == ["127.0.0.5"]


def test_the_family_of_the_source_is_that_of_the_proxys_address_and_the_targets_is_its_own(lab, job):
    asked = []

    def look_up(host: str, family: int) -> tuple[str, ...]:
        asked.append((host, family))
        if host == "proxy.test":
            return ("::1",)
        raise socket.gaierror(socket.EAI_NONAME, host)

    through = hops("socks5://proxy.test:1080")
    [result] = run(lab, job("tcp://line.test:7", hops=through, source="::1"), resolver=Resolver(lookup=look_up))

    assert (result.failure, result.note) == (Failure.RESOLVE, "line.test: name does not resolve")
    assert asked == [("proxy.test", 6), ("line.test", 0)]


def test_a_proxy_and_a_target_of_ipv6_are_spoken_to_like_any(lab, job, serve):
    heard = []

    async def peer(reader, writer):
        heard.append(await reader.read(4096))
        writer.write(ESTABLISHED)

    async def main():
        async with serve(peer, "::1") as port, lab() as engine:
            return await engine.one(job("tcp://[2001:db8::1]:7", hops=hops(f"http://[::1]:{port}")))

    result = asyncio.run(main())

    assert (result.failure, result.clock) == (None, Clock.RX_STAMP)
    assert heard[0].startswith(b"CONNECT [2001:db8::1]:7 HTTP/1.1\r\nHost: [2001:db8::1]:7\r\n")


def test_the_address_in_use_is_the_targets_where_it_is_known_here(lab, job, serve):
    async def main():
        async with (
            proxying(serve, [], b"\x05\x00", YES) as here,
            proxying(serve, [], ESTABLISHED) as there,
            lab(resolver=naming([])) as engine,
        ):
            resolved = job("tcp://line.test:7", token=1, hops=hops(f"socks5://127.0.0.1:{here}"))
            handed_over = job("tcp://line.test:7", token=2, hops=hops(f"http://127.0.0.1:{there}"))
            await engine.probe(resolved, handed_over)
            return engine.engine.address(resolved), engine.engine.address(handed_over)

    assert asyncio.run(main()) == ("10.9.8.7", "")


def test_a_probe_that_cannot_go_by_a_proxy_never_becomes_a_job(job):
    with pytest.raises(LocalProtocolError, match="does not go by way of a proxy"):
        job("icmp://127.0.0.1", hops=hops("socks5://127.0.0.1:1080"))
