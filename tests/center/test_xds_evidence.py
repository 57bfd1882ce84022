"""Data planes that send evidence to a real center, over real streams; they say what the test decides."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from envoy.service.accesslog.v3 import als_pb2
from envoy.service.health.v3 import hds_pb2
from envoy.service.load_stats.v3 import lrs_pb2
from google.protobuf import json_format

from reachline.center.xds import access
from reachline.store.records import Bodies, Outcomes, Reported
from reachline.store.replay import replay, segments_of
from reachline.store.segment import Segment
from reachline.testing.center import DOCUMENT, RunningCenter
from reachline.testing.wait import until
from reachline.wire import als, hds, lrs

Sync = Callable[[Any], None]
Center = Callable[..., Any]
NODE = {"id": "envoy-1", "cluster": "edge", "locality": {"zone": "az1"}, "user_agent_name": "envoy"}
CLUSTER = {"cluster_name": "payments", "load_report_interval": "1s"}


class Stream:
    """One stream of a data plane."""

    def __init__(self, call: Any, kind: Any, answer: Any) -> None:
        self._call = call
        self._kind = kind
        self._answer = answer

    async def say(self, **document: Any) -> None:
        await self._call.write(json_format.ParseDict(document, self._kind()).SerializeToString())

    async def raw(self, data: bytes) -> None:
        await self._call.write(data)

    async def told(self) -> Any:
        return self._answer.FromString(await self._call.read())

    async def ended(self) -> tuple[grpc.StatusCode, str]:
        """How the center ended it."""
        return await self._call.code(), await self._call.details()


@asynccontextmanager
async def stream(center: RunningCenter, method: str, token: str = "") -> AsyncIterator[Stream]:
    kind, answer = {
        hds.METHOD: (hds_pb2.HealthCheckRequestOrEndpointHealthResponse, hds_pb2.HealthCheckSpecifier),
        lrs.METHOD: (lrs_pb2.LoadStatsRequest, lrs_pb2.LoadStatsResponse),
        als.METHOD: (als_pb2.StreamAccessLogsMessage, als_pb2.StreamAccessLogsResponse),
    }[method]
    async with grpc.aio.insecure_channel(center.grpc[0]) as channel:
        metadata = (("authorization", f"Bearer {token}"),) if token else ()
        call: Any = channel.stream_stream(method)(metadata=metadata)
        try:
            yield Stream(call, kind, answer)
        finally:
            call.cancel()


def entry(line: str = "a", status: int = 200, took: float = 0.01, **common: Any) -> dict[str, Any]:
    host = {"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3"}.get(line, line)
    return {
        "common_properties": {
            "upstream_cluster": "payments",
            "upstream_remote_address": {"socket_address": {"address": host, "port_value": 443}},
            "time_to_first_upstream_rx_byte": f"{took}s",
            "duration": f"{took}s",
            **common,
        },
        "response": {"response_code": status},
    }


def load(sub_zone: str, ok: int = 0, errors: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "locality": {"sub_zone": sub_zone},
        "total_successful_requests": ok,
        "total_error_requests": errors,
        **more,
    }


async def plane(center: RunningCenter, by: str) -> Any:
    rows = (await center.json("/api/v1/evidence"))["planes"]
    return next((row for row in rows if row["by"] == by), {})


async def counted(center: RunningCenter, by: str, count: int) -> Any:
    async def are() -> Any:
        found = await plane(center, by)
        return found if found.get("counted", 0) >= count else None

    return await until(are, what=f"{count} calls by {by}")


async def outcomes(center: RunningCenter) -> dict[str, float]:
    return {
        name: await center.metric(f'reachline_outcomes_total{{result="{name}"}}')
        for name in ("ok", "failed", "late", "errors")
    }


# -- ALS ------------------------------------------------------------------------------------------------------------------


def test_an_access_log_is_the_businesss_word_with_its_latency_and_names_its_envoy(center: Center, sync: Sync) -> None:
    async def work() -> None:
        async with center() as running, stream(running, als.METHOD) as log:
            entries = [*[entry()] * 50, *[entry(took=0.4)] * 30, *[entry(status=503)] * 5]
            await log.say(identifier={"node": NODE}, http_logs={"log_entry": entries})
            await counted(running, "als", 85)

            async def told() -> Any:
                page = await running.json("/api/v1/explain/payments/a")
                return page if any(one["vantage"] == "als:envoy-1" for one in page["beside"]) else None

            page = await until(told, what="its word in the explanation")

            (row,) = (await running.json("/api/v1/lines/payments/a"))["told"]
            assert (row["by"], row["text"] in page["text"]) == ("als:envoy-1", True)
            assert "85 calls in 1 s, 5 server errors, 30 of 80 timed were slow" in page["text"]
            assert await outcomes(running) == {"ok": 80, "failed": 0, "late": 0, "errors": 5}

    sync(work())


def test_what_no_line_knows_is_counted_and_left(center: Center, sync: Sync) -> None:
    async def work() -> None:
        async with center() as running, stream(running, als.METHOD) as log:
            strangers = [entry("10.9.9.9"), entry(upstream_cluster="other"), entry(intermediate_log_entry=True)]
            await log.say(identifier={"node": NODE}, http_logs={"log_entry": [*strangers, entry()]})

            found = await counted(running, "als", 1)
            figures = {
                name: await running.metric(f'reachline_evidence_total{{by="als",result="{name}"}}')
                for name in ("counted", "unknown", "skipped")
            }
            streams = await running.metric('reachline_evidence_streams{by="als"}')

            assert figures == {"counted": 1, "unknown": 2, "skipped": 1}
            assert streams == 1
            assert (found["unknown"], found["skipped"], found["node"], found["streams"]) == (2, 1, "envoy-1", 1)

    sync(work())


def test_a_log_that_floods_is_dropped_unread_and_the_center_answers(
    center: Center, sync: Sync, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access.AccessLogs.__init__, "__kwdefaults__", {"token": "", "rate": 20_000})

    async def work() -> None:
        async with center() as running, stream(running, als.METHOD) as log:
            await log.say(identifier={"node": NODE}, http_logs={"log_entry": [entry()]})
            for _ in range(200):
                await log.say(http_logs={"log_entry": [entry()] * 20})

            async def dropped() -> Any:
                found = await plane(running, "als")
                return found if found and found["shed"] and found["messages"] >= 201 else None

            found = await until(dropped, what="all messages, some of them dropped")

            assert found["counted"] < 4_001
            assert (await running.get("/readyz")).status_code == 200

    sync(work())


def test_a_giant_message_of_a_log_is_left_and_the_next_one_counts(center: Center, sync: Sync) -> None:
    async def work() -> None:
        async with center() as running, stream(running, als.METHOD) as log:
            await log.say(identifier={"node": NODE}, http_logs={"log_entry": [entry()]})
            await log.say(http_logs={"log_entry": [entry(route_name="x" * (1 << 20))]})
            await log.say(http_logs={"log_entry": [entry()]})

            found = await counted(running, "als", 2)

            assert (found["counted"], found["refused"], found["messages"]) == (2, 1, 3)

    sync(work())


@pytest.mark.parametrize("method", [als.METHOD, lrs.METHOD, hds.METHOD])
def test_bytes_that_are_no_message_end_their_own_stream_only(method: str, center: Center, sync: Sync) -> None:
    async def work() -> None:
        async with center() as running, stream(running, als.METHOD) as other:
            await other.say(identifier={"node": NODE}, http_logs={"log_entry": [entry()]})
            async with stream(running, method) as bad:
                await bad.raw(b"\xff\xff\xff")
                code, why = await bad.ended()
            await other.say(http_logs={"log_entry": [entry()]})

            assert (code, why[:9]) == (grpc.StatusCode.INVALID_ARGUMENT, "malformed")
            await counted(running, "als", 2)

    sync(work())


@pytest.mark.parametrize("method", [als.METHOD, lrs.METHOD])
def test_a_first_message_without_a_node_is_refused(method: str, center: Center, sync: Sync) -> None:
    async def work() -> None:
        async with center() as running, stream(running, method) as nameless:
            await nameless.say()

            assert await nameless.ended() == (
                grpc.StatusCode.INVALID_ARGUMENT,
                "the first message of a stream must name its node",
            )

    sync(work())


# -- LRS ------------------------------------------------------------------------------------------------------------------


def test_a_grpc_client_reports_by_locality_and_each_is_a_line(center: Center, sync: Sync) -> None:
    async def work() -> None:
        async with center() as running, stream(running, lrs.METHOD) as report:
            await report.say(node={**NODE, "user_agent_name": "gRPC C-core"})
            asked = await report.told()
            metric = {
                "metric_name": "cpu_utilization",
                "num_requests_finished_with_metric": 5,
                "total_metric_value": 1.5,
            }
            spots = [load("a", 90, 10, load_metric_stats=[metric]), load("b", 5), load("x", 3)]
            await report.say(cluster_stats=[{**CLUSTER, "upstream_locality_stats": spots}])
            found = await counted(running, "lrs", 105)

            page = await until(lambda: explained(running, "orca:envoy-1"), what="what endpoints say of themselves")

            assert asked.send_all_clusters
            assert found["unknown"] == 3
            assert "cpu_utilization 0.3 (mean of 5 answers)" in page["text"]

    sync(work())


async def explained(center: RunningCenter, teller: str) -> Any:
    page = await center.json("/api/v1/explain/payments/a")
    return page if any(one["vantage"] == teller for one in page["beside"]) else None


def test_an_envoy_reports_by_endpoint_where_its_localities_are_not_ours(center: Center, sync: Sync) -> None:
    async def work() -> None:
        async with center() as running, stream(running, lrs.METHOD) as report:
            at = {"socket_address": {"address": "10.0.0.2", "port_value": 443}}
            part = {"address": at, "total_successful_requests": 7}
            await report.say(node=NODE)
            await report.told()
            await report.say(
                cluster_stats=[{**CLUSTER, "upstream_locality_stats": [load("", 7, upstream_endpoint_stats=[part])]}]
            )

            async def again() -> Any:
                await report.say()
                found = await plane(running, "lrs")
                return found if found.get("counted") else None

            found = await until(again, every=0.3, what="the report that waited for an access log")

            assert (found["counted"], found["unknown"]) == (7, 0)

    sync(work())


def test_who_sends_both_is_not_counted_twice(center: Center, sync: Sync) -> None:
    async def work() -> None:
        async with center() as running, stream(running, lrs.METHOD) as report, stream(running, als.METHOD) as log:
            await report.say(node=NODE)
            await report.told()
            await report.say(cluster_stats=[{**CLUSTER, "upstream_locality_stats": [load("a", 40)]}])
            await log.say(identifier={"node": NODE}, http_logs={"log_entry": [entry()] * 40})
            await counted(running, "als", 40)

            async def again() -> Any:
                await report.say()
                found = await plane(running, "lrs")
                return found if found.get("told_better") else None

            found = await until(again, every=0.3, what="the report, left out")

            assert (found["told_better"], found["counted"]) == (40, 0)
            await until(lambda: posted(running, 40), what="the calls, once")

    sync(work())


async def posted(center: RunningCenter, ok: float) -> bool:
    return (await outcomes(center))["ok"] == ok


def test_numbers_beyond_all_bounds_and_reports_that_come_too_fast_are_refused_and_counted(
    center: Center, sync: Sync
) -> None:
    async def work() -> None:
        async with center() as running, stream(running, lrs.METHOD) as report:
            await report.say(node={**NODE, "user_agent_name": "gRPC C-core"})
            await report.told()
            giant = [load("a", 2**63), load("b", 10**9 + 1), load("c", 1)]
            await report.say(cluster_stats=[{**CLUSTER, "upstream_locality_stats": giant}])
            for _ in range(50):
                await report.say()

            async def all_came() -> Any:
                found = await plane(running, "lrs")
                return found if found.get("messages", 0) >= 51 else None

            found = await until(all_came, what="all reports")

            assert (found["refused"], found["counted"]) == (2, 1)
            assert found["shed"] > 30
            assert (await running.get("/readyz")).status_code == 200

    sync(work())


# -- tokens ---------------------------------------------------------------------------------------------------------------

LOCKED = f"""{DOCUMENT}
agents: {{envoy-1: {{token: its-own-token}}, other: {{}}}}
center: {{grpc: '127.0.0.1:0', http: '127.0.0.1:0', journal: JOURNAL}}
"""


@pytest.mark.parametrize("method", [als.METHOD, lrs.METHOD, hds.METHOD])
def test_a_node_that_the_document_gives_a_token_must_show_it(method: str, center: Center, sync: Sync) -> None:
    async def work() -> None:
        async with center(LOCKED) as running:
            async with stream(running, method, token="wrong") as log:
                await log.say(**hello(method))
                code, why = await log.ended()
            async with stream(running, method, token="its-own-token") as log:
                await log.say(**hello(method))
                found = await until(lambda: plane(running, {als.METHOD: "als", lrs.METHOD: "lrs"}.get(method, "hds")))

            assert code is grpc.StatusCode.UNAUTHENTICATED
            assert "did not give its token" in why
            assert found["node"] == "envoy-1"

    sync(work())


def hello(method: str, node: dict[str, Any] = NODE) -> dict[str, Any]:
    match method:
        case hds.METHOD:
            asked = {"node": node, "capability": {"health_check_protocols": ["HTTP", "TCP"]}}
            return {"health_check_request": asked}
        case lrs.METHOD:
            return {"node": node}
        case _:
            return {"identifier": {"node": node}}


# -- HDS ------------------------------------------------------------------------------------------------------------------


def verdicts(**healths: str) -> dict[str, Any]:
    host = {"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3"}
    clusters = []
    for line, health in healths.items():
        endpoint = {"address": {"socket_address": {"address": host[line], "port_value": 443}}}
        rows = [{"endpoint": endpoint, "health_status": health}]
        clusters.append(
            {"cluster_name": f"payments/{line} tcp", "locality_endpoints_health": [{"endpoints_health": rows}]}
        )
    return {"endpoint_health_response": {"cluster_endpoints_health": clusters}}


PROBED = DOCUMENT.replace("clusters:", "probes: {tcp: 500ms, http: off}\nclusters:")


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
