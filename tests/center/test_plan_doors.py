"""The plan across regions where people and clients meet it: lists, the API, the command line, explanations, metrics."""

from __future__ import annotations

import asyncio

from reachline.cli.main import main
from reachline.testing.wait import until

DOCUMENT = """
judge: {tick: 500ms, heartbeat: 500ms}
regions: {east: {capacity: 10}}
clusters:
  gold:
    priority: 9
    lines: {a: {to: "tcp://10.0.0.1:443", region: east, capacity: 5}, b: {to: "tcp://10.0.0.2:443", region: west, capacity: 5}}
  plain:
    lines: ["tcp://10.0.0.3:443"]
"""
LINES = "/api/v1/clusters/gold/lines"


def test_a_plan_is_told_to_clients_in_the_api_on_the_command_line_and_in_explanations(center, sync, capsys):
    async def work():
        async with center(DOCUMENT) as running:
            before = await running.json(LINES)
            assert "plan" not in before
            assert {row["line"]: row["region"] for row in before["lines"]} == {"gold/a": "east", "gold/b": "west"}
            assert (await running.json("/api/v1/plan"))["scarce"] is False

            async def is_planned():
                rows = [{"line": "gold/a", "ok": 50}]
                await running.post("/api/v1/outcomes", {"client": "c", "cluster": "gold", "outcomes": rows, "shed": 50})
                return "plan" in await running.json(LINES)

            await until(is_planned, every=0.4, what="a plan")
            plan = (await running.json(LINES))["plan"]
            assert (plan["regions"], plan["priority"], plan["reason"]) == ({"east": 0.5, "west": 0.5}, 9, "lines.full")
            assert 0 < plan["admit"] < 0.3
            document = await running.json("/api/v1/plan")
            (row,) = document["clusters"]
            assert (row["after"], row["carried"], row["calls"] - row["shed"]) == ({"east": 4, "west": 4}, 8, 8)
            assert document["apart"] == [{"cluster": "plain", "why": "no line names a region"}]
            gone = await running.json("/api/v1/plan?without=east")
            assert gone["clusters"][0]["before"] == row["after"]
            assert gone["clusters"][0]["after"] == {"west": 4}
            assert (await running.get("/api/v1/plan?without=north")).json()["error"]["hint"] == "there are: east, west"
            assert await running.metric('reachline_outcomes_total{result="shed"}') >= 50
            assert await running.metric('reachline_plans_total{reason="lines.full"}') >= 1
            notes = {row["cluster"]: row["notes"] for row in (await running.json("/api/v1/clusters"))["clusters"]}
            assert notes["gold"][0].startswith("plan across regions: lines.full: ")
            assert notes["plain"] == []
            assert "lines.full" in str(await running.json("/api/v1/explain/gold/a"))
            assert await asyncio.to_thread(main, ["plan", "--center", running.http]) == 0
            assert "lines.full" in capsys.readouterr().out
            asked = ["plan", "--dry-run", "--without", "east", "--center", running.http]
            assert await asyncio.to_thread(main, asked) == 0
            told = capsys.readouterr().out
            assert told.startswith("without east: ")
            assert "plain takes no part: no line names a region" in told
            assert await asyncio.to_thread(main, ["plan", "--without", "north", "--center", running.http]) == 2
            assert "no line stands in region 'north'; there are: east, west" in capsys.readouterr().err

    sync(work())


def test_where_the_rule_is_not_enforced_the_plan_is_shown_and_clients_are_not_told(center, sync, capsys):
    async def work():
        async with center(
            DOCUMENT.replace("    priority: 9", "    priority: 9\n    enforce: {regions: false}")
        ) as running:

            async def is_planned():
                rows = [{"line": "gold/a", "ok": 50}]
                await running.post("/api/v1/outcomes", {"client": "c", "cluster": "gold", "outcomes": rows})
                return (await running.json("/api/v1/plan"))["scarce"]

            await until(is_planned, every=0.4, what="a plan")
            (row,) = (await running.json("/api/v1/plan"))["clusters"]
            assert (row["reason"], row["enforced"]) == ("lines.full", False)
            assert "plan" not in await running.json(LINES)
            assert await asyncio.to_thread(main, ["plan", "--center", running.http]) == 0
            assert "now: the plan is only recorded, calls go by weights" in capsys.readouterr().out

    sync(work())
