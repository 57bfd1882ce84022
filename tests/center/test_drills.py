"""Drills over the HTTP door of a real center: rehearsed, played, ended by hand and by their own rule, told again by the journal."""

from __future__ import annotations

import time

import pytest

from reachline.store.drills import watched
from reachline.store.orders import given
from reachline.store.replay import replay
from reachline.testing.center import DOCUMENT, good
from reachline.testing.wait import until
from reachline.wire.drilling import drill_rows

DRILLS = "/api/v1/drills"
REAL = {"target": "payments/a", "fail": True, "for": 600, "real": True, "reason": "practice"}
CAPACITY = DOCUMENT.replace("weight: 50}", "weight: 50, capacity: 400}")


async def weighs(running, line, weight):
    async def does():
        return (await running.line(line))["weight"] == weight

    await until(does, every=0.1, what=f"{line} to weigh {weight}")


async def calls(running, **rows):
    """A client's calls: `a=(ok, failed)`."""
    outcomes = [{"line": f"payments/{name}", "ok": ok, "failed": bad} for name, (ok, bad) in rows.items()]
    answer = await running.post("/api/v1/outcomes", {"client": "shop", "cluster": "payments", "outcomes": outcomes})
    assert answer.status_code == 202, answer.text


async def newest(running):
    return (await running.json(DRILLS))["drills"][0]


async def reaches(running, state):
    async def is_so():
        row = await newest(running)
        return row if row["state"] == state else None

    return await until(is_so, every=0.1, what=f"the drill to be {state}")


def test_rehearsed_it_tells_weights_and_touches_nothing(center, sync):
    async def work():
        async with center() as running:
            answer = await running.post(DRILLS, {"target": "payments/a", "fail": True, "for": 60})
            told = answer.json()
            (seen,) = told["rehearsals"]
            moved = {row["line"]: (row["before"]["weight"], row["after"]["weight"]) for row in seen["lines"]}
            assert (told["real"], told["drill"]) == (False, None)
            assert moved == {"payments/a": (100, 0), "payments/b": (100, 100), "payments/c": (50, 50)}
            assert (seen["settles"], seen["held"], seen["panic"], seen["loads"]) == (0.5, {}, "", [])
            assert (await running.json(DRILLS))["drills"] == []
            assert (await running.json("/api/v1/orders"))["orders"] == []

    sync(work())


def test_played_it_takes_the_weight_and_gives_it_back_when_undone(center, sync):
    async def work():
        async with center() as running, running.agent() as agent:

            async def is_healthy():
                await agent.reported({f"payments/{name}": good() for name in "abc"})
                return (await running.line("payments/a"))["health"] == "healthy"

            await until(is_healthy, every=0.2, what="a to be healthy")
            told = (await running.post(DRILLS, REAL | {"abort_above": 0.02})).json()
            assert (told["real"], told["journalled"]) == (True, True)
            assert told["drill"]["until"] == pytest.approx(time.time() + 600, abs=30)
            await weighs(running, "payments/a", 0)
            row = await newest(running)
            assert (row["id"], row["state"], row["play"], row["slow"], row["abort_above"]) == (
                1,
                "running",
                "fail",
                None,
                0.02,
            )
            assert (row["by"], row["reason"], row["clusters"][0]["lines"]) == ("local", "practice", ["payments/a"])
            explained = await running.json("/api/v1/explain/payments/a")
            assert explained["because"] == "a drill plays that it failed (order 1)"
            assert "drill, order 1 by local on payments/a until " in explained["text"]
            assert (await running.json("/api/v1/orders"))["orders"][0]["action"] == "drill"
            assert await running.metric('reachline_orders{action="drill"}') == 1
            assert (await running.json("/api/v1/incidents"))["incidents"] == []
            await running.client.delete("/api/v1/orders/1", params={"reason": "enough"})
            await weighs(running, "payments/a", 100)
            row = await newest(running)
            assert (row["state"], row["ended_by"], row["ended_reason"]) == ("undone", "local", "enough")
            changes = (await running.json("/api/v1/changes?line=payments/a"))["changes"]
            assert [one["rule"] for one in changes][-2:] == ["drill.failed", "drill.over"]
            assert (await running.line("payments/a"))["health"] == "healthy"

    sync(work())


