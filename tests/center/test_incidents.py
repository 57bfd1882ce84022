"""The decision log as a center tells it: incidents over the API and the command line, counters, and both over a restart."""

from __future__ import annotations

import asyncio

import pytest

from reachline.cli.main import main
from reachline.testing.center import dead, good
from reachline.testing.wait import until

ALL_GOOD = {"payments/a": good(), "payments/b": good(), "payments/c": good()}
INCIDENTS = "/api/v1/incidents"


async def opened(running, agent):
    """Line a is well, then dead until it is open."""

    async def is_healthy():
        await agent.reported(ALL_GOOD)
        return (await running.line("payments/a"))["health"] == "healthy"

    async def is_open():
        await agent.reported(ALL_GOOD | {"payments/a": dead()})
        return (await running.line("payments/a"))["breaker"] == "open"

    await until(is_healthy, every=0.3, what="a to be healthy")
    await until(is_open, every=0.3, what="a to open")


@pytest.mark.alone
def test_an_incident_is_told_while_it_lasts_counted_and_kept_over_a_restart(center, sync, capsys):
    async def work():
        async with center() as running, running.agent() as agent:
            assert (await running.json(INCIDENTS)) == {
                "times": {"total": 0, "lasting": 0, "mttd": None, "mtta": None, "mttr": None}, "incidents": []
            }  # fmt: skip
            await opened(running, agent)
            document = await running.json(INCIDENTS)
            (row,) = document["incidents"]
            assert (row["name"], row["state"], row["worst"], row["opened"], row["least"]) == (
                "payments/a", "lasts", "failed", 1, 0
            )  # fmt: skip
            assert row["began"] <= row["detected"] <= row["acted"]
            assert (row["ended"], row["restore"]) == (None, None)
            assert document["times"]["mttd"] == pytest.approx(row["detected"] - row["began"], abs=0.01)
            reason = row["rule"].split(".")[1]
            assert await running.metric(f'reachline_faults_detected_total{{reason="{reason}"}}') >= 1
            assert await running.metric(f'reachline_faults_enforced_total{{reason="{reason}"}}') >= 1
            assert await running.metric("reachline_incidents") == 1
            assert await running.metric("reachline_incident_restore_seconds_count") == 0
            assert await running.metric('reachline_orders{action="drain"}') == 0
            assert await asyncio.to_thread(main, ["incidents", "--lasting", "--center", running.http]) == 0
            assert "payments/a" in capsys.readouterr().out
            assert await asyncio.to_thread(main, ["incidents", "payments/z", "--center", running.http]) == 2
            assert "there is no line 'payments/z'" in capsys.readouterr().err
        async with center() as running:
            (again,) = (await running.json(f"{INCIDENTS}?line=payments/a"))["incidents"]
            assert again["began"] == pytest.approx(row["began"], abs=0.5)
            assert {key: again[key] for key in ("id", "state", "opened", "rule", "detect")} == {
                key: row[key] for key in ("id", "state", "opened", "rule", "detect")
            }
            assert (await running.json(f"{INCIDENTS}?line=payments/b"))["incidents"] == []

    sync(work())


def test_what_an_operator_keeps_closed_is_counted_as_not_enforced(center, sync):
    async def work():
        async with center() as running, running.agent() as agent:
            await running.post("/api/v1/orders", {"action": "close", "target": "payments/a"})

            async def is_failed():
                await agent.reported(ALL_GOOD | {"payments/a": dead()})
                return (await running.line("payments/a"))["health"] == "unhealthy"

            await until(is_failed, every=0.3, what="a to be found failed")
            assert (await running.line("payments/a"))["breaker"] == "closed"
            assert await running.metric('reachline_faults_unenforced_total{reason="operator.close"}') >= 1
            (row,) = (await running.json(INCIDENTS))["incidents"]
            assert row["unenforced"] == ["operator.close"]
            assert await running.metric('reachline_orders{action="close"}') == 1

    sync(work())
