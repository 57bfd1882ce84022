"""Orders over the HTTP door of a real center: in force in one tick, undone, over restarts, refused with what to do."""

from __future__ import annotations

import re
import time

import pytest

from reachline.testing.center import DOCUMENT, good
from reachline.testing.wait import until

ORDERS = "/api/v1/orders"
ALL_GOOD = {"payments/a": good(), "payments/b": good(), "payments/c": good()}
PROVIDERS = DOCUMENT.replace(
    'c: {to: "tcp://10.0.0.3:443", weight: 50}',
    'c: {to: "tcp://10.0.0.3:443", weight: 50, provider: p1}}\n  search:\n    lines: {s: {to: "tcp://10.0.1.1:443", provider: p1}, '
    't: "tcp://10.0.1.2:443"',
)
"""A second cluster; provider p1 has a line in both."""


async def weighs(running, line, weight):
    async def does():
        return (await running.line(line))["weight"] == weight

    await until(does, every=0.1, what=f"{line} to weigh {weight}")


def test_a_drained_line_has_no_traffic_within_a_tick_and_is_back_when_undone(center, sync):
    async def work():
        async with center() as running:
            answer = await running.post(
                ORDERS, {"action": "drain", "target": "payments/a", "for": 7200, "reason": "works"}
            )
            assert answer.status_code == 200, answer.text
            told = answer.json()
            (order,) = told["orders"]
            assert (order["id"], order["by"], order["reason"], order["lines"]) == (1, "local", "works", ["payments/a"])
            assert order["until"] == pytest.approx(time.time() + 7200, abs=30)
            assert (told["dry_run"], told["journalled"], told["within"]) == (False, True, 0.5)
            await weighs(running, "payments/a", 0)
            row = await running.line("payments/a")
            assert (row["health"], row["drained"], row["breaker"]) == ("draining", True, "closed")
            explained = await running.json("/api/v1/explain/payments/a")
            assert explained["orders"][0]["id"] == 1
            assert "Orders drain, order 1 by local on payments/a until " in explained["text"]
            assert "because works." in explained["text"]
            assert "an operator drains it (order 1)" in explained["because"]
            done = await running.client.delete(f"{ORDERS}/1", params={"reason": "early"})
            assert done.json()["orders"][0]["state"] == "undone"
            await weighs(running, "payments/a", 100)
            (past,) = (await running.json(f"{ORDERS}?over=1"))["orders"]
            assert (past["ended_by"], past["ended_reason"]) == ("local", "early")
            assert (await running.json(ORDERS))["orders"] == []

    sync(work())


def test_a_dry_run_tells_the_weights_before_and_after_and_does_nothing(center, sync):
    async def work():
        async with center() as running:
            answer = await running.post(f"{ORDERS}?dry_run=1", {"action": "drain", "target": "payments/b"})
            (effect,) = answer.json()["effects"]
            moved = {row["line"]: (row["before"]["weight"], row["after"]["weight"]) for row in effect["lines"]}
            shares = {row["line"]: (row["before"]["share"], row["after"]["share"]) for row in effect["lines"]}
            assert moved == {"payments/a": (100, 100), "payments/b": (100, 0), "payments/c": (50, 50)}
            assert shares["payments/a"] == (0.4, 0.6667)
            assert (await running.json(ORDERS))["orders"] == []
            assert (await running.line("payments/b"))["weight"] == 100

    sync(work())


def test_an_order_ends_by_itself(center, sync):
    async def work():
        async with center() as running:
            await running.post(ORDERS, {"action": "weight", "target": "payments/a", "weight": 20, "for": 1.5})
            await weighs(running, "payments/a", 20)
            await weighs(running, "payments/a", 100)
            (past,) = (await running.json(f"{ORDERS}?over=true"))["orders"]
            assert (past["state"], past["weight"], past["ended"]) == ("over", 20, past["until"])

    sync(work())


def test_a_provider_is_ordered_in_all_its_clusters_by_one_number(center, sync):
    async def work():
        async with center(PROVIDERS) as running:
            told = (await running.post(ORDERS, {"action": "standby", "target": "provider:p1"})).json()
            assert told["orders"][0]["lines"] == ["payments/c", "search/s"]
            assert [effect["cluster"] for effect in told["effects"]] == ["payments", "search"]
            await weighs(running, "search/s", 5)
            await weighs(running, "payments/c", 2)
            await running.client.delete(f"{ORDERS}/1")
            await weighs(running, "search/s", 100)
            await weighs(running, "payments/c", 50)

    sync(work())


