"""The HTTP door over real sockets: shapes, versions, waiting, refusals."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest

from reachline.testing.center import DOCUMENT, dead, good
from reachline.testing.wait import until

ALL_GOOD = {"payments/a": good(), "payments/b": good(), "payments/c": good()}
SAID = {"tcp.loss": (50, 50), "tcp.timeout": (50, 50), "tcp.connect": (0, 3)}
"""What a dead line's reading says by each metric, any of which may decide."""
DOOR = "/api/v1/clusters/payments/lines"
ROW = {
    "line", "cluster", "address", "via", "origin", "role", "roles", "provider", "groups", "drained", "health", "breaker",
    "step", "weight", "base", "raw", "score", "reason", "since", "next", "window", "blind", "incident", "kind", "p95", "p50",
    "ewma", "jitter", "loss", "timeout", "region",
}  # fmt: skip


async def until_open(running, agent, line="payments/a"):
    """Reports the line well until it is healthy, then dead until it is open."""

    async def is_healthy():
        await agent.reported(ALL_GOOD)
        return (await running.line(line))["health"] == "healthy"

    await until(is_healthy, every=0.3, what=f"{line} to be healthy")

    async def is_open():
        await agent.reported(ALL_GOOD | {line: dead()})
        return (await running.line(line))["breaker"] == "open"

    await until(is_open, every=0.3, what=f"{line} to open")


def test_a_center_is_ready_with_a_first_snapshot_before_any_agent_came(center, sync):
    async def work():
        async with center() as running:
            assert (await running.get("/healthz")).json()["status"] == "ok"
            assert (await running.get("/readyz")).json() == {"status": "ready", "lacks": []}
            document = await running.json("/api/v1/lines")
            assert [(row["line"], row["health"], row["weight"]) for row in document["lines"]] == [
                ("payments/a", "unknown", 100), ("payments/b", "unknown", 100), ("payments/c", "unknown", 50)
            ]  # fmt: skip
            assert all(row.keys() == ROW for row in document["lines"])
            assert document["lines"][0]["p95"] is None

    sync(work())


def test_a_lines_page_says_who_saw_what_with_its_own_denominators(center, sync):
    async def work():
        async with center() as running, running.agent() as agent:
            await until_open(running, agent)
            page = await running.json("/api/v1/lines/payments/a")
            (reading,) = page["readings"]
            assert (reading["vantage"], reading["kind"], reading["attempts"], reading["failures"]["late"]) == (
                "one",
                "tcp",
                50,
                50,
            )
            assert (reading["sent"], reading["lost"], reading["p95"]) == (50, 50, None)
            (vote,) = page["votes"]
            assert (vote["vantage"], vote["zone"], vote["fresh"]) == ("one", "failed", True)
            assert (vote["numerator"], vote["denominator"]) == SAID[vote["metric"]]
            assert page["changes"][-1]["after"]["breaker"] == "open"
            assert page["history"][-1]["weight"] == 0
            assert page["next"] == pytest.approx(page["since"] + 60, rel=0.2)

    sync(work())


