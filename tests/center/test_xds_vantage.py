"""Envoys that probe for a real center, over real streams, and the journal behind them; they say what the test decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
from tests.center.planes import (
    LOCKED,
    NODE,
    PROBED,
    Center,
    Sync,
    counted,
    entry,
    hello,
    load,
    plane,
    stream,
    verdicts,
)

from reachline.store.records import Bodies, Outcomes, Reported
from reachline.store.replay import replay, segments_of
from reachline.store.segment import Segment
from reachline.testing.center import RunningCenter
from reachline.testing.wait import until
from reachline.wire import als, hds, lrs

# -- HDS ------------------------------------------------------------------------------------------------------------------


def test_an_envoy_is_told_what_to_probe_and_votes_like_an_agent(center: Center, sync: Sync) -> None:
    async def work() -> None:
        async with center(PROBED) as running, stream(running, hds.METHOD) as envoy:
            await envoy.say(**hello(hds.METHOD))
            told = await envoy.told()

            async def opened() -> Any:
                await envoy.say(**verdicts(a="UNHEALTHY", b="HEALTHY", c="HEALTHY"))
                row = await running.line("payments/a")
                return row if row["breaker"] == "open" else None

            await until(opened, every=0.25, what="the line out of traffic")
            (agent,) = (await running.json("/api/v1/agents"))["agents"]
            page = await running.json("/api/v1/lines/payments/a")
            why = await running.json("/api/v1/explain/payments/a")

            assert {one.cluster_name for one in told.cluster_health_checks} == {
                f"payments/{name} tcp" for name in "abc"
            }
            assert told.interval.ToMilliseconds() == 500
            assert (agent["agent"], agent["state"], agent["release"]) == ("envoy-1", "attached", "envoy by HDS")
            assert [vote["vantage"] for vote in page["votes"]] == ["envoy-1"]
            assert page["readings"][0]["quality"] == 1
            assert why["votes"][0]["vantage"] == "envoy-1"
            assert "envoy-1: envoy by HDS, which says of a probe whether it went well" in why["text"]
            assert why["rule"] == "vote.connect.failed"

    sync(work())


def test_another_document_replaces_what_an_envoy_probes(center: Center, sync: Sync, tmp_path: Path) -> None:
    async def work() -> None:
        async with center(PROBED, watch=True) as running, stream(running, hds.METHOD) as envoy:
            await envoy.say(**hello(hds.METHOD))
            first = await envoy.told()
            file = tmp_path / "reachline.yaml"
            file.write_text(file.read_text().replace('b: "tcp://10.0.0.2:443", ', ""))

            async def moved() -> bool:
                return len((await running.json("/api/v1/lines"))["lines"]) == 2

            await until(moved, what="the new document in force")
            await envoy.say(**verdicts(a="HEALTHY"))
            second = await envoy.told()

            assert len(first.cluster_health_checks) == 3
            assert {one.cluster_name for one in second.cluster_health_checks} == {"payments/a tcp", "payments/c tcp"}

    sync(work())


def test_an_envoy_that_the_document_does_not_name_is_no_vantage(center: Center, sync: Sync) -> None:
    async def work() -> None:
        async with center(LOCKED) as running, stream(running, hds.METHOD) as envoy:
            await envoy.say(**hello(hds.METHOD, {**NODE, "id": "stranger"}))

            code, why = await envoy.ended()

            assert code is grpc.StatusCode.UNAUTHENTICATED
            assert why == "agent 'stranger' is not in the document's agents"

    sync(work())


def test_an_envoy_under_the_id_of_an_attached_agent_is_refused_and_the_agent_wins_later_too(
    center: Center, sync: Sync
) -> None:
    async def work() -> None:
        async with center(PROBED) as running:
            async with running.agent("envoy-1"), stream(running, hds.METHOD) as envoy:
                await envoy.say(**hello(hds.METHOD))
                refused = await envoy.ended()
            async with stream(running, hds.METHOD) as envoy:
                await until(lambda: is_silent(running), what="the agent gone")
                await envoy.say(**hello(hds.METHOD))
                await envoy.told()
                async with running.agent("envoy-1", boot="b2"):
                    await envoy.say(**verdicts(a="HEALTHY"))
                    ended = await envoy.ended()

            assert refused == (grpc.StatusCode.UNAUTHENTICATED, "agent 'envoy-1' is attached and speaks for itself")
            assert ended == (grpc.StatusCode.UNAVAILABLE, "another 'envoy-1' attached")

    sync(work())


async def is_silent(center: RunningCenter) -> bool:
    return all(one["state"] == "silent" for one in (await center.json("/api/v1/agents"))["agents"])


def test_reports_that_come_too_fast_are_not_read(center: Center, sync: Sync) -> None:
    async def work() -> None:
        async with center(PROBED) as running, stream(running, hds.METHOD) as envoy:
            await envoy.say(**hello(hds.METHOD))
            await envoy.told()
            for _ in range(100):
                await envoy.say(**verdicts(a="HEALTHY"))

            async def all_came() -> Any:
                found = await plane(running, "hds")
                return found if found.get("messages", 0) >= 100 else None

            found = await until(all_came, what="all reports")

            assert found["shed"] > 50

    sync(work())


def test_a_report_on_thousands_of_endpoints_that_nobody_asked_for_is_counted_and_left(
    center: Center, sync: Sync
) -> None:
    async def work() -> None:
        async with center(PROBED) as running, stream(running, hds.METHOD) as envoy:
            await envoy.say(**hello(hds.METHOD))
            await envoy.told()
            rows = [
                {"endpoint": {"address": {"socket_address": {"address": "10.1.1.1", "port_value": at}}}}
                for at in range(5_000)
            ]
            spot = {"cluster_name": "x", "locality_endpoints_health": [{"endpoints_health": rows}]}
            await envoy.say(endpoint_health_response={"cluster_endpoints_health": [spot]})

            async def came() -> Any:
                found = await plane(running, "hds")
                return found if found.get("unknown") else None

            assert (await until(came, what="the report"))["unknown"] == 5_000

    sync(work())


# -- the journal ----------------------------------------------------------------------------------------------------------


def test_all_of_it_is_journalled_with_who_told_it_and_replays(center: Center, sync: Sync, tmp_path: Path) -> None:
    async def work() -> None:
        async with center(PROBED) as running, stream(running, hds.METHOD) as envoy, stream(running, als.METHOD) as log:
            await envoy.say(**hello(hds.METHOD))
            await envoy.told()
            await log.say(identifier={"node": NODE}, http_logs={"log_entry": [entry(status=503)] * 60})

            async def opened() -> Any:
                await envoy.say(**verdicts(a="UNHEALTHY", b="HEALTHY", c="HEALTHY"))
                await log.say(http_logs={"log_entry": [*[entry(status=503)] * 20, *[entry("b")] * 20]})
                return (await running.line("payments/a"))["breaker"] == "open"

            await until(opened, every=0.25, what="the line out of traffic")

    sync(work())

    found = replay(tmp_path / "journal")
    assert found.difference is None
    assert found.decisions > 0
    assert tellers(tmp_path / "journal") == {"envoy-1", "als:envoy-1"}


def test_calls_that_were_heard_before_the_end_are_in_the_journal(center: Center, sync: Sync, tmp_path: Path) -> None:
    async def work() -> None:
        async with center() as running, stream(running, als.METHOD) as log, stream(running, lrs.METHOD) as report:
            await report.say(node={**NODE, "id": "envoy-2"})
            await report.told()
            await log.say(identifier={"node": NODE}, http_logs={"log_entry": [entry()]})
            await report.say(cluster_stats=[{"cluster_name": "payments", "upstream_locality_stats": [load("b", 3)]}])
            await counted(running, "als", 1)
            await until(lambda: messages(running, "lrs", 1), what="the report")
            running.stop.set()
            await log.ended()

    sync(work())

    assert tellers(tmp_path / "journal") == {"als:envoy-1", "lrs:envoy-2"}


async def messages(center: RunningCenter, by: str, count: int) -> bool:
    return bool((await plane(center, by)).get("messages", 0) >= count)


def tellers(journal: Path) -> set[str]:
    """Who stands behind the journal's evidence."""
    found: set[str] = set()
    for file in segments_of(journal):
        with Segment(file) as segment:
            bodies = Bodies()
            for stored in segment.records():
                match bodies.read(stored.kind, stored.scope, stored.at_ms, stored.body):
                    case Outcomes(client=teller) | Reported(vantage=teller):
                        found.add(teller)
                    case _:
                        pass
    return found
