"""What a center remembers: breakers and versions over a restart, cuts held until a quorum is heard, documents swapped whole."""

from __future__ import annotations

import json

import pytest

from reachline.center.hold import HOLD_MS, Hold
from reachline.model import Kind, VantageId
from reachline.store.records import Bodies, Reported
from reachline.store.replay import replay
from reachline.store.segment import Segment
from reachline.testing.center import DOCUMENT, dead, good
from reachline.testing.wait import until
from reachline.wire.frame import Bye

ALL_GOOD = {"payments/a": good(), "payments/b": good(), "payments/c": good()}
DOOR = "/api/v1/clusters/payments/lines"


async def open_a(running, agent):
    async def is_open():
        await agent.reported(ALL_GOOD | {"payments/a": dead()})
        return (await running.line("payments/a"))["breaker"] == "open"

    await until(is_open, every=0.3, what="payments/a to open")


def test_a_restart_keeps_the_open_line_its_deadline_and_its_decisions(center, sync, tmp_path):
    async def work():
        async with center() as running, running.agent() as agent:
            await open_a(running, agent)
            was, document = await running.line("payments/a"), await running.json(DOOR)
            decisions = (await running.json("/api/v1/changes"))["changes"]
        async with center() as running:
            row, again = await running.line("payments/a"), await running.json(DOOR)
            assert (row["breaker"], row["weight"], row["health"]) == ("open", 0, "unhealthy")
            assert row["next"] == pytest.approx(
                was["next"], abs=1
            )  # to the second: the journal's clock is bridged by the wall clock
            assert again["epoch"] > document["epoch"]
            kept = (await running.json("/api/v1/changes"))["changes"]
            assert [one["rule"] for one in kept] == [one["rule"] for one in decisions]
            assert kept[-1]["id"] < again["epoch"] << 20
        replayed = replay(tmp_path / "journal")
        assert replayed.difference is None
        assert replayed.decisions == len(decisions)

    sync(work())


def test_a_changed_document_after_a_restart_keeps_what_a_line_is(center, sync):
    renamed = DOCUMENT.replace("{a: ", "{renamed: ").replace('b: "tcp://10.0.0.2:443"', 'd: "tcp://10.0.0.9:443"')

    async def work():
        async with center() as running, running.agent() as agent:
            await open_a(running, agent)
        async with center(renamed) as running:
            rows = await until(lambda: _rows(running, "payments/renamed"), what="the new document in force")
            assert rows["payments/renamed"]["breaker"] == "open"
            assert rows["payments/d"]["breaker"] == "closed"
            assert "payments/b" not in rows

    sync(work())


async def _rows(running, needed):
    rows = {row["line"]: row for row in (await running.json("/api/v1/lines"))["lines"]}
    return rows if needed in rows else None


def test_after_a_restart_judging_waits_for_two_messages_of_a_quorum(center, sync):
    async def work():
        async with center() as running, running.agent() as agent:
            await agent.reported(ALL_GOOD)
        async with center() as running, running.agent() as agent:
            for _ in range(2):
                assert (await running.json("/api/v1/changes"))["changes"] == []
                await agent.reported(ALL_GOOD)
            await until(lambda: _judged(running), what="judging to go on")

    sync(work())


def test_urgent_reports_of_one_line_do_not_end_the_wait_after_a_restart(center, sync):
    async def work():
        async with center() as running, running.agent() as agent:
            await agent.reported(ALL_GOOD)
        async with center() as running, running.agent() as agent:
            published = (await running.json("/api/v1/lines"))["version"]
            await agent.reported(ALL_GOOD)
            for _ in range(3):
                await agent.reported({"payments/a": dead()}, urgent=True)
            # Were judging to go on, each half-second tick would make the age small again.
            assert (await running.json("/api/v1/lines"))["version"] == published
            waited = (await running.json("/api/v1/lines"))["age"]
            await until(lambda: _older(running, waited + 0.6), what="a tick to pass")
            await agent.reported(ALL_GOOD)
            await until(lambda: _judged(running), what="judging to go on")

    sync(work())


async def _older(running, age):
    return (await running.json("/api/v1/lines"))["age"] > age


async def _judged(running):
    return (await running.json("/api/v1/lines"))["age"] < 0.6