def test_decisions_are_listed_by_id_by_time_and_by_line(center, sync):
    async def work():
        async with center() as running, running.agent() as agent:
            await until_open(running, agent)
            everything = (await running.json("/api/v1/changes"))["changes"]
            ids = [row["id"] for row in everything]
            assert ids == sorted(set(ids))
            middle = everything[len(everything) // 2]
            after = (await running.json(f"/api/v1/changes?since={middle['id']}"))["changes"]
            assert [row["id"] for row in after] == [each for each in ids if each > middle["id"]]
            first = everything[0]["at"]
            later = (await running.json(f"/api/v1/changes?since={first}"))["changes"]
            assert [row["id"] for row in later] == [row["id"] for row in everything if row["at"] > first]
            assert later
            mine = (await running.json("/api/v1/changes?line=payments/a&limit=1"))["changes"]
            assert [(row["line"], row["after"]["breaker"]) for row in mine] == [("payments/a", "open")]

    sync(work())


def test_explain_tells_the_rule_the_counts_and_what_comes_next(center, sync):
    async def work():
        async with center() as running, running.agent() as agent:
            await until_open(running, agent)
            told = await running.json("/api/v1/explain/payments/a")
            (vote,) = told["votes"]
            assert told["rule"] == f"vote.{vote['metric'].removeprefix('tcp.')}.failed"
            assert (vote["numerator"], vote["denominator"]) == SAID[vote["metric"]]
            row = await running.line("payments/a")
            assert told["next"] == row["next"]
            before = await running.json(f"/api/v1/explain/payments/a?at={row['since'] - 0.2}")
            assert before["breaker"] == "closed"
            early = await running.get("/api/v1/explain/payments/a?at=1000000000")
            assert (early.status_code, early.json()["error"]["code"]) == (404, "not_in_journal")

    sync(work())


def test_the_plain_door_answers_304_until_there_is_something_newer(center, sync):
    async def work():
        async with center() as running, running.agent() as agent:
            await until_open(running, agent)
            first = await running.get(DOOR)
            etag, document = first.headers["etag"], first.json()
            assert etag == f'"{document["version"]}"'
            assert document["epoch"] == int(document["version"].partition(".")[0])
            weights = [row["weight"] for row in document["lines"]]
            assert weights == sorted(weights, reverse=True)
            assert (await running.get(DOOR, headers={"If-None-Match": etag})).status_code == 304
            assert (await running.get(DOOR, headers={"If-None-Match": f"W/{etag}"})).status_code == 304
            older = f"{document['epoch']}.0"
            assert (await running.get(f"{DOOR}?version={older}&wait=30")).json() == document

    sync(work())


def test_the_plain_door_carries_what_a_client_needs_to_redo_the_formula(center, sync):
    async def work():
        async with center() as running, running.agent() as agent:
            await until_open(running, agent)
            local = (await running.get(DOOR)).json()["local_rules"]
            assert (local["failures"], local["open"], local["open_cap"], local["max_open"]) == (2, 5.0, 60.0, 0.5)
            assert (local["slow"], local["crawl"]) == (0.2, 0.5)
            assert (local["trial_calls"], local["trial_calls_share"], local["ramp_connects"]) == (3, 0.05, 50)
            terms = local["formula"]["lines"]
            assert terms["payments/a"]["share"] == 0.0
            assert terms["payments/a"]["faults"] > 0
            assert terms["payments/c"] == {"base": 50, "faults": 0, "share": 1.0}
            assert len(local["formula"]["cost"]) == 25

    sync(work())


def test_a_long_poll_answers_at_once_when_something_changes_and_304_when_nothing_does(center, sync):
    async def work():
        async with center() as running, running.agent() as agent:
            version = (await running.get(DOOR)).json()["version"]
            assert (await running.get(f"{DOOR}?version={version}&wait=0.2")).status_code == 304
            async with asyncio.TaskGroup() as tasks:
                waiting = tasks.create_task(running.get(f"{DOOR}?version={version}&wait=20"))
                await until_open(running, agent)
            assert waiting.result().status_code == 200
            assert waiting.result().json()["version"] > version

    sync(work())


def test_a_client_that_has_seen_a_higher_version_lifts_the_centers_epoch(center, sync):
    async def work():
        async with center() as running:
            epoch = (await running.get(DOOR)).json()["epoch"]
            answer = await running.get(f"{DOOR}?version={epoch + 1000}.7")
            assert answer.status_code == 200
            assert answer.json()["epoch"] == epoch + 1001
        async with center() as running:
            assert (await running.get(DOOR)).json()["epoch"] > epoch + 1001

    sync(work())


def test_a_version_that_no_center_gives_is_refused_without_a_trace(center, sync):
    async def work():
        async with center() as running:
            before = (await running.get(DOOR)).json()["version"]
            for epoch in (2**33, 2**40 - 1, 2**60):
                absurd = await running.get(f"{DOOR}?version={epoch}.0")
                assert (absurd.status_code, absurd.json()["error"]["code"]) == (400, "impossible_version")
            assert (await running.get(DOOR)).json()["epoch"] == int(before.partition(".")[0])

    sync(work())


def test_whatever_a_client_lifts_the_version_to_every_client_can_go_on_from_there_over_restarts(center, sync):
    highest = 2**33 - 2**20 - 1

    async def work():
        async with center() as running:
            version = (await running.get(f"{DOOR}?version={highest}.5")).json()["version"]
        for _ in range(2):
            async with center() as running, running.agent() as agent:
                answer = await running.get(f"{DOOR}?version={version}")
                assert answer.status_code == 200
                version = answer.json()["version"]
                assert (await running.get(f"{DOOR}?version={version}")).status_code == 304
        async with center() as running, running.agent() as agent:
            await until_open(running, agent)
            assert (await running.json("/api/v1/changes"))["changes"][-1]["id"] < 2**53

    sync(work())


def test_the_door_streams_the_document_at_every_change(center, sync):
    async def work():
        async with center() as running, running.agent() as agent:
            async with running.client.stream("GET", DOOR, headers={"Accept": "text/event-stream"}) as answer:
                assert answer.headers["content-type"].startswith("text/event-stream")
                lines = answer.aiter_lines()
                first = json.loads((await anext(each async for each in lines if each.startswith("data: ")))[6:])
                await until_open(running, agent)
                async for each in lines:
                    if each.startswith("data: "):
                        newest = json.loads(each[6:])
                        if newest["lines"][-1]["weight"] == 0:
                            break
            assert newest["version"] > first["version"]

    sync(work())


def test_outcomes_are_counted_kept_and_answered_once_the_journal_has_them(center, sync):
    async def work():
        async with center() as running:
            batch = {
                "client": "shop-1", "cluster": "payments", "service": "pay",
                "outcomes": [{"line": "payments/a", "ok": 9, "failed": 1}, {"line": "payments/gone", "ok": 1}],
                "open": ["payments/a"],
            }  # fmt: skip
            answer = await running.post("/api/v1/outcomes", batch)
            assert (answer.status_code, answer.json()) == (
                202,
                {"taken": 1, "unknown": ["payments/gone"], "journalled": True},
            )
            assert await running.metric('reachline_outcomes_total{result="ok"}') == 9
            assert await running.metric("reachline_outcomes_unknown_total") == 1
            assert (await running.json("/api/v1/lines/payments/a"))["clients_open"] == 1
            await running.post("/api/v1/outcomes", {"client": "shop-1", "cluster": "payments", "outcomes": []})
            assert (await running.json("/api/v1/lines/payments/a"))["clients_open"] == 0

    sync(work())


@pytest.mark.parametrize(
    ("document", "status", "told"),
    [
        (b"{no json", 400, "no JSON"),
        ([], 400, "body: must be an object"),
        ({"cluster": "payments"}, 400, "client: must be"),
        ({"client": "c", "cluster": "nope", "outcomes": []}, 404, "no cluster 'nope'"),
        ({"client": "c", "cluster": "payments", "outcomes": [{"line": "payments/a", "ok": -1}]}, 400, "outcomes.0.ok"),
        (
            {"client": "c", "cluster": "payments", "outcomes": [{"line": "payments/a", "ok": True}]},
            400,
            "outcomes.0.ok",
        ),
        ({"client": "c", "cluster": "payments", "outcomes": [{}] * 1_001}, 400, "at most 1000"),
        (b" " * (1 << 20) + b"{}", 413, "at most"),
    ],
)
def test_a_batch_that_cannot_be_is_refused_by_field(center, sync, document, status, told):
    async def work():
        async with center() as running:
            answer = await running.post("/api/v1/outcomes", document)
            assert answer.status_code == status
            assert told in json.dumps(answer.json()["error"])
            assert await running.metric(f'reachline_requests_refused_total{{status="{status}"}}') == 1

    sync(work())


def test_a_body_without_a_length_is_cut_off_at_the_limit(center, sync):
    async def endless():
        for _ in range(40):
            yield bytes(1 << 16)

    async def work():
        async with center() as running:
            answer = await running.client.post("/api/v1/outcomes", content=endless())
            assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")

    sync(work())


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/api/v1/lines/payments/x", 404, "unknown_line"),
        ("/api/v1/explain/nope/x", 404, "unknown_line"),
        ("/api/v1/lines?cluster=x", 404, "unknown_cluster"),
        ("/api/v1/clusters/x/lines", 404, "unknown_cluster"),
        ("/api/v1/changes?limit=0", 400, "invalid_parameter"),
        ("/api/v1/changes?line=nope/x", 404, "unknown_line"),
        (f"{DOOR}?version=12", 400, "malformed_version"),
        (f"{DOOR}?version=x.y", 400, "malformed_version"),
        ("/api/v1/nope", 404, "not_found"),
        ("/nope", 404, "not_found"),
    ],
)
def test_every_refusal_has_code_message_and_hint(center, sync, path, status, code):
    async def work():
        async with center() as running:
            answer = await running.get(path)
            assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
            assert answer.json()["error"]["message"]
            assert answer.json()["error"]["hint"]

    sync(work())


