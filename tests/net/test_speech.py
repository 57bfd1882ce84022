"""HTTP and TLS against peers of every kind, good ones (nginx) and bad ones."""

from __future__ import annotations

import asyncio
import datetime as dt
import gc
import os
import random
import time
import weakref

import pytest
import trustme

from reachline.model import Clock, Failure
from reachline.net.tls import Contexts
from reachline.talk.secure import Secure
from reachline.testing import parts

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def run(lab, serve, peer, make, **options):
    async def main():
        async with serve(peer) as port, lab(**options) as engine:
            result = await engine.one(make(port))
            assert engine.engine.counters().live == 0
            return result

    return asyncio.run(main())


def get(job, options=None, **fields):
    return lambda port: job(f"http://127.0.0.1:{port}/healthz", options, **fields)


def test_a_response_has_its_phases_and_the_first_bytes_stamp(lab, job, serve, say):
    result = run(lab, serve, say(OK), get(job))

    assert (result.failure, result.status, result.note) == (None, 200, "")
    assert result.clock is Clock.RX_STAMP
    assert result.rtt_us == result.phases.first
    assert result.phases.resolve == 0
    assert 0 < result.phases.connect < 500_000
    assert result.phases.tls is None
    assert result.phases.total >= result.phases.connect + result.phases.first
    assert (result.sent, result.lost) == (1, 0)


@pytest.mark.parametrize(
    ("data", "options", "failure", "status", "note"),
    [
        (OK.replace(b"200 OK", b"503 Oops"), {}, Failure.STATUS, 503, "status 503"),
        (OK.replace(b"200 OK", b"503 Oops"), {"expect": "5xx"}, None, 503, ""),
        (OK.replace(b"200 OK", b"302 Found"), {}, None, 302, ""),
        (OK.replace(b"200 OK", b"302 Found"), {"expect": "200"}, Failure.STATUS, 302, "status 302"),
        (OK, {"body": "ok"}, None, 200, ""),
        (OK, {"body": "fine"}, Failure.STATUS, 200, "the body does not contain what is expected"),
        (b"HTTP/1.1 200 OK\r\n\r\nfine until the end", {"body": "the end"}, None, 200, ""),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, {}, None, 200, ""),
        (b"SSH-2.0-OpenSSH_9.6\r\n", {}, Failure.PROTOCOL, 0, "not HTTP"),
        (random.Random(5).randbytes(300_000), {}, Failure.PROTOCOL, 0, "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nConte", {}, Failure.PROTOCOL, 0, "closed within the header"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nok", {}, Failure.PROTOCOL, 200, "closed within the body"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: ten\r\n\r\n", {}, Failure.PROTOCOL, 0, "content-length is not a number"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000, {}, Failure.PROTOCOL, 0, "header of more than 32768 bytes"),
        (b"", {}, Failure.RESET, 0, "closed without an answer"),
    ],
)  # fmt: skip
def test_an_answer_is_judged_by_status_body_and_framing(lab, job, serve, say, data, options, failure, status, note):
    result = run(lab, serve, say(data), get(job, options))

    assert (result.failure, result.status, result.note) == (failure, status, note)
    assert result.late is False


def test_a_reset_instead_of_an_answer_is_a_reset(lab, job, serve, say):
    result = run(lab, serve, say(b"", reset=True), get(job))

    assert result.failure is Failure.RESET
    assert result.note in {"connection reset", "closed without an answer"}
    assert result.rtt_us is None
    assert result.phases.first is None


def test_a_peer_that_never_answers_is_a_timeout_though_it_was_reached(lab, job, serve, say):
    result = run(lab, serve, say(b"", wait=True), get(job, timeout=0.1, patience=0.1))

    assert (result.failure, result.late, result.rtt_us) == (Failure.TIMEOUT, True, None)
    assert result.note == "no answer within the time"
    assert result.phases.connect > 0
    assert (result.phases.first, result.phases.total) == (None, None)
    assert (result.sent, result.lost) == (1, 0), "no SYN was lost"


def test_a_slow_drip_ends_with_patience(lab, job, serve):
    async def peer(reader, writer):
        await reader.read(4096)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    result = run(lab, serve, peer, get(job, timeout=0.3, patience=0.3))

    assert (result.failure, result.late, result.status) == (Failure.TIMEOUT, True, 200)
    assert result.note == "the answer does not end"
    assert result.phases.first is not None