def test_a_cluster_that_leaves_the_document_and_comes_back_is_still_under_its_orders(center, sync, tmp_path):
    async def work():
        async with center(PROVIDERS, watch=True) as running:
            await running.post(ORDERS, {"action": "drain", "target": "search/s"})
            await weighs(running, "search/s", 0)
            file = tmp_path / "reachline.yaml"
            whole = file.read_text()

            async def known(count):
                return len((await running.json("/api/v1/lines"))["lines"]) == count

            file.write_text(re.sub(r"  search:\n    lines: .*\n", "", whole))
            await until(lambda: known(3), every=0.1, what="the cluster to leave")
            file.write_text(whole)
            await until(lambda: known(5), every=0.1, what="the cluster to come back")

            await weighs(running, "search/s", 0)
            (order,) = (await running.json(ORDERS))["orders"]
            assert order["lines"] == ["search/s"]
            await running.client.delete(f"{ORDERS}/1")
            await weighs(running, "search/s", 100)

    sync(work())


def test_undrain_ends_the_drains_of_its_lines_and_names_one_that_is_wider(center, sync):
    async def work():
        async with center() as running:
            await running.post(ORDERS, {"action": "drain", "target": "payments/a"})
            undrained = await running.post(ORDERS, {"action": "undrain", "target": "payments/a"})
            assert [row["state"] for row in undrained.json()["orders"]] == ["undone"]
            await running.post(ORDERS, {"action": "drain", "target": "payments", "force": True})
            wider = await running.post(ORDERS, {"action": "undrain", "target": "payments/a"})
            assert (wider.status_code, wider.json()["error"]["code"]) == (409, "drained_with_others")
            assert "order 2 on payments" in wider.json()["error"]["message"]
            assert (await running.post(ORDERS, {"action": "undrain", "target": "payments"})).status_code == 200
            none = await running.post(ORDERS, {"action": "undrain", "target": "payments/a"})
            assert (none.status_code, none.json()["error"]["code"]) == (409, "not_drained")

    sync(work())


def test_nothing_is_left_without_force_and_the_last_line_is_not_opened(center, sync):
    async def work():
        async with center() as running:
            drained = await running.post(ORDERS, {"action": "drain", "target": "payments"})
            assert (drained.status_code, drained.json()["error"]["code"]) == (409, "nothing_left")
            opened = (await running.post(ORDERS, {"action": "open", "target": "payments"})).json()
            (waiting,) = opened["effects"][0]["waiting"]
            await until(lambda: _open(running, 2), every=0.1, what="two lines to open")
            assert (await running.line(waiting))["breaker"] == "closed"
            assert (await running.json(ORDERS))["orders"][0]["waiting"] == [waiting]
            last = await running.post(ORDERS, {"action": "open", "target": waiting})
            assert (last.status_code, last.json()["error"]["code"]) == (409, "last_line")
            assert (await running.post(ORDERS, {"action": "open", "target": waiting, "force": True})).status_code == 200
            await until(lambda: _open(running, 3), every=0.1, what="the last to open")
            assert {row["weight"] for row in (await running.json("/api/v1/lines"))["lines"]} == {0}

    sync(work())


async def _open(running, count):
    rows = (await running.json("/api/v1/lines"))["lines"]
    return sum(row["breaker"] == "open" for row in rows) == count


REFUSED = [
    ({"action": "drain", "target": "payments/aa"}, 404, "unknown_target", "payments/a"),
    ({"action": "drain", "target": "provider:p9"}, 404, "unknown_target", "payments"),
    ({"action": "drian", "target": "payments/a"}, 400, "malformed", "order.action"),
    ({"action": "drain"}, 400, "malformed", "order.target"),
    ({"action": "drain", "target": "payments/a", "for": "2h"}, 400, "malformed", "order.for: must be seconds"),
    ({"action": "drain", "target": "payments/a", "for": 0}, 400, "malformed", "order.for"),
    ({"action": "drain", "target": "payments/a", "for": 1e12}, 400, "malformed", "order.for"),
    ({"action": "drain", "target": "payments/a", "weight": 3}, 400, "malformed", "only a weight order"),
    ({"action": "weight", "target": "payments/a"}, 400, "malformed", "order.weight"),
    ({"action": "weight", "target": "payments/a", "weight": -1}, 400, "malformed", "order.weight"),
    ({"action": "open", "target": "payments/a", "force": "yes"}, 400, "malformed", "order.force"),
    ({"action": "open", "target": "payments/a", "reason": "a\nb"}, 400, "malformed", "order.reason"),
    ({"action": "open", "target": "payments/a", "resaon": "x"}, 400, "malformed", "order.resaon"),
    ([], 400, "malformed", "must be an object"),
    (b"{", 400, "malformed_json", "no JSON"),
]  # fmt: skip