def test_a_hold_ends_with_the_second_message_of_a_majority_or_with_its_time():
    members = frozenset(map(VantageId, ("one", "two", "three")))
    hold = Hold(since_ms=1_000)

    hold.heard(VantageId("one"))
    hold.heard(VantageId("one"))
    hold.heard(VantageId("two"))
    hold.heard(VantageId("stranger"))
    hold.heard(VantageId("stranger"))
    assert not hold.is_over(1_000 + HOLD_MS - 1, members)

    hold.heard(VantageId("two"))
    assert hold.is_over(1_001, members)
    assert Hold(since_ms=1_000).is_over(1_000 + HOLD_MS, members)
    assert not Hold(since_ms=1_000).is_over(1_001, frozenset())


def test_a_valid_change_of_the_document_is_swapped_whole_and_an_invalid_one_not_at_all(center, sync, tmp_path):
    file = tmp_path / "reachline.yaml"

    async def work():
        async with center(watch=True) as running, running.agent() as agent:
            await agent.reported(ALL_GOOD)
            valid = file.read_text()
            file.write_text(valid.replace("10.0.0.2:443", "10.0.0.9:8443").replace("weight: 50", "weight: 70"))
            await until(lambda: agent.plan.lines[1].target == "tcp://10.0.0.9:8443", what="the new plan")
            await until(lambda: _weighs(running, "payments/c", 70), what="the new weight")
            assert (await running.json("/api/v1/config"))["is_current"] is True

            file.write_text(valid.replace("weight: 50", "wieght: 50"))
            status = await until(lambda: _refused(running), what="the refusal to show")
            assert "reachline.yaml:" in status["problems"][0]
            assert "did you mean 'weight'" in status["problems"][0]
            assert await running.metric("reachline_config_last_reload_successful") == 0
            assert (await running.line("payments/c"))["weight"] == 70

            file.write_text(valid.replace("grpc: '127.0.0.1:0'", "grpc: '127.0.0.1:17999'"))
            status = await until(lambda: _restart(running), what="the key to be named")
            assert status["restart"] == ["center.grpc"]
            assert await running.metric("reachline_config_last_reload_successful") == 1
            assert await running.metric('reachline_reloads_total{result="refused"}') == 1

    sync(work())


async def _weighs(running, line, weight):
    return (await running.line(line))["weight"] == weight


async def _refused(running):
    status = await running.json("/api/v1/config")
    return None if status["is_current"] else status


async def _restart(running):
    status = await running.json("/api/v1/config")
    return status if status["restart"] else None


def test_clusters_and_agents_come_and_go_with_the_document(center, sync, tmp_path):
    file = tmp_path / "reachline.yaml"

    async def work():
        async with center(watch=True) as running, running.agent() as agent:
            valid = file.read_text()
            file.write_text(valid.replace("clusters:\n", 'clusters:\n  search: {lines: ["tcp://10.1.0.1:80"]}\n'))
            await until(lambda: _rows(running, "search/10.1.0.1"), what="the new cluster")
            await agent.reported({"search/10.1.0.1": good()})
            assert (await running.get("/readyz")).status_code == 200

            file.write_text(valid + "agents: {two: {}}\n")
            await until(lambda: agent.ended, what="the agent to be told")
            assert "no longer names" in agent.bye
            assert (await running.get("/api/v1/clusters/search/lines")).status_code == 404

    sync(work())


HEARTBEAT = {
    "agent_id": "agent-az1-edge-03", "ts": 1699999999, "target_zone": "az2", "target_ip": "10.0.0.1",
    "probe_type": "tcp_connect", "sample_count": 50, "avg_rtt_ms": 158.2, "p95_rtt_ms": 270.3, "loss_rate": 0.012,
    "timeout_rate": 0.04, "status": "degraded",
}  # fmt: skip