def test_an_answer_between_timeout_and_patience_is_late_with_its_figures(lab, job, serve):
    async def peer(reader, writer):
        await reader.read(4096)
        await asyncio.sleep(0.15)
        writer.write(OK)

    result = run(lab, serve, peer, get(job, timeout=0.1, patience=2.0))

    assert (result.failure, result.late, result.status) == (None, True, 200)
    assert result.rtt_us >= 140_000


def test_a_huge_body_is_read_to_the_limit_in_bounded_memory(lab, job, serve):
    async def peer(reader, writer):
        await reader.read(4096)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
        for _ in range(1_000):
            writer.write(b"x" * 100_000)
            await writer.drain()

    gc.collect()
    result = run(lab, serve, peer, get(job, {"limit": 1_000_000}, timeout=5.0))

    assert (result.failure, result.status) == (None, 200)


def test_a_body_beyond_the_limit_cannot_hold_what_is_expected(lab, job, serve, say):
    data = b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 5_000 + b"needle"

    found = run(lab, serve, say(data), get(job, {"body": "needle"}))
    missed = run(lab, serve, say(data, wait=True), get(job, {"body": "needle", "limit": 1_000}))

    assert found.failure is None
    assert missed.failure is Failure.STATUS


def test_the_request_is_what_the_options_say(lab, job, serve):
    seen = []

    async def peer(reader, writer):
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        await reader.read()

    options = {"method": "HEAD", "path": "/live?x=1", "host": "api.test", "headers": "X-A: 1\nUser-Agent: probe"}
    result = run(lab, serve, peer, get(job, options))

    assert (result.failure, result.status) == (None, 204)
    lines = seen[0].decode().split("\r\n")
    assert lines[0] == "HEAD /live?x=1 HTTP/1.1"
    assert "Host: api.test" in lines
    assert "X-A: 1" in lines
    assert "User-Agent: probe" in lines
    assert "Connection: close" in lines


# -- TLS ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    ca = trustme.CA()
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    ca.cert_pem.write_to_path(str(path))
    return ca, path


def pair(ca, directory, *, days: int = 30, name: str = "line.test"):
    """(chain, key) of a certificate that ends in `days`."""
    end = dt.datetime.now(dt.UTC) + dt.timedelta(days=days)
    begin = end - dt.timedelta(days=60)
    cert = ca.issue_cert(name, "127.0.0.1", not_before=begin, not_after=end)
    chain, key = directory / "chain.pem", directory / "key.pem"
    chain.write_bytes(b"".join(blob.bytes() for blob in cert.cert_chain_pems))
    cert.private_key_pem.write_to_path(str(key))
    return (chain, key), int(end.timestamp())


@pytest.mark.real
def test_nginx_answers_http(lab, job, tmp_path):
    with parts.nginx(tmp_path, server="location / { return 200 'fine'; } location /bad { return 500; }") as nginx:

        async def main():
            async with lab() as engine:
                return await engine.probe(
                    job(f"http://127.0.0.1:{nginx.port}/", {"body": "fine"}, token=1),
                    job(f"http://127.0.0.1:{nginx.port}/bad", token=2),
                    job(f"tcp://127.0.0.1:{nginx.port}", token=3),
                    job(f"tls://127.0.0.1:{nginx.port}", token=4),
                )

        good, bad, tcp, tls = asyncio.run(main())

    assert (good.failure, good.status, good.clock) == (None, 200, Clock.RX_STAMP)
    assert (bad.failure, bad.status) == (Failure.STATUS, 500)
    assert (tcp.failure, tcp.clock) == (None, Clock.TCP_INFO)
    assert tls.failure is Failure.TLS
    assert tls.note.startswith("TLS: ")


@pytest.mark.real
def test_nginx_shakes_hands_and_its_certificate_is_read(lab, job, tmp_path, authority):
    ca, path = authority
    files, end = pair(ca, tmp_path)
    with parts.nginx(tmp_path, certificate=files) as nginx:
        trusting = {"ca": str(path), "sni": "line.test"}

        async def main():
            async with lab() as engine:
                return await engine.probe(
                    job(f"tls://127.0.0.1:{nginx.port}", trusting, token=1, timeout=2.0),
                    job(f"https://127.0.0.1:{nginx.port}/", trusting, token=2, timeout=2.0),
                    job(f"https://127.0.0.1:{nginx.port}/", {"ca": str(path)}, token=3, timeout=2.0),
                    job(
                        f"https://127.0.0.1:{nginx.port}/", {"ca": str(path), "sni": "other.test"}, token=4, timeout=2.0
                    ),
                    job(f"https://127.0.0.1:{nginx.port}/", {"verify": False}, token=5, timeout=2.0),
                    job(f"https://127.0.0.1:{nginx.port}/", {}, token=6, timeout=2.0),
                )

        tls, https, by_address, wrong_name, unverified, unknown = asyncio.run(main())

    assert (tls.failure, tls.clock, tls.phases.expires) == (None, Clock.TCP_INFO, end)
    assert tls.phases.tls > 0
    for result in (https, by_address, unverified):
        assert (result.failure, result.status, result.phases.expires) == (None, 200, end)
        assert result.phases.total >= result.phases.connect + result.phases.tls + result.phases.first
    assert wrong_name.failure is Failure.TLS
    assert "other.test" in wrong_name.note
    assert unknown.failure is Failure.TLS
    assert "certificate" in unknown.note
    assert wrong_name.phases.expires == unknown.phases.expires == end, "read without verifying, by a second connection"


