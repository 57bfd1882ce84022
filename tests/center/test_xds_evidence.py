"""Calls that data planes tell a real center of, over real streams; they say what the test decides."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from tests.center.planes import (
    CLUSTER,
    LOCKED,
    NODE,
    Center,
    Sync,
    counted,
    entry,
    hello,
    load,
    outcomes,
    plane,
    stream,
)

from reachline.center.xds import access, planes
from reachline.testing.center import RunningCenter
from reachline.testing.wait import until
from reachline.wire import als, hds, lrs

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


def test_where_too_many_streams_are_open_one_more_is_told_to_come_again(
    center: Center, sync: Sync, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planes, "_STREAMS", 1)

    async def work() -> None:
        async with center() as running, stream(running, als.METHOD) as log:
            await log.say(identifier={"node": NODE}, http_logs={"log_entry": [entry()]})
            await counted(running, "als", 1)
            async with stream(running, lrs.METHOD) as report:
                await report.say(node=NODE)

                assert await report.ended() == (
                    grpc.StatusCode.UNAVAILABLE,
                    "1 streams of data planes are open already",
                )

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


def test_attempts_win_over_requests_but_for_calls_that_took_too_long(center: Center, sync: Sync) -> None:
    async def work() -> None:
        async with center() as running, stream(running, als.METHOD) as log:
            attempts = [entry("a", access_log_type="UpstreamEnd", time_to_last_upstream_rx_byte="0.01s")] * 3
            failed = [
                entry("a", 0, access_log_type="UpstreamEnd", response_flags={"upstream_connection_failure": True})
            ]
            await log.say(identifier={"node": NODE}, http_logs={"log_entry": attempts + failed})
            await counted(running, "als", 4)
            late = entry(
                "b", 504, response_flags={"upstream_request_timeout": True}, time_to_first_upstream_rx_byte=None
            )
            late["response"]["response_code_details"] = "response_timeout"
            broken_off = entry("b", 0, access_log_type="UpstreamEnd", time_to_first_upstream_rx_byte=None)
            await log.say(http_logs={"log_entry": [entry("a"), broken_off, late]})

            found = await counted(running, "als", 5)

            assert (found["told_better"], found["skipped"]) == (1, 1)
            await until(lambda: came_to(running, ok=3, failed=1, late=1, errors=0), what="each call, once")

    sync(work())


async def came_to(center: RunningCenter, **counts: float) -> bool:
    return await outcomes(center) == counts


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
