"""What a center owes to who runs it: metrics that parse, a journal that may fail, TLS, sockets of any kind, a quick end."""

from __future__ import annotations

import asyncio
import resource
import ssl
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import apsw
import grpc
import httpx2
import pytest
import trustme
import websockets
from prometheus_client.parser import text_string_to_metric_families
from tests.measured import best_of

from reachline.center.api.guard import Guard
from reachline.errors import ConfigError
from reachline.net import http, rpc
from reachline.testing.center import DOCUMENT, dead, good
from reachline.testing.wait import until
from reachline.wire import frame
from reachline.wire.frame import Hello, Welcome

ALL_GOOD = {"payments/a": good(), "payments/b": good(), "payments/c": good()}


WRITTEN = ("committed_records", "segments", "bytes")


def test_metrics_parse_and_follow_the_conventions(center, sync):
    async def work():
        async with center() as running, running.agent() as agent:
            await agent.reported({"payments/a": good()})
            answer = await running.get("/metrics")
            assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
            families = {family.name: family for family in text_string_to_metric_families(answer.text)}
            ours = {name: family for name, family in families.items() if name.startswith("reachline_")}
            assert "process_cpu_seconds" in families
            assert all(family.documentation for family in ours.values())
            types = {
                "line_weight": "gauge",
                "heartbeats": "counter",
                "frames_refused": "counter",
                "journal_lost_records": "counter",
                "journal_waiting_records": "gauge",
            }
            assert {name: ours[f"reachline_{name}"].type for name in types} == types
            written = {name: ours[f"reachline_journal_{name}"].samples[0].value for name in WRITTEN}
            assert all(value >= 1 for value in written.values()), written
            p95 = {sample.labels["line"]: sample.value for sample in ours["reachline_line_p95_seconds"].samples}
            assert p95 == {"payments/a": 0.11}
            states = [
                sample for sample in ours["reachline_line_state"].samples if sample.labels["line"] == "payments/b"
            ]
            assert {sample.labels["state"]: sample.value for sample in states} == {
                "unknown": 1, "healthy": 0, "degraded": 0, "unhealthy": 0, "draining": 0
            }  # fmt: skip
            loaded = ours["reachline_config_last_reload_success_timestamp_seconds"].samples[0].value
            assert loaded == pytest.approx(time.time(), abs=30)

    sync(work())


@contextmanager
def full_disk(journal: Path):
    """No file may grow beyond what the journal's files are now: what a full disk is to a process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (max(file.stat().st_size for file in journal.iterdir()), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_stops_acknowledgements_and_readiness_and_never_the_judge(center, sync, tmp_path):
    async def work():
        async with center() as running, running.agent() as agent:
            await agent.reported(ALL_GOOD)
            acknowledged = agent.acknowledged
            with full_disk(tmp_path / "journal"):
                await until(lambda: _full(running, agent), what="the journal to be refused")
                lacking = (await running.get("/readyz")).json()["lacks"]
                assert lacking[0].startswith("journal: ")
                assert await running.metric("reachline_journal_writable") == 0
                batch = {"client": "c", "cluster": "payments", "outcomes": [{"line": "payments/a", "ok": 1}]}
                taken = await running.post("/api/v1/outcomes", batch)
                assert (taken.status_code, taken.json()) == (202, {"taken": 1, "unknown": [], "journalled": False})
                assert await running.metric('reachline_outcomes_total{result="ok"}') == 1
                await until(lambda: _is_judged(running), what="the judge, who goes on")
                before = agent.acknowledged
                await agent.report(ALL_GOOD)
                assert (await running.get("/healthz")).status_code == 200
                assert agent.acknowledged == before >= acknowledged
            await until(lambda: _ready(running, agent), what="the journal to take records again")
            await agent.reported(ALL_GOOD)

    sync(work())


async def _full(running, agent):
    for _ in range(5):
        await agent.report(ALL_GOOD)
    return (await running.get("/readyz")).status_code == 503


async def _is_judged(running):
    """The lines were judged a moment ago: without a judge their age only grows."""
    return (await running.json("/api/v1/lines"))["age"] < 1.5


async def _ready(running, agent):
    await agent.report(ALL_GOOD)
    return (await running.get("/readyz")).status_code == 200


@pytest.fixture
def patient(monkeypatch):
    """SQLite waits a minute for a file that somebody holds, not five seconds: a busy machine needs them for a test's steps."""
    monkeypatch.setattr("reachline.store.segment._BUSY_MS", 60_000)


@contextmanager
def hung_disk(journal: Path):
    """Somebody else holds the newest file: a write neither succeeds nor fails while SQLite waits."""
    holder = apsw.Connection(str(max(journal.glob("segment-*.db"))))
    holder.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        holder.execute("ROLLBACK")
        holder.close()


