"""Agents over real gRPC streams: who may attach, what counts, and that one agent's fault is its own."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

import grpc
import grpc.aio
import pytest

from reachline.model import Counts, Kind, Reading
from reachline.net import rpc
from reachline.testing.center import DOCUMENT, dead, good
from reachline.testing.wait import until
from reachline.wire import frame
from reachline.wire.frame import Bye, Heartbeat, Report

NAMED = DOCUMENT + "agents: {one: {locality: {zone: az1}, token: s3cret}, two: {}, three: {}}\n"
ALL_GOOD = {"payments/a": good(), "payments/b": good(), "payments/c": good()}


def test_an_agent_gets_its_plan_and_its_reports_move_the_line(center, sync):
    async def work():
        async with center() as running, running.agent() as agent:
            await until(lambda: agent.of(frame.Plan), what="a plan")
            assert [line.line for line in agent.plan.lines] == ["payments/a", "payments/b", "payments/c"]
            assert agent.plan.heartbeat_ms == 500

            async def is_open():
                await agent.reported(ALL_GOOD | {"payments/a": dead()})
                row = await running.line("payments/a")
                return row["breaker"] == "open" and row["weight"] == 0

            await until(is_open, every=0.3, what="the dead line to open")
            await until(lambda: agent.of(frame.Hint)[-1].open == ("payments/a",), what="a hint")
            assert (await running.line("payments/b"))["weight"] == 100

    sync(work())


def test_agents_come_by_unix_socket_and_tcp_at_once(center, sync, tmp_path):
    async def work():
        also = (f"unix:{tmp_path}/c.sock",)
        async with center(also=also) as running, running.agent("tcp") as one, running.agent("unix", at=1) as other:
            await one.reported(ALL_GOOD)
            await other.reported(ALL_GOOD)
            rows = (await running.json("/api/v1/agents"))["agents"]
            assert [(row["agent"], row["state"]) for row in rows] == [("tcp", "attached"), ("unix", "attached")]

    sync(work())


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        ({"protocol": (2, 0), "token": "s3cret"}, "protocol 2 is not spoken here"),
        ({"token": "wrong"}, "did not give its token"),
        ({"agent": "stranger"}, "not in the document's agents"),
        ({"agent": ""}, "an agent id is"),
        ({"release": "x" * 301}, "a hello has texts of 300"),
        ({"boot": "\x1b[31m"}, "printable"),
        ({"sources": ("10.0.0.1",) * 257}, "256 sources and features at most"),
        ({"token": "t" * 8_193}, "8192 characters at most"),
    ],
    ids=["protocol", "token", "stranger", "nameless", "endless", "unreadable", "many", "endless-token"],
)
def test_a_hello_that_may_not_enter_is_told_why(center, sync, hello, reason):
    async def work():
        async with center(NAMED) as running, running.agent(**hello) as agent:
            await until(lambda: agent.ended, what="the end of the stream")
            assert reason in agent.refused
            assert agent.of(frame.Welcome)[0].final
            assert await running.metric('reachline_frames_refused_total{reason="hello"}') == 1

    sync(work())


def test_the_right_token_and_a_newer_minor_are_let_in(center, sync):
    async def work():
        async with center(NAMED) as running, running.agent(token="s3cret", protocol=(1, 9)) as agent:
            await until(lambda: agent.of(frame.Plan), what="a plan")
            assert not agent.refused

    sync(work())


def test_of_two_streams_with_one_id_the_newer_wins_and_the_older_is_told(center, sync):
    async def work():
        async with center() as running, running.agent() as older, running.agent(boot="b2") as newer:
            await until(lambda: older.ended, what="the older stream to end")
            assert "another agent attached as one" in older.bye
            await newer.reported(ALL_GOOD)
            (row,) = (await running.json("/api/v1/agents"))["agents"]
            assert row["state"] == "attached"

    sync(work())


@pytest.mark.parametrize(
    "spoil",
    [
        b"\xff\xff no frame",
        frame.encode(Bye())[:-1],
        frame.encode(Heartbeat(agent="other", boot="b1", sequence=1)),
        frame.encode(Heartbeat(agent="one", boot="b1", sequence=1, doubt=-1)),
        frame.encode(Heartbeat(agent="one", boot="b1", sequence=1, part=(3, 2))),
        frame.encode(
            Heartbeat(
                agent="one", boot="b1", sequence=1,
                reports=(Report(line="payments/a", reading=Reading(Kind.TCP, Counts(ok=-5))),),
            )
        ),
        frame.encode(
            Heartbeat(
                agent="one", boot="b1", sequence=1,
                reports=(Report(line="payments/a", reading=Reading(Kind.TCP, sent=1, lost=2)),),
            )
        ),
        frame.encode(
            Heartbeat(
                agent="one", boot="b1", sequence=1,
                reports=(Report(line="payments/a", reading=Reading(Kind.TCP, fresh_slow=2**63)),),
            )
        ),
        frame.encode(frame.Ack(sequence=1)),
    ],
    ids=["noise", "cut", "other agent", "doubt below 0", "part 3 of 2", "negative count", "lost more than sent",
         "endless count", "an ack"],
)  # fmt: skip
def test_a_frame_that_cannot_be_ends_its_own_stream_and_nothing_else(center, sync, spoil):
    async def work():
        async with center() as running, running.agent("two") as bystander, running.agent() as agent:
            await agent.send(spoil)
            await until(lambda: agent.ended, what="the stream to end")
            assert agent.bye
            assert await running.metric('reachline_frames_refused_total{reason="malformed"}') == 1
            await bystander.reported(ALL_GOOD)

    sync(work())


def test_an_oversized_frame_ends_its_own_stream_and_nothing_else(center, sync):
    async def work():
        async with center() as running, running.agent("two") as bystander:
            options = [("grpc.max_send_message_length", -1)]
            async with grpc.aio.insecure_channel(running.grpc[0], options) as channel:
                call: Any = channel.stream_stream(rpc.ATTACH)()
                await call.write(frame.encode(frame.Hello(release="x", agent="one", boot="b")))
                await call.write(bytes(frame.MAX_FRAME + 1))
                told = []
                while (data := await call.read()) is not grpc.aio.EOF:
                    told.append(frame.decode(data))
            last = told[-1]
            assert isinstance(last, Bye)
            assert "frame of 4194305 bytes" in last.reason
            await bystander.reported(ALL_GOOD)
            assert await running.metric('reachline_frames_refused_total{reason="malformed"}') == 1

    sync(work())


def test_reports_on_unknown_lines_are_counted_and_the_rest_counts(center, sync):
    async def work():
        async with center() as running, running.agent() as agent:
            await agent.reported(ALL_GOOD | {"payments/gone": good(), "nowhere/x": dead()})
            assert await running.metric("reachline_reports_unknown_total") == 2
            readings = (await running.json("/api/v1/lines/payments/a"))["readings"]
            assert [row["vantage"] for row in readings] == ["one"]

    sync(work())


def test_a_duplicate_is_acknowledged_and_is_not_evidence_twice(center, sync):
    async def work():
        async with center() as running, running.agent() as agent:
            await agent.reported(ALL_GOOD)
            message = Heartbeat(
                agent="one", boot="b1", sequence=1, reports=(Report(line="payments/a", reading=dead()),)
            )
            await agent.send(message)
            await agent.reported({"payments/b": good()}, sequence=4)
            (row,) = (await running.json("/api/v1/agents"))["agents"]
            assert (row["heartbeats"], row["duplicates"], row["gaps"]) == (2, 1, 2)
            votes = (await running.json("/api/v1/lines/payments/a"))["votes"]
            assert [vote["zone"] for vote in votes] == ["healthy"]

    sync(work())


def test_replayed_heartbeats_are_shown_and_never_judged(center, sync):
    async def work():
        async with center() as running, running.agent() as agent:
            await agent.reported({"payments/a": dead()}, replayed=True)
            page = await running.json("/api/v1/lines/payments/a")
            assert [(row["vantage"], row["replayed"]) for row in page["readings"]] == [("one", True)]
            assert page["votes"] == []
            assert page["loss"] is None
            assert await running.metric("reachline_heartbeats_replayed_total") == 1

    sync(work())


def test_joined_agents_count_until_they_say_bye(center, sync):
    async def work():
        async with center() as running, running.agent("one") as one:
            async with running.agent("two") as two:
                await two.reported(ALL_GOOD)
                await two.send(Bye(reason="done"))
                await until(lambda: two.ended, what="the stream to end")
            rows = (await running.json("/api/v1/agents"))["agents"]
            assert [row["agent"] for row in rows] == ["one"]
            async with running.agent("three") as three:
                await three.reported(ALL_GOOD)
            silent = await until(lambda: _state(running, "three", "silent"), what="three to be silent")
            assert silent
            await one.reported(ALL_GOOD)

    sync(work())


async def _state(running, agent, state):
    rows = (await running.json("/api/v1/agents"))["agents"]
    return any(row["agent"] == agent and row["state"] == state for row in rows)


def test_the_documents_agents_make_the_quorum_even_before_they_come(center, sync):
    async def work():
        async with center(NAMED) as running, running.agent("two") as agent:
            points = len((await running.json("/api/v1/lines/payments/a"))["history"])

            async def is_judged():
                await agent.reported(ALL_GOOD | {"payments/a": dead()})
                return len((await running.json("/api/v1/lines/payments/a"))["history"]) >= points + 4

            await until(is_judged, every=0.2, what="four ticks")
            row = await running.line("payments/a")
            assert (row["breaker"], row["health"]) == ("closed", "unknown")
            rows = (await running.json("/api/v1/agents"))["agents"]
            assert {row["agent"]: row["state"] for row in rows} == {
                "one": "expected", "two": "attached", "three": "expected"
            }  # fmt: skip

    sync(work())


def test_a_line_of_one_zone_is_planned_and_judged_by_its_own_agents_only(center, sync):
    zoned = """