def test_a_page_of_another_site_may_read_nothing_into_us(center, sync):
    async def work():
        async with center() as running:
            foreign = {"Origin": "http://evil.example"}
            answer = await running.client.post("/api/v1/outcomes", content=b"{}", headers=foreign)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "foreign_origin")
            own = {"Origin": running.http}
            assert (await running.client.post("/api/v1/outcomes", content=b"{}", headers=own)).status_code == 400

    sync(work())


def test_with_a_token_only_health_is_open(center, sync):
    guarded = DOCUMENT + ("center: {grpc: '127.0.0.1:0', http: '127.0.0.1:0', journal: JOURNAL, token: s3cret}\n")

    async def work():
        async with center(guarded) as running:
            assert (await running.get("/healthz")).status_code == 200
            assert (await running.get("/readyz")).status_code == 200
            refused = await running.get("/api/v1/lines")
            assert (refused.status_code, refused.json()["error"]["code"]) == (401, "unauthorized")
            assert "Basic" in refused.headers["www-authenticate"]
            for headers in (
                {"Authorization": "Bearer wrong"},
                {"Authorization": "Basic !!"},
                {"Authorization": "s3cret"},
            ):
                assert (await running.get("/api/v1/lines", headers=headers)).status_code == 401
            assert (await running.get("/api/v1/lines", headers={"Authorization": "Bearer s3cret"})).status_code == 200
            assert (await running.get("/api/v1/lines", auth=("anyone", "s3cret"))).status_code == 200

    sync(work())


