"""How far agents are trusted, and what is no line's fault, where people look for it."""

from __future__ import annotations

import asyncio
import io
from contextlib import redirect_stdout
from pathlib import Path

from reachline.center.roster import Expected, Roster
from reachline.cli import status
from reachline.cli.render import Output
from reachline.core.trust import LEAST, Trust
from reachline.model import VantageId
from reachline.testing.center import dead, good, running_center
from reachline.testing.wait import until

DOCUMENT = """
clusters:
  payments:
    preset: quick_recovery
    judge: {tick: 500ms, heartbeat: 1s}
    lines: [tcp://a.test:443, tcp://b.test:443, tcp://c.test:443]
agents: {one: {}, two: {}, three: {}}
"""


def _status(url: str) -> str:
    with redirect_stdout(io.StringIO()) as out:
        status.command(line=None, center=url, cluster="", output=Output.TABLE)
    return " ".join(out.getvalue().split())


def test_an_agent_is_trusted_as_little_as_where_it_is_trusted_least() -> None:
    one, two = VantageId("one"), VantageId("two")
    roster = Roster({one: Expected(), two: Expected()})
    roster.trust("payments", {one: Trust(LEAST, 60_000)})
    roster.trust("search", {one: Trust(400_000), two: Trust(400_000)})

    rows = {row["agent"]: (row["trust"], row["quarantined"]) for row in roster.rows(0)}
    assert rows == {"one": (0.05, ["payments"]), "two": (0.4, [])}
    roster.trust("payments", {})
    assert [row["trust"] for row in roster.rows(0)] == [0.4, 0.4]


def test_a_quarantined_agent_and_a_faulty_service_are_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            running_center(tmp_path, DOCUMENT) as center,
            center.agent("one") as one,
            center.agent("two") as two,
            center.agent("three") as three,
        ):
            names = [row["line"] for row in (await center.json("/api/v1/lines"))["lines"]]
            well = {name: good() for name in names}
            rows = [{"line": name, "ok": 60, "errors": 40} for name in names]
            calls = {"client": "c", "cluster": "payments", "service": "pay", "outcomes": rows}

            async def told() -> bool:
                for agent, said in ((one, well), (two, well), (three, well | dict.fromkeys(names[:2], dead()))):
                    await agent.report(said)
                await center.post("/api/v1/outcomes", calls)
                agents = {row["agent"]: row["quarantined"] for row in (await center.json("/api/v1/agents"))["agents"]}
                notes = (await center.json("/api/v1/clusters"))["clusters"][0]["notes"]
                return agents == {"one": [], "two": [], "three": ["payments"]} and bool(notes)

            await until(told, what="the quarantine")
            assert await center.metric('reachline_agent_trust{agent="three"}') == 0.05
            shown = await asyncio.to_thread(_status, center.http)
            assert "agent three is in quarantine (0.05 of 1) in payments" in shown
            assert "payments: service pay: its calls fail or are slow, and no line is at fault" in shown
            assert {row["health"] for row in (await center.json("/api/v1/lines"))["lines"]} <= {"healthy", "unknown"}

    asyncio.run(scenario())