@pytest.mark.usefixtures("patient")
def test_a_hung_disk_stops_acknowledgements_and_neither_the_judge_nor_what_agents_are_told(center, sync, tmp_path):
    async def work():
        async with center() as running, running.agent() as agent, running.agent("two") as older:
            await agent.reported(ALL_GOOD | {"payments/a": dead()})
            await older.reported(ALL_GOOD | {"payments/a": dead()})
            before = agent.acknowledged
            with hung_disk(tmp_path / "journal"):

                async def is_open():
                    await agent.report(ALL_GOOD | {"payments/a": dead()})
                    await older.report(ALL_GOOD | {"payments/a": dead()})
                    return (await running.line("payments/a"))["breaker"] == "open"

                await until(is_open, every=0.2, what="the line to open")
                await until(lambda: "payments/a" in agent.of(frame.Hint)[-1].open, what="a hint")
                async with running.agent("two", boot="b2") as newer:
                    await until(lambda: older.ended and newer.of(frame.Plan), what="a Bye and a plan")
                assert "another agent" in older.bye
                assert agent.acknowledged == before
                assert await running.metric("reachline_published_ahead_total") > 0
                batch = {"client": "c", "cluster": "payments", "outcomes": [{"line": "payments/b", "ok": 1}]}
                taken = await running.post("/api/v1/outcomes", batch)
                assert (taken.status_code, taken.json()["journalled"]) == (202, False)
            hung = agent.sequence

            async def is_acknowledged():
                await agent.report(
                    ALL_GOOD
                )  # what the journal gave up while the disk hung is on disk with the next evidence
                return agent.acknowledged >= hung

            await until(is_acknowledged, every=0.2, what="the acknowledgement")

    sync(work())


@pytest.mark.usefixtures("patient")
def test_nothing_is_acknowledged_before_the_evidence_that_came_before_it(center, sync, tmp_path):
    async def work():
        async with center() as running:
            async with running.agent() as agent:
                await agent.reported(ALL_GOOD)
                with hung_disk(tmp_path / "journal"):
                    evidence = await agent.report(ALL_GOOD)
                    await agent.report({})
                    await agent.report({"nowhere/x": good()})
                    await agent.report(ALL_GOOD, replayed=True)
                    await until(lambda: _heard(running, 5), what="all five to arrive")
                    async with running.agent() as again:
                        await again.report(ALL_GOOD, sequence=evidence, replayed=True)
                        await until(lambda: _heard(running, 5, duplicates=1), what="the duplicate to arrive")
                        # Whatever is to be said first has been said once another agent's stream was opened and served.
                        async with running.agent("two") as bystander:
                            await until(lambda: bystander.of(frame.Plan), what="a plan")
                        assert (agent.acknowledged, again.acknowledged) == (1, 0)
            async with running.agent() as agent:
                await agent.report(ALL_GOOD, sequence=evidence, replayed=True)
                await until(lambda: agent.acknowledged == evidence, what="the acknowledgement")

    sync(work())


async def _heard(running, heartbeats, duplicates=0):
    (row,) = [row for row in (await running.json("/api/v1/agents"))["agents"] if row["agent"] == "one"]
    return (row["heartbeats"], row["duplicates"]) == (heartbeats, duplicates)


@pytest.fixture
def certified(tmp_path):
    """A CA, and a document with its certificate and tokens."""
    ca = trustme.CA()
    issued = ca.issue_cert("localhost", "127.0.0.1")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    tls = f"tls: {{certificate: {tmp_path}/cert.pem, key: {tmp_path}/key.pem}}"
    address = f"grpc: '127.0.0.1:0', http: '127.0.0.1:0', journal: JOURNAL, token: s3cret, {tls}"
    return ca, f"{DOCUMENT}agents: {{one: {{token: t0ken}}}}\ncenter: {{{address}}}\n"


def test_with_certificates_both_doors_speak_tls(center, sync, certified):
    ca, document = certified

    async def work():
        trust = ssl.create_default_context()
        ca.configure_trust(trust)
        async with center(document) as running, httpx2.AsyncClient(verify=trust, trust_env=False) as client:
            assert running.http.startswith("https://")
            answer = await client.get(running.http + "/api/v1/lines", headers={"Authorization": "Bearer s3cret"})
            assert answer.status_code == 200
            credentials = grpc.ssl_channel_credentials(ca.cert_pem.bytes())
            agent = await rpc.attach(running.grpc[0], timeout=30, credentials=credentials)
            await agent.send(frame.encode(Hello(release="x", agent="one", boot="b", token="t0ken")), 5)
            frames = agent.frames()
            welcome = frame.decode(await anext(frames))
            assert isinstance(welcome, Welcome)
            assert not welcome.refused
            await agent.close()

    sync(work())


def test_a_certificate_that_cannot_be_read_is_a_configuration_error(center, sync, certified, tmp_path):
    _, document = certified
    (tmp_path / "cert.pem").write_text("no certificate")

    async def work():
        with pytest.RaisesGroup(pytest.RaisesExc(ConfigError, match="certificate"), flatten_subgroups=True):
            async with center(document):
                pass

    sync(work())