def test_the_contract_is_served_as_openapi_and_as_a_page_that_loads_nothing(center, sync):
    async def work():
        async with center() as running:
            openapi = await running.json("/api/v1/openapi.json")
            assert {"/api/v1/lines", DOOR.replace("payments", "{cluster}"), "/api/v1/outcomes", "/metrics"} <= openapi[
                "paths"
            ].keys()
            row = openapi["components"]["schemas"]["LineRow"]
            assert row["properties"].keys() >= ROW
            page = (await running.get("/api/v1/docs")).text
            assert "GET /api/v1/lines/{line}" in page
            assert "<script" not in page
            assert "http://" not in page

    sync(work())


def test_a_reader_that_leaves_in_the_middle_disturbs_nobody(center, sync):
    async def work():
        async with center() as running:
            host, _, port = running.http.removeprefix("http://").partition(":")
            for _ in range(5):
                with socket.create_connection((host, int(port)), 5) as rude:
                    rude.sendall(b"GET /api/v1/stream HTTP/1.1\r\nHost: x\r\n\r\n")
                    await asyncio.to_thread(rude.recv, 100)
            assert (await running.get("/readyz")).status_code == 200
            gone = await until(lambda: _subscribers(running), what="the streams to be forgotten")
            assert gone

    sync(work())


async def _subscribers(running):
    return await running.metric("reachline_live_subscribers") == 0