@pytest.mark.real
def test_an_expired_certificate_is_a_tls_failure_that_still_says_when_it_ended(lab, job, tmp_path, authority):
    ca, path = authority
    files, end = pair(ca, tmp_path, days=-2)
    with parts.nginx(tmp_path, certificate=files) as nginx:

        async def main():
            async with lab() as engine:
                return await engine.probe(
                    job(f"https://127.0.0.1:{nginx.port}/", {"ca": str(path)}, token=1, timeout=2.0),
                    job(f"https://127.0.0.1:{nginx.port}/", {"verify": False}, token=2, timeout=2.0),
                )

        strict, lax = asyncio.run(main())

    assert (strict.failure, strict.note) == (Failure.TLS, "certificate: certificate has expired")
    assert strict.phases.expires == lax.phases.expires == end
    assert end < time.time()
    assert (lax.failure, lax.status) == (None, 200)


def test_a_peer_that_closes_in_the_handshake_is_a_tls_failure(lab, job, serve, say):
    result = run(lab, serve, say(b""), lambda port: job(f"https://127.0.0.1:{port}/", {"verify": False}))

    assert (result.failure, result.note) == (Failure.TLS, "closed during the TLS handshake")


def test_garbage_in_the_handshake_is_a_tls_failure(lab, job, serve, say):
    result = run(
        lab,
        serve,
        say(random.Random(5).randbytes(4_000)),
        lambda port: job(f"tls://127.0.0.1:{port}", {"verify": False}),
    )

    assert result.failure is Failure.TLS
    assert result.note.startswith("TLS: ")


def test_a_peer_that_stalls_in_the_handshake_is_a_timeout(lab, job, serve, say):
    made = {"verify": False}
    result = run(
        lab, serve, say(b"", wait=True), lambda port: job(f"tls://127.0.0.1:{port}", made, timeout=0.1, patience=0.1)
    )

    assert (result.failure, result.late) == (Failure.TIMEOUT, True)
    assert result.phases.tls is None


def test_a_ca_file_that_is_missing_is_our_fault_and_nothing_is_sent(lab, job, serve, say):
    result = run(lab, serve, say(OK), lambda port: job(f"https://127.0.0.1:{port}/", {"ca": "/nosuch.pem"}))

    assert (result.failure, result.sent) == (Failure.AGENT, 0)
    assert "TLS cannot be set up" in result.note


def test_a_ca_file_that_changes_is_read_again_and_the_old_one_forgotten(tmp_path):
    contexts, path = Contexts(), tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(str(path))
    profile = Secure(name="line.test", ca=str(path))
    first = weakref.ref(contexts.of(profile, verify=True))
    assert contexts.of(profile, verify=True) is first()

    os.utime(path, ns=(1, 1))

    assert contexts.of(profile, verify=True) is contexts.of(profile, verify=True)
    gc.collect()
    assert first() is None


@pytest.mark.real
def test_alpn_and_large_bodies_pass_tls(lab, job, tmp_path, authority):
    ca, path = authority
    files, _ = pair(ca, tmp_path)
    (tmp_path / "big").write_bytes(b"x" * 3_000_000 + b"needle")
    with parts.nginx(tmp_path, server=f"root {tmp_path};", certificate=files) as nginx:
        options = {"ca": str(path), "body": "needle", "limit": 4_000_000, "alpn": "http/1.1"}

        async def main():
            async with lab() as engine:
                return await engine.one(job(f"https://127.0.0.1:{nginx.port}/big", options, timeout=5.0))

        result = asyncio.run(main())

    assert (result.failure, result.status) == (None, 200)
