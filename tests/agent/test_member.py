"""An agent that joins at a real center, and renews its certificate there in time."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import stat
import threading
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import ClassVar

import httpx2
import pytest
import trustme
from envoy.service.health.v3 import hds_pb2
from google.protobuf import json_format
from tests.center.planes import hello

from reachline.agent.member import Member, join, member_in, renewing
from reachline.errors import ConfigError, RemoteProtocolError
from reachline.net.rpc import attach, client_credentials
from reachline.store.authority import Authority
from reachline.testing.center import running_center
from reachline.testing.wait import until
from reachline.wire import hds
from reachline.wire.certificates import certified, make_request

TEXT = "clusters: {c: {lines: ['tcp://127.0.0.1:9']}}\ncenter: {ca: CA, grpc: '127.0.0.1:0', http: '127.0.0.1:0', journal: JOURNAL}"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path / "ca", "prod.example", now=datetime.now(UTC))


@asynccontextmanager
async def center(tmp_path: Path):
    text = TEXT.replace("CA", str(tmp_path / "ca"))
    async with running_center(tmp_path, text) as running:
        yield running


def test_an_agent_joins_once_and_is_one_from_then_on(tmp_path: Path, authority: Authority):
    home = tmp_path / "state"

    async def work() -> None:
        async with center(tmp_path) as running:
            token = authority.token(role="agent", name="a", by="ann", now=datetime.now(UTC))
            who = await asyncio.to_thread(join, running.http, token, "a", home)
            assert who.uri == "spiffe://prod.example/agent/a"
            with pytest.raises(ConfigError, match="does not let this agent in: nobody knows this token"):
                await asyncio.to_thread(join, running.http, token, "a", tmp_path / "again")

    asyncio.run(work())

    assert member_in(home, "a", now=datetime.now(UTC)) == Member(home)
    assert stat.S_IMODE((home / "member.pem").stat().st_mode) == 0o600
    assert (home / "ca.pem").read_bytes() == authority.certificate
    assert not (tmp_path / "again").exists()
    with pytest.raises(ConfigError, match="belongs to a, not to b"):
        member_in(home, "b", now=datetime.now(UTC))
    assert member_in(home, "a", now=datetime.now(UTC) + timedelta(days=2)) is None


def test_a_certificate_is_renewed_at_two_thirds_and_not_before(tmp_path: Path, authority: Authority):
    began = datetime.now(UTC)
    member = Member(tmp_path / "state")
    asked = make_request("a")
    chain = authority.issue("agent", "a", asked.shown, life=timedelta(hours=24), by="ann", now=began)
    member.keep(asked.key, chain, authority.certificate)
    slept: list[float] = []
    now = began

    async def work() -> None:
        async with center(tmp_path) as running:
            renewed = asyncio.Event()

            async def sleep(seconds: float) -> None:
                nonlocal now
                slept.append(seconds)
                now += timedelta(seconds=seconds)
                if member.certificate.read_bytes() != asked.key + chain:
                    renewed.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(renewing(member, running.grpc, rng=Random(1), sleep=sleep, wall=lambda: now))
            await renewed.wait()
            task.cancel()

    asyncio.run(asyncio.wait_for(work(), 60))

    said = certified(member.certificate.read_bytes())
    assert said.identity == certified(chain).identity
    assert max(slept) <= 60
    # The five minutes before its beginning count as its life, and up to a twentieth is by chance.
    assert timedelta(hours=15.9) < timedelta(seconds=sum(slept)) < timedelta(hours=17.3)


def test_a_center_that_is_away_is_asked_again_each_minute_and_the_old_one_stays(tmp_path: Path, authority: Authority):
    began = datetime.now(UTC)
    member = Member(tmp_path / "state")
    asked = make_request("a")
    chain = authority.issue("agent", "a", asked.shown, life=timedelta(hours=24), by="ann", now=began)
    member.keep(asked.key, chain, authority.certificate)
    tries: list[float] = []

    async def sleep(seconds: float) -> None:
        tries.append(seconds)
        if len(tries) == 3:
            raise asyncio.CancelledError

    late = began + timedelta(hours=20)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(renewing(member, (f"unix:{tmp_path}/nobody",), rng=Random(1), sleep=sleep, wall=lambda: late))

    assert tries == [60, 60, 60]
    assert member.certificate.read_bytes() == asked.key + chain


def test_a_certificate_lets_nobody_judge_as_another_over_hds_nor_at_all_once_it_is_shut_out(
    tmp_path: Path, authority: Authority
):
    member = Member(tmp_path / "state")
    asked = make_request("a")
    chain = authority.issue("agent", "a", asked.shown, life=timedelta(hours=1), by="ann", now=datetime.now(UTC))
    member.keep(asked.key, chain, authority.certificate)
    own = str(member.certificate)

    async def said(address: str, method: str, message: bytes) -> str:
        credentials = client_credentials(ca=str(member.ca), certificate=own, key=own)
        stream = await attach(address, timeout=60, credentials=credentials, method=method)
        try:
            with contextlib.suppress(ConnectionError, RemoteProtocolError):  # refused before it said a word
                await stream.send(message, 60)
            with pytest.raises(RemoteProtocolError) as told:
                async with asyncio.timeout(60):
                    await anext(stream.frames())
        finally:
            await stream.close()
        return str(told.value)

    async def work() -> None:
        async with center(tmp_path) as running:
            said_first = json_format.ParseDict(
                hello(hds.METHOD, {"id": "b"}), hds_pb2.HealthCheckRequestOrEndpointHealthResponse()
            ).SerializeToString()
            answer = await said(running.grpc[0], hds.METHOD, said_first)
            assert "its certificate is agent a's: it does not judge as b" in answer

            async def is_out() -> bool:
                return "agent a was shut out" in await said(running.grpc[0], hds.METHOD, said_first)

            authority.shut_out("agent", "a")
            await until(is_out, within=60)

    asyncio.run(work())


def test_nobody_reports_for_a_member_over_http(tmp_path: Path, authority: Authority):
    authority.issue("agent", "a", make_request("a").shown, life=timedelta(hours=1), by="ann", now=datetime.now(UTC))
    report = {"agent_id": "a", "ts": 1_699_999_999, "target_zone": "az2", "target_ip": "127.0.0.1", "probe_type": "tcp"}
    told = {
        "sample_count": 50,
        "avg_rtt_ms": 1,
        "p95_rtt_ms": 2,
        "loss_rate": 1.0,
        "timeout_rate": 0.0,
        "status": "down",
    }

    async def work() -> None:
        async with center(tmp_path) as running:
            trusting = ssl.create_default_context(cadata=authority.certificate.decode())
            async with httpx2.AsyncClient(base_url=running.http, verify=trusting, timeout=60) as client:
                answer = await client.post("/api/v1/heartbeats", json=report | told)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "certified")

    asyncio.run(work())


class Impostor(BaseHTTPRequestHandler):
    """Shows the true authority, with its own behind it, and keeps what it is sent."""

    authorities = b""
    kept: ClassVar[list[bytes]] = []

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(self.authorities)))
        self.end_headers()
        self.wfile.write(self.authorities)

    def do_POST(self) -> None:
        self.kept.append(self.rfile.read(int(self.headers["content-length"])))
        self.send_error(403)

    def log_message(self, *_: object) -> None:
        """Not to the terminal."""


def test_an_impostor_that_adds_its_own_authority_to_the_true_one_is_told_no_token(tmp_path: Path, authority: Authority):
    token = authority.token(role="agent", by="ann", now=datetime.now(UTC))
    own = trustme.CA()
    Impostor.authorities = authority.certificate + own.cert_pem.bytes()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.issue_cert("127.0.0.1").configure_cert(context)
    with ThreadingHTTPServer(("127.0.0.1", 0), Impostor) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()

        with pytest.raises(ConfigError, match="CERTIFICATE_VERIFY_FAILED"):
            join(f"https://127.0.0.1:{server.server_port}", token, "a", tmp_path / "state")

        server.shutdown()
        thread.join()
    assert Impostor.kept == []
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_bytes(b"junk")], ids=["gone", "junk"])
def test_a_certificate_that_cannot_be_read_ends_no_agent(tmp_path: Path, authority: Authority, damage):
    member = Member(tmp_path / "state")
    asked = make_request("a")
    chain = authority.issue("agent", "a", asked.shown, life=timedelta(hours=24), by="ann", now=datetime.now(UTC))
    member.keep(asked.key, chain, authority.certificate)
    damage(member.certificate)
    tries: list[float] = []

    async def sleep(seconds: float) -> None:
        tries.append(seconds)
        if len(tries) == 2:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(renewing(member, (f"unix:{tmp_path}/nobody",), rng=Random(1), sleep=sleep))

    assert tries == [60, 60]


def test_the_part_by_chance_is_drawn_once_a_certificate(tmp_path: Path, authority: Authority):
    began = datetime.now(UTC)
    member = Member(tmp_path / "state")
    asked = make_request("a")
    chain = authority.issue("agent", "a", asked.shown, life=timedelta(hours=24), by="ann", now=began)
    member.keep(asked.key, chain, authority.certificate)
    draws: list[float] = []
    now = began

    class Chance(Random):
        def uniform(self, a: float, b: float) -> float:
            draws.append(super().uniform(a, b))
            return draws[-1]

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += timedelta(seconds=seconds)
        if now >= began + timedelta(hours=2):
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(renewing(member, ("unix:/nobody",), rng=Chance(1), sleep=sleep, wall=lambda: now))

    assert len(draws) == 1


@pytest.mark.parametrize("at", ["http://a:1", "a:1", "https://", "https://a:x"])
def test_where_to_join_must_be_an_https_url(tmp_path: Path, authority: Authority, at: str):
    token = authority.token(role="agent", by="ann", now=datetime.now(UTC))

    with pytest.raises(ConfigError, match="must be the center's https URL"):
        join(at, token, "a", tmp_path)


def test_what_is_no_token_is_said_before_anybody_is_asked(tmp_path: Path):
    with pytest.raises(ConfigError, match="is not a token to join by"):
        join("https://127.0.0.1:9", "rlj1-a-b-", "a", tmp_path)