def test_the_source_documents_heartbeat_is_taken_as_it_stands(center, sync):
    async def work():
        async with center() as running:
            answer = await running.post("/api/v1/heartbeats", HEARTBEAT)
            assert (answer.status_code, answer.json()) == (202, {"line": "payments/a", "journalled": True})
            page = await running.json("/api/v1/lines/payments/a")
            (reading,) = page["readings"]
            assert (reading["vantage"], reading["quality"], reading["failures"]["late"]) == ("agent-az1-edge-03", 1, 2)
            assert page["votes"][0]["zone"] == "degraded"
            (agent,) = (await running.json("/api/v1/agents"))["agents"]
            assert (agent["agent"], agent["release"], agent["state"]) == ("agent-az1-edge-03", "foreign", "silent")

    sync(work())


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"target_ip": "10.9.9.9"}, 404, "unknown_target"),
        ({"target_ip": "10.0.0.7"}, 409, "ambiguous_target"),
        ({"target_ip": "10.0.0.7", "line": "payments/e"}, 202, None),
        ({"target_ip": "10.0.0.7", "line": "payments/a"}, 404, "unknown_target"),
        ({"loss_rate": 1.5}, 400, "malformed"),
    ],
)
def test_a_foreign_heartbeat_is_matched_or_refused(center, sync, change, status, code):
    two_ports = DOCUMENT.replace("{a: ", '{d: "tcp://10.0.0.7:443", e: "tcp://10.0.0.7:8443", a: ')

    async def work():
        async with center(two_ports) as running:
            answer = await running.post("/api/v1/heartbeats", HEARTBEAT | change)
            assert answer.status_code == status
            if code:
                assert answer.json()["error"]["code"] == code
            if status == 409:
                assert answer.json()["error"]["candidates"] == ["payments/d", "payments/e"]

    sync(work())


def test_a_foreign_agent_that_the_document_does_not_name_is_refused(center, sync):
    named = DOCUMENT + "agents: {one: {}, edge: {token: s3cret}}\n"

    async def work():
        async with center(named) as running:
            stranger = await running.post("/api/v1/heartbeats", HEARTBEAT)
            assert (stranger.status_code, stranger.json()["error"]["code"]) == (403, "unknown_agent")
            assert (await running.post("/api/v1/heartbeats", HEARTBEAT | {"agent_id": "one"})).status_code == 202
            bare = await running.post("/api/v1/heartbeats", HEARTBEAT | {"agent_id": "edge"})
            assert bare.status_code == 401
            shown = await running.client.post(
                "/api/v1/heartbeats",
                content=json.dumps(HEARTBEAT | {"agent_id": "edge"}).encode(),
                headers={"Authorization": "Bearer s3cret"},
            )
            assert shown.status_code == 202

    sync(work())


def test_a_foreign_heartbeat_may_not_speak_for_an_attached_agent(center, sync):
    async def work():
        async with center() as running:
            async with running.agent() as agent:
                await agent.reported(ALL_GOOD)
                answer = await running.post("/api/v1/heartbeats", HEARTBEAT | {"agent_id": "one"})
                assert (answer.status_code, answer.json()["error"]["code"]) == (409, "agent_attached")
                votes = (await running.json("/api/v1/lines/payments/a"))["votes"]
                assert [(vote["vantage"], vote["zone"]) for vote in votes] == [("one", "healthy")]
                assert await running.metric('reachline_reports_foreign_total{answer="attached"}') == 1
                await agent.send(Bye(reason="done"))
                await until(lambda: agent.ended, what="the stream to end")
            assert (await running.post("/api/v1/heartbeats", HEARTBEAT | {"agent_id": "one"})).status_code == 202

    sync(work())


@pytest.mark.parametrize("kept", ["replayed", "void", "evidence"])
def test_only_evidence_of_other_kinds_joins_a_foreign_heartbeat(center, sync, tmp_path, kept):
    named = DOCUMENT + "agents: {one: {}}\n"
    said = good()._replace(kind=Kind.HTTP, void=kept == "void")

    async def work():
        async with center(named) as running:
            async with running.agent() as agent:
                await agent.reported({"payments/a": said}, replayed=kept == "replayed")
            await until(lambda: _is_silent(running), what="the agent to be gone")
            answer = await running.post("/api/v1/heartbeats", HEARTBEAT | {"agent_id": "one"})
            assert answer.json() == {"line": "payments/a", "journalled": True}

    sync(work())

    with Segment(max((tmp_path / "journal").glob("segment-*.db"))) as segment:
        bodies = Bodies()
        told = [bodies.read(row.kind, row.scope, row.at_ms, row.body) for row in segment.records()]
    foreign = [record for record in told if isinstance(record, Reported)][-1]
    kinds = [reading.kind for _, reading in foreign.readings]
    assert kinds == ([Kind.TCP, Kind.HTTP] if kept == "evidence" else [Kind.TCP])


async def _is_silent(running):
    rows = (await running.json("/api/v1/agents"))["agents"]
    return any(row["agent"] == "one" and row["state"] == "silent" for row in rows)