def test_bad_orders_are_refused_with_what_is_wrong(center, sync):
    async def work():
        async with center() as running:
            for body, status, code, told in REFUSED:
                answer = await running.post(ORDERS, body)
                error = answer.json()["error"]
                assert (answer.status_code, error["code"]) == (status, code), body
                assert told in f"{error['message']}; {error['hint']}", body
            for number, status, code in [("7", 404, "unknown_order"), ("x", 400, "invalid_parameter")]:
                answer = await running.client.delete(f"{ORDERS}/{number}")
                assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
            await running.post(ORDERS, {"action": "drain", "target": "payments/a"})
            await running.client.delete(f"{ORDERS}/1")
            again = await running.client.delete(f"{ORDERS}/1")
            assert (again.status_code, again.json()["error"]["code"]) == (409, "order_over")
            assert "undone by local" in again.json()["error"]["message"]

    sync(work())


def test_orders_survive_a_restart_and_numbers_go_on(center, sync):
    async def work():
        async with center() as running:
            await running.post(ORDERS, {"action": "drain", "target": "payments/a", "reason": "fibre"})
            await running.post(ORDERS, {"action": "weight", "target": "payments/b", "weight": 9})
            await running.client.delete(f"{ORDERS}/2", params={"reason": "mistake"})
            await weighs(running, "payments/a", 0)
        async with center() as running:
            assert (await running.line("payments/a"))["weight"] == 0
            rows = (await running.json(f"{ORDERS}?over=1"))["orders"]
            assert [(row["id"], row["state"], row["reason"], row["ended_reason"]) for row in rows] == [
                (2, "undone", "", "mistake"), (1, "in_force", "fibre", "")
            ]  # fmt: skip
            third = (await running.post(ORDERS, {"action": "standby", "target": "payments/c"})).json()
            assert third["orders"][0]["id"] == 3
            await running.client.delete(f"{ORDERS}/1")
            await weighs(running, "payments/a", 100)

    sync(work())


def test_a_document_that_changes_beside_an_order_keeps_it(center, sync, tmp_path):
    async def work():
        async with center(watch=True) as running:
            await running.post(ORDERS, {"action": "drain", "target": "payments/a"})
            await weighs(running, "payments/a", 0)
            file = tmp_path / "reachline.yaml"
            file.write_text(file.read_text().replace("weight: 50", "weight: 60"))
            await weighs(running, "payments/c", 60)
            assert (await running.line("payments/a"))["weight"] == 0

    sync(work())


def test_a_role_or_a_limit_in_the_file_is_in_force_in_one_tick(center, sync, tmp_path):
    text = (
        DOCUMENT.replace(
            'a: "tcp://10.0.0.1:443", b: "tcp://10.0.0.2:443"',
            'a: {to: "tcp://10.0.0.1:443", role: primary}, b: {to: "tcp://10.0.0.2:443", role: primary}',
        )
        .replace("weight: 50", "role: backup")
        .replace("  payments:\n", "  payments:\n    policy: primary_backup\n")
    )

    async def work():
        async with center(text, watch=True) as running, running.agent() as agent:
            file = tmp_path / "reachline.yaml"

            async def is_healthy():
                await agent.reported(ALL_GOOD)
                return (await running.line("payments/b"))["health"] == "healthy"

            await until(is_healthy, every=0.3, what="b to be healthy")
            file.write_text(
                file.read_text().replace('"tcp://10.0.0.2:443", role: primary', '"tcp://10.0.0.2:443", role: backup')
            )
            await until(lambda: _roles(running, "payments/b", ["backup"]), every=0.1, what="b to be a backup")
            file.write_text(
                file.read_text().replace("patience:", "limits: {p95: {degraded: 90ms, exit: 80ms}}\npatience:")
            )

            async def is_degraded():
                await agent.reported(ALL_GOOD)
                return (await running.line("payments/a"))["health"] == "degraded"

            await until(is_degraded, every=0.3, what="a, whose P95 is 110 ms, to be degraded")

    sync(work())


async def _roles(running, line, roles):
    return (await running.line(line))["roles"] == roles