def test_it_ends_itself_within_a_tick_once_calls_fail_and_the_journal_tells_the_same(center, sync, tmp_path):
    async def work():
        async with center(CAPACITY) as running:
            await calls(running, a=(160, 0), b=(160, 0), c=(80, 0))
            assert (await running.post(DRILLS, REAL)).status_code == 200
            await weighs(running, "payments/a", 0)
            await calls(running, b=(66, 0), c=(34, 0))
            await calls(running, b=(60, 6), c=(30, 4))
            row = await reaches(running, "aborted")
            assert row["ended_by"] == "drill"
            assert "of 200 calls failed" in row["ended_reason"]
            assert "0 % before it; at most 1 % more is allowed" in row["ended_reason"]
            await weighs(running, "payments/a", 100)
            (cluster,) = row["clusters"]
            assert (cluster["before"]["on_share"], cluster["before"]["failed"]) == (0.4, 0)
            assert (cluster["during"]["calls"], cluster["during"]["failed"]) == (200, 10)
            assert cluster["moved"] is not None
            assert cluster["since_moved"]["on_share"] == 0
            await calls(running, a=(40, 0), b=(40, 0), c=(20, 0))
            return await until(lambda: _after(running, 100), every=0.1, what="the calls that followed")

    async def _told():
        live = await work()
        past = given(tmp_path / "journal")
        told = drill_rows(watched(tmp_path / "journal", past).all(), live["since"] - past[0].order.since_ms / 1_000)
        # All but the moment at which the center stopped counting what follows.
        for row in (live, *told):
            row["clusters"][0].pop("after")
        assert [row | {"since": 0, "until": 0, "ended": 0} for row in told] == [
            live | {"since": 0, "until": 0, "ended": 0}
        ]
        assert replay(tmp_path / "journal").difference is None

    sync(_told())


async def _after(running, count):
    row = await newest(running)
    return row if row["clusters"][0]["after"]["calls"] >= count else None


def test_a_running_drill_survives_a_restart_with_what_it_saw(center, sync):
    async def work():
        async with center() as running:
            await running.post(DRILLS, REAL)
            await weighs(running, "payments/a", 0)
            await calls(running, b=(70, 0))
            await until(lambda: _during(running, 70), every=0.1, what="the calls to be counted")
        async with center() as running:
            row = await newest(running)
            assert (row["state"], row["clusters"][0]["during"]["calls"]) == ("running", 70)
            await calls(running, b=(60, 0))
            await running.client.delete("/api/v1/orders/1")
            row = await newest(running)
            assert (row["state"], row["clusters"][0]["during"]["calls"]) == ("undone", 130)
            await weighs(running, "payments/a", 100)

    sync(work())


def test_a_drill_is_over_with_its_cluster_and_another_may_be_played_once_that_is_back(center, sync, tmp_path):
    async def work():
        search = '  search: {lines: {s: "tcp://10.0.1.1:443", t: "tcp://10.0.1.2:443"}}\n'
        async with center(DOCUMENT + search, watch=True) as running:
            file = tmp_path / "reachline.yaml"
            whole = file.read_text()
            play = REAL | {"target": "search/s"}
            assert (await running.post(DRILLS, play)).status_code == 200

            async def known(count):
                return len((await running.json("/api/v1/lines"))["lines"]) == count

            file.write_text(whole.replace(search, ""))
            await until(lambda: known(3), every=0.1, what="the cluster to leave")
            file.write_text(whole)
            await until(lambda: known(5), every=0.1, what="the cluster to come back")

            row = await newest(running)
            assert (row["state"], row["ended_reason"]) == ("aborted", "its cluster left the document")
            assert (await running.post(DRILLS, play)).status_code == 200

    sync(work())


async def _during(running, count):
    return (await newest(running))["clusters"][0]["during"]["calls"] == count


PLAY = {"target": "payments/a", "fail": True, "for": 60}
REFUSED = [
    (PLAY | {"target": "payments/aa"}, 404, "unknown_target", "payments/a"),
    ({"target": "payments/a", "for": 60}, 400, "malformed", "drill.fail: either"),
    (PLAY | {"slow": 0.3}, 400, "malformed", "drill.fail: either"),
    (PLAY | {"for": 1e9}, 400, "malformed", "drill.for: must be from 1 to 86400"),
    ({"target": "payments/a", "fail": True}, 400, "malformed", "drill.for: must be a number, and is missing"),
    (PLAY | {"abort_above": 2}, 400, "malformed", "drill.abort_above"),
    (PLAY | {"real": True}, 400, "malformed", "drill.reason: must be said"),
    (PLAY | {"real": "yes"}, 400, "malformed", "drill.real: must be true or false"),
    (PLAY | {"reason": "a\nb"}, 400, "malformed", "drill.reason"),
    (PLAY | {"shadow": True}, 400, "malformed", "drill.shadow: unknown key"),
    ([], 400, "malformed", "must be an object"),
    (b"{", 400, "malformed_json", "no JSON"),
    (REAL | {"target": "payments"}, 409, "nothing_left", "would have too little left"),
    ({**REAL, "slow": 0.001} | {"fail": False}, 409, "nothing_moves", "moves no traffic off payments/a"),
]  # fmt: skip


def test_bad_drills_are_refused_with_what_is_wrong(center, sync):
    async def work():
        async with center() as running:
            for body, status, code, told in REFUSED:
                answer = await running.post(DRILLS, body)
                error = answer.json().get("error")
                assert error, (body, answer.text)
                assert (answer.status_code, error["code"]) == (status, code), body
                assert told in f"{error['message']}; {error['hint']}", body
            assert (await running.post(DRILLS, REAL)).status_code == 200
            again = await running.post(DRILLS, REAL | {"target": "payments/b"})
            assert (again.status_code, again.json()["error"]["code"]) == (409, "drill_running")
            assert "undo 1" in again.json()["error"]["hint"]

    sync(work())
