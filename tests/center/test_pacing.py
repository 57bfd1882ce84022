"""How agents keep their limits, and dead paths they found: in the listing, the line's page, the metrics and the explanation."""

from __future__ import annotations

import asyncio
import contextlib
import io
from pathlib import Path

import pytest

from reachline.center.checks import check
from reachline.cli import status
from reachline.cli.render import Output
from reachline.errors import RemoteProtocolError
from reachline.model import Kind, Reading
from reachline.testing.center import dead, good, running_center
from reachline.testing.wait import until
from reachline.wire.frame import Detail, Heartbeat, Pacing, Ports, Report

PACING = Pacing(
    rate_milli=480_000,
    stretch_milli=1_250,
    skipped={"late": 2, "network": 7},
    shed=3,
    limit="network 10.0.0.0/24",
)
PORTS = Ports(dead=29, tried=256, parts=8, bucket=5)
TOLD = "1 of 8 equal paths is dead: no connect gets through from 29 of 256 source ports, those with port mod 8 = 5"


def test_pacing_skipped_rounds_and_dead_paths_are_shown_everywhere(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_center(tmp_path) as center, center.agent("edge-03") as agent:
            detail = Detail(skipped=4, interval_ms=2_500, ports=PORTS)
            reports = (
                Report(line="payments/a", reading=dead(), detail=detail),
                Report(line="payments/b", reading=good()),
            )
            for _ in range(3):
                await agent.reported({}, reports=reports, pacing=PACING)

            row = (await center.json("/api/v1/agents"))["agents"][0]
            assert row["pacing"] == {
                "rate": 480.0,
                "stretch": 1.25,
                "skipped": {"late": 2, "network": 7},
                "shed": 3,
                "limit": "network 10.0.0.0/24",
            }
            (reading,) = (await center.json("/api/v1/lines/payments/a"))["readings"]
            assert (reading["skipped"], reading["interval"]) == (4, 2.5)
            assert reading["paths"] == {"dead": 29, "tried": 256, "parts": 8, "bucket": 5, "shift": 0, "text": TOLD}
            assert await center.metric('reachline_agent_rate{agent="edge-03"}') == 480
            assert await center.metric('reachline_agent_stretch_ratio{agent="edge-03"}') == 1.25
            skipped = 'reachline_agent_rounds_skipped_total{agent="edge-03",cause="network"}'
            assert await center.metric(skipped) == 7
            assert await center.metric('reachline_agent_attempts_shed_total{agent="edge-03"}') == 3
            line = 'line="payments/a",cluster="payments"'
            assert await center.metric(f"reachline_line_rounds_skipped_total{{{line}}}") == 12, "added up"
            ratio = f'reachline_line_dead_ports_ratio{{{line},vantage="edge-03"}}'
            assert await center.metric(ratio) == pytest.approx(29 / 256)

            async def explained() -> bool:
                text: str = (await center.json("/api/v1/explain/payments/a"))["text"]
                own = "left out 4 rounds itself, for the limit of network 10.0.0.0/24"
                return TOLD in text and own in text

            await until(explained, what="both in the explanation")
            shown = await asyncio.to_thread(_status, center.http)
            assert (
                "agent edge-03 holds back: all intervals are 1.2 times as long; network 10.0.0.0/24 is at its limit"
                in shown
            )
            assert f"edge-03: {TOLD}" in await asyncio.to_thread(_status, center.http, "payments/a")

    asyncio.run(scenario())


def test_a_line_without_a_dead_path_and_an_agent_that_says_nothing_show_none(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_center(tmp_path) as center, center.agent("edge-03") as agent:
            await agent.reported({"payments/a": good()})

            assert (await center.json("/api/v1/agents"))["agents"][0]["pacing"] is None
            (reading,) = (await center.json("/api/v1/lines/payments/a"))["readings"]
            assert (reading["paths"], reading["interval"], reading["skipped"]) == (None, None, 0)
            text = (await center.get("/metrics")).text
            assert "dead_ports" not in text
            assert "line_rounds_skipped" not in text

    asyncio.run(scenario())


def test_what_an_agent_tells_of_a_time_without_a_center_is_not_told_as_now(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_center(tmp_path) as center, center.agent("edge-03") as agent:
            past = Report(line="payments/a", reading=dead(), detail=Detail(skipped=4, ports=PORTS))
            await agent.reported({}, reports=(past,), replayed=True, doubt=5, doubts=("its own end was cut off",))

            async def explained() -> str:
                answer = await center.get("/api/v1/explain/payments/a")
                return str(answer.json()["text"]) if answer.status_code == 200 else ""

            text = await until(explained, what="an explanation")
            (reading,) = (await center.json("/api/v1/lines/payments/a"))["readings"]

            assert (reading["replayed"], reading["paths"]["dead"]) == (True, 29)
            assert "dead_ports" not in (await center.get("/metrics")).text
            assert TOLD not in text
            (row,) = (await center.json("/api/v1/agents"))["agents"]
            assert (row["doubt"], row["doubts"]) == (0, [])

    asyncio.run(scenario())


def _status(url: str, line: str | None = None) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        status.command(line=line, center=url, cluster="", output=Output.TABLE)
    return " ".join(out.getvalue().split())


def beat(detail: Detail | None = None, pacing: Pacing | None = None) -> Heartbeat:
    reports = (Report(line="c/l", reading=Reading(Kind.TCP), detail=detail),) if detail else ()
    return Heartbeat(agent="one", boot="b", sequence=1, reports=reports, pacing=pacing)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (beat(Detail(skipped=-1)), "skipped"),
        (beat(Detail(interval_ms=2**50)), "interval_ms"),
        (beat(Detail(ports=Ports(dead=3, tried=2))), "ports"),
        (beat(Detail(ports=Ports(dead=0, tried=70_000))), "ports"),
        (beat(Detail(ports=Ports(dead=0, tried=1, bucket=-1))), "ports"),
        (beat(pacing=Pacing(rate_milli=-1)), "pacing"),
        (beat(pacing=Pacing(rate_milli=1, limit="x" * 301)), "pacing"),
        (beat(pacing=Pacing(rate_milli=1, limit="a\x1b[2J")), "pacing"),
        (beat(pacing=Pacing(rate_milli=1, skipped={'late"} 1\nevil': 1})), "pacing"),
        (beat(pacing=Pacing(rate_milli=1, skipped={"late": -1})), "pacing"),
        (beat(pacing=Pacing(rate_milli=1, skipped={f"cause_{'x' * n}": 1 for n in range(40)})), "pacing"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(wrong: Heartbeat, field: str) -> None:
    with pytest.raises(RemoteProtocolError, match=field):
        check(wrong)


def test_what_an_honest_agent_says_is_taken() -> None:
    check(beat(Detail(skipped=4, interval_ms=2_500, ports=PORTS), PACING))