def test_an_authority_of_clients_that_is_none_is_a_configuration_error(center, sync, certified, tmp_path):
    _, document = certified
    (tmp_path / "clients.pem").write_text("no certificate")
    document = document.replace("tls: {", f"tls: {{client_ca: '{tmp_path}/clients.pem', ")

    async def work():
        said = pytest.RaisesExc(ConfigError, match="clients.pem")
        with pytest.RaisesGroup(said, flatten_subgroups=True, allow_unwrapped=True):
            async with center(document):
                pass

    sync(work())


def test_the_http_door_may_be_a_unix_socket_and_a_stale_one_makes_room(center, sync, tmp_path):
    where = tmp_path / "http.sock"
    document = DOCUMENT + f"center: {{grpc: '127.0.0.1:0', http: 'unix:{where}', journal: JOURNAL}}\n"

    async def work():
        for _ in range(2):
            async with center(document) as running:
                assert running.http == f"unix:{where}"
                transport = httpx2.AsyncHTTPTransport(uds=str(where))
                async with httpx2.AsyncClient(transport=transport, base_url="http://center") as client:
                    assert (await client.get("/readyz")).status_code == 200
                with pytest.raises(ConfigError, match="in use"):
                    http.bind(f"unix:{where}", path="center.http")
            assert where.exists()

    sync(work())


@pytest.mark.parametrize(
    ("address", "rule"),
    [
        ("127.0.0.1", "host:port"),
        ("127.0.0.1:99999", "host:port"),
        ("192.0.2.7:0", "no interface"),
        ("no.such.invalid:1", "resolve"),
    ],
)
def test_an_address_that_cannot_be_bound_says_why(address, rule):
    with pytest.raises(ConfigError, match=rule):
        http.bind(address, path="center.http")


@pytest.mark.alone
def test_the_end_does_not_wait_for_readers_that_do_not_read(center, sync):
    door = "/api/v1/clusters/payments/lines"

    async def work():
        async with center() as running:
            version = (await running.json(door))["version"]
            slow = await websockets.connect(running.http.replace("http", "ws") + "/api/v1/ws", max_queue=1)
            poll = asyncio.create_task(running.get(f"{door}?wait=60&version={version}"))
            async with running.client.stream("GET", f"{door}?stream=1") as stream:
                reading = stream.aiter_lines()
                await anext(reading)
                started = time.monotonic()
                running.stop.set()
                assert (await poll).status_code == 304
                assert [each async for each in reading if each.startswith("data")]
        assert time.monotonic() - started < 4
        slow.transport.abort()
        await slow.wait_closed()

    best_of(3, lambda: sync(work()))


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/explain/payments/a?at=nan",
        "/api/v1/explain/payments/a?at=inf",
        "/api/v1/explain/payments/a?at=-1",
        "/api/v1/explain/payments/a?at=1e300",
        "/api/v1/changes?since=nan",
        "/api/v1/changes?since=inf",
        "/api/v1/changes?since=1e300",
        "/api/v1/clusters/payments/lines?wait=nan",
        "/api/v1/clusters/payments/lines?wait=inf",
    ],
)
def test_a_number_that_is_none_is_refused_by_name(center, sync, path):
    async def work():
        async with center() as running:
            answer = await running.get(path)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_parameter")
            assert path.partition("?")[2].partition("=")[0] in answer.json()["error"]["message"]

    sync(work())


async def _begun(running, body=b"{"):
    """A POST that never ends, on its way in the center."""
    where = urlsplit(running.http)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    writer.write(b"POST /api/v1/outcomes HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n" + body)
    await writer.drain()
    assert (await running.get("/healthz")).status_code == 200
    return reader, writer


@pytest.mark.parametrize("body", [b"", b"{"])
@pytest.mark.alone
def test_the_end_does_not_wait_for_a_request_that_does_not_end_and_calls_it_no_fault(center, sync, caplog, body):
    async def work():
        async with center() as running:
            reader, writer = await _begun(running, body)
            started = time.monotonic()
            running.stop.set()
            head = await reader.readuntil(b"\r\n")
            writer.close()
        assert b" 503 " in head
        assert time.monotonic() - started < 4

    best_of(3, lambda: sync(work()))
    assert [record.getMessage() for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []


def test_a_client_that_goes_in_the_middle_of_its_request_is_no_fault_of_ours(center, sync, caplog):
    async def work():
        caplog.set_level("DEBUG", "reachline.center.http")
        async with center() as running:
            _, writer = await _begun(running)
            writer.transport.abort()
            await until(lambda: "request_cut_short" in caplog.messages, what="the end of the request")

    sync(work())
    assert [record.getMessage() for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []


def test_a_request_still_at_work_when_the_grace_is_over_is_told_so():
    async def endless(scope, receive, send):
        await asyncio.Event().wait()

    async def work():
        closing, told = asyncio.Event(), []

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message):
            told.append(message)

        scope = {"type": "http", "method": "GET", "path": "/api/v1/explain/x", "headers": []}
        asking = asyncio.create_task(Guard(endless, closing=closing)(scope, receive, send))
        await asyncio.sleep(0)
        closing.set()
        asking.cancel()
        await asking
        assert told[0]["status"] == 503

    asyncio.run(work())