preset: quick_recovery
judge: {tick: 500ms, heartbeat: 500ms}
clusters: {payments: {lines: {a: {to: "tcp://10.0.0.1:443", from: [az1, az2]}}}}
agents: {one: {locality: {zone: az1}}, two: {locality: {zone: az2}}}
"""

    async def work():
        async with center(zoned) as running, running.agent("one") as agent:
            await until(lambda: agent.of(frame.Plan), what="a plan")
            assert [line.line for line in agent.plan.lines] == ["payments/a@az1"]
            await agent.reported({"payments/a@az1": good(), "payments/a@az2": dead()})
            assert await running.metric("reachline_reports_unknown_total") == 1
            assert (await running.json("/api/v1/lines/payments/a@az2"))["votes"] == []

    sync(work())


def test_a_center_that_stops_says_bye(center, sync):
    async def work():
        async with center() as running, running.agent() as agent:
            running.stop.set()
            await until(lambda: agent.ended, what="the end")
            assert agent.bye == "the center stops"

    sync(work())


def test_agents_that_come_back_while_readers_still_end_find_nobody(center, sync):
    async def work():
        async with center() as running, running.agent() as agent:
            where = urlsplit(running.http)
            _, writer = await asyncio.open_connection(where.hostname, where.port)
            writer.write(b"POST /api/v1/outcomes HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
            await writer.drain()
            assert (await running.get("/healthz")).status_code == 200
            running.stop.set()
            await until(lambda: agent.ended, what="the end")
            with pytest.raises(ConnectionError):
                await rpc.attach(running.grpc[0], timeout=30)
            writer.close()

    sync(work())
