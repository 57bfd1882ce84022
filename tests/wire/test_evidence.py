"""HDS, LRS and ALS messages ⇄ values."""

from __future__ import annotations

import math
from typing import Any

import pytest
from envoy.config.core.v3 import base_pb2
from envoy.data.accesslog.v3 import accesslog_pb2
from envoy.service.accesslog.v3 import als_pb2
from envoy.service.health.v3 import hds_pb2
from envoy.service.load_stats.v3 import lrs_pb2
from google.protobuf import json_format

from reachline.errors import RemoteProtocolError
from reachline.model import Health, Kind, Locality
from reachline.wire import als, hds, lrs
from reachline.wire.als import End, Of
from reachline.wire.request import Request

NODE = {"id": "envoy-1", "cluster": "edge", "locality": {"region": "r1", "zone": "az1"}, "user_agent_name": "envoy"}


def at(port: int = 443, host: str = "10.0.0.1") -> dict[str, Any]:
    return {"socket_address": {"address": host, "port_value": port}}


def of(kind: Any, document: dict[str, Any]) -> bytes:
    return bytes(json_format.ParseDict(document, kind()).SerializeToString())


# -- who speaks -----------------------------------------------------------------------------------------------------------


def test_a_teller_is_told_with_its_build_where_it_names_no_version() -> None:
    build = {"version": {"major_number": 1, "minor_number": 40, "patch": 2}}

    report = lrs.decode(of(lrs_pb2.LoadStatsRequest, {"node": {**NODE, "user_agent_build_version": build}}))

    assert report.teller is not None
    assert (report.teller.id, report.teller.release) == ("envoy-1", "envoy 1.40.2")
    assert report.teller.locality == Locality(region="r1", zone="az1")


@pytest.mark.parametrize(
    ("node", "rule"),
    [
        ({}, "node.id: must be 1…120"),
        ({"id": "x" * 121}, "node.id: must be 1…120"),
        ({"id": "a\nb"}, "node.id: must be 1…120"),
        ({"id": "a", "cluster": "c" * 301}, "node: has texts of 300"),
        ({"id": "a", "locality": {"zone": "\x1b[2J"}}, "node: has texts of 300"),
    ],
)
def test_a_teller_that_cannot_be_logged_and_shown_is_refused(node: dict[str, Any], rule: str) -> None:
    with pytest.raises(RemoteProtocolError, match=rule):
        lrs.decode(of(lrs_pb2.LoadStatsRequest, {"node": node}))


@pytest.mark.parametrize("decode", [als.decode, lrs.decode, hds.decode])
def test_bytes_that_are_no_message_are_refused(decode: Any) -> None:
    with pytest.raises(RemoteProtocolError, match="malformed"):
        decode(b"\xff\xff\xff")


# -- HDS ------------------------------------------------------------------------------------------------------------------


def test_an_envoy_says_what_it_can_probe_and_unknown_kinds_are_passed_over() -> None:
    asked = {"node": NODE, "capability": {"health_check_protocols": ["HTTP", "TCP", "REDIS"]}}

    found = hds.decode(of(hds_pb2.HealthCheckRequestOrEndpointHealthResponse, {"health_check_request": asked}))

    assert isinstance(found, hds.Introduced)
    assert found.kinds == {Kind.HTTP, Kind.TCP}


def test_verdicts_come_by_the_name_they_were_asked_under() -> None:
    rows = [
        {"endpoint": {"address": at(443)}, "health_status": "HEALTHY"},
        {"endpoint": {"address": at(444)}, "health_status": "TIMEOUT"},
    ]
    said = {
        "cluster_endpoints_health": [
            {"cluster_name": "p/a tcp", "locality_endpoints_health": [{"endpoints_health": rows}]}
        ]
    }

    found = hds.decode(of(hds_pb2.HealthCheckRequestOrEndpointHealthResponse, {"endpoint_health_response": said}))

    assert isinstance(found, hds.Told)
    assert [one[:1] + one[2:] for one in found.verdicts] == [
        ("p/a tcp", 443, Health.HEALTHY),
        ("p/a tcp", 444, Health.TIMEOUT),
    ]


def test_a_report_on_too_many_endpoints_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hds, "MOST_VERDICTS", 1)
    rows = [{"health_status": "HEALTHY"}, {"health_status": "HEALTHY"}]
    said = {"cluster_endpoints_health": [{"locality_endpoints_health": [{"endpoints_health": rows}]}]}

    with pytest.raises(RemoteProtocolError, match="2 endpoints, at most 1"):
        hds.decode(of(hds_pb2.HealthCheckRequestOrEndpointHealthResponse, {"endpoint_health_response": said}))


def test_an_http_check_asks_what_an_agent_would_and_leaves_patience_to_the_judge() -> None:
    request = Request("HEAD", "https", "a.example", "/ready", (("User-Agent", "reachline"),))
    http = hds.Asked(request=request, expect=((200, 299), (404, 404)), body=b"", is_second=True)
    ask = hds.Ask(
        name="p/a http", addresses=(("10.0.0.1", 443), ("10.0.0.2", 443)), interval_ms=5_000, timeout_ms=1_000, http=http,
        secured=hds.Secured("a.example", ("h2",)),
    )  # fmt: skip

    told = hds_pb2.HealthCheckSpecifier.FromString(hds.encode([ask], 2_000))

    (cluster,) = told.cluster_health_checks
    (check,) = cluster.health_checks
    assert told.interval.ToMilliseconds() == 2_000
    assert (check.healthy_threshold.value, check.unhealthy_threshold.value) == (1, 1)
    assert check.no_traffic_interval.ToMilliseconds() == check.interval.ToMilliseconds() == 5_000
    assert (check.http_health_check.host, check.http_health_check.path) == ("a.example", "/ready")
    assert check.http_health_check.method == base_pb2.HEAD
    # Envoy's ranges are half open.
    assert [(one.start, one.end) for one in check.http_health_check.expected_statuses] == [(200, 300), (404, 405)]
    assert [one.address.socket_address.port_value for one in cluster.locality_endpoints[0].endpoints] == [443, 443]
    assert cluster.transport_socket_matches[0].match == check.transport_socket_match_criteria


# -- LRS ------------------------------------------------------------------------------------------------------------------


def load(**more: Any) -> bytes:
    spot = {"locality": {"sub_zone": "a"}, "total_successful_requests": 7, "total_error_requests": 2, **more}
    stats = {"cluster_name": "payments", "upstream_locality_stats": [spot], "load_report_interval": "1.5s"}
    return of(lrs_pb2.LoadStatsRequest, {"cluster_stats": [stats]})


def test_loads_are_told_by_locality_and_by_endpoint() -> None:
    part = {"address": at(), "total_successful_requests": 7, "total_error_requests": 1}

    (spot,) = lrs.decode(load(upstream_endpoint_stats=[part])).spots

    assert (spot.cluster, spot.locality.sub_zone, spot.load[:2]) == ("payments", "a", (7, 2))
    assert [(host, port, part[:2]) for host, port, part in spot.endpoints] == [("10.0.0.1", 443, (7, 1))]
    assert lrs.decode(load()).interval_us == 1_500_000


def test_what_endpoints_say_of_themselves_is_bounded_and_numbers_that_are_none_are_left() -> None:
    good = {"metric_name": "cpu_utilization", "num_requests_finished_with_metric": 50, "total_metric_value": 15}
    bad = [
        {**good, "total_metric_value": "NaN"},
        {**good, "metric_name": "x" * 65},
        {**good, "metric_name": "\x1b"},
        {**good, "num_requests_finished_with_metric": 0},
    ]

    (spot,) = lrs.decode(load(load_metric_stats=[*bad, good])).spots
    (crowded,) = lrs.decode(load(load_metric_stats=[good] * 100)).spots

    assert spot.load.metrics == (lrs.Metric("cpu_utilization", 50, 15.0),)
    assert len(crowded.load.metrics) == 32
    assert all(math.isfinite(one.total) for one in crowded.load.metrics)


def test_all_clusters_and_each_endpoint_are_asked_for() -> None:
    told = lrs_pb2.LoadStatsResponse.FromString(lrs.encode(1_000))

    assert told.send_all_clusters
    assert told.report_endpoint_granularity
    assert told.load_reporting_interval.ToMilliseconds() == 1_000


# -- ALS ------------------------------------------------------------------------------------------------------------------


def entry(status: int = 200, **common: Any) -> dict[str, Any]:
    usual = {
        "upstream_cluster": "payments",
        "upstream_remote_address": at(),
        "time_to_last_rx_byte": "0.001s",
        "time_to_first_upstream_tx_byte": "0.003s",
        "time_to_first_upstream_rx_byte": "0.021s",
        "duration": "0.025s",
        "upstream_request_attempt_count": 1,
        "access_log_type": "DownstreamEnd",
    }
    return {"common_properties": {**usual, **common}, "response": {"response_code": status}}


def logged(*entries: dict[str, Any], kind: str = "http_logs") -> als.Logged:
    return als.decode(of(als_pb2.StreamAccessLogsMessage, {kind: {"log_entry": list(entries)}}))


def test_a_call_is_placed_and_timed_from_the_whole_request_to_the_first_byte_of_its_answer() -> None:
    (call,) = logged(entry()).calls

    assert call == als.Call("payments", "10.0.0.1", 443, End.OK, 20_000, 25_000, Of.REQUEST)


@pytest.mark.parametrize(
    ("common", "took_us"),
    [
        # Tried before: what the earlier attempts took is not this line's.
        ({"upstream_request_attempt_count": 2}, 18_000),
        # Answered before the request was whole.
        ({"time_to_last_rx_byte": "3s"}, 18_000),
        ({"time_to_first_upstream_rx_byte": None}, 0),
        ({"time_to_first_upstream_rx_byte": "-5s"}, 0),
    ],
)
def test_what_is_not_the_lines_time_is_not_counted(common: dict[str, Any], took_us: int) -> None:
    (call,) = logged(entry(**common)).calls

    assert call.took_us == took_us


@pytest.mark.parametrize(
    ("status", "flags", "end"),
    [
        (200, [], End.OK),
        (404, [], End.OK),
        (500, [], End.ERROR),
        (503, ["upstream_connection_failure"], End.FAILED),
        (503, ["upstream_connection_termination"], End.FAILED),
        (503, ["upstream_remote_reset"], End.FAILED),
        (503, ["upstream_connection_failure", "upstream_retry_limit_exceeded"], End.FAILED),
        (504, ["upstream_request_timeout"], End.LATE),
        (503, ["upstream_retry_limit_exceeded"], End.ERROR),
        (200, ["delay_injected"], End.OK),
    ],
)
def test_flags_say_first_how_a_call_ended_then_its_status(status: int, flags: list[str], end: End) -> None:
    (call,) = logged(entry(status, response_flags=dict.fromkeys(flags, True))).calls

    assert call.end is end


@pytest.mark.parametrize(
    "each",
    [
        entry(503, response_flags={"no_healthy_upstream": True}),
        entry(503, response_flags={"fault_injected": True}),
        entry(0, response_flags={"downstream_connection_termination": True}),
        entry(0),
        entry(upstream_remote_address=None),
        entry(intermediate_log_entry=True),
        entry(access_log_type="DownstreamPeriodic"),
        entry(access_log_type="UpstreamPoolReady"),
    ],
)
def test_what_says_nothing_of_the_line_is_skipped_and_counted(each: dict[str, Any]) -> None:
    found = logged(each, entry())

    assert (len(found.calls), found.skipped) == (1, 1)


def attempt(status: int = 200, **common: Any) -> dict[str, Any]:
    """An entry of the router's own log, as Envoy 1.40 writes it: its clock begins with the attempt."""
    usual = {
        "time_to_last_rx_byte": None,
        "time_to_last_upstream_tx_byte": "0.003s",
        "time_to_last_upstream_rx_byte": "0.022s",
        "upstream_request_attempt_count": None,
        "access_log_type": "UpstreamEnd",
    }
    return entry(status, **{**usual, **common})


def test_the_routers_own_log_is_of_attempts() -> None:
    (call,) = logged(attempt()).calls

    assert call == als.Call("payments", "10.0.0.1", 443, End.OK, 21_000, 25_000, Of.ATTEMPT)


@pytest.mark.parametrize(
    ("common", "took_us"),
    [
        # How long the caller took to send is not the line's.
        ({"time_to_last_upstream_tx_byte": "0.013s"}, 11_000),
        # Answered before the request was whole, or it never was.
        ({"time_to_last_upstream_tx_byte": "0.030s"}, 18_000),
        ({"time_to_last_upstream_tx_byte": None}, 18_000),
        ({"time_to_first_upstream_rx_byte": None}, 0),
    ],
)
def test_an_attempt_is_timed_without_the_sending_of_the_request(common: dict[str, Any], took_us: int) -> None:
    (call,) = logged(attempt(**common)).calls

    assert call.took_us == took_us


@pytest.mark.parametrize(
    ("each", "ends"),
    [
        (attempt(0, response_flags={"upstream_connection_failure": True}), [End.FAILED]),
        # An answer that makes the router try again is not read to its end.
        (attempt(503, time_to_last_upstream_rx_byte=None), [End.ERROR]),
        (attempt(0, response_flags={"upstream_request_timeout": True}), [End.LATE]),
        # Broken off by the caller, or because the time of the whole call is over: no flag says which.
        (attempt(0), []),
        (attempt(200, time_to_last_upstream_rx_byte=None), []),
    ],
)
def test_how_an_attempt_ended_is_learnt_where_the_line_ended_it(each: dict[str, Any], ends: list[End]) -> None:
    assert [call.end for call in logged(each).calls] == ends


@pytest.mark.parametrize(
    ("status", "details", "common", "of"),
    [
        (504, "response_timeout", {"time_to_first_upstream_rx_byte": None}, Of.TIMEOUT),
        (200, "response_timeout", {}, Of.TIMEOUT),
        # The attempt that was answering with an error is told as that.
        (503, "response_timeout", {}, Of.REQUEST),
        (504, "upstream_per_try_timeout", {"time_to_first_upstream_rx_byte": None}, Of.REQUEST),
    ],
)
def test_a_request_that_took_too_long_is_told_apart_where_none_of_its_attempts_says_so(
    status: int, details: str, common: dict[str, Any], of: Of
) -> None:
    late = entry(status, response_flags={"upstream_request_timeout": True}, **common)
    late["response"]["response_code_details"] = details

    (call,) = logged(late).calls

    assert (call.end, call.of) == (End.LATE, of)


def test_of_a_tcp_connection_its_beginning_is_judged_and_nothing_is_timed() -> None:
    kept, lost = entry(access_log_type="TcpConnectionEnd"), entry(response_flags={"upstream_connection_failure": True})
    ended = entry(response_flags={"downstream_connection_termination": True})
    tcp = [{"common_properties": each["common_properties"]} for each in (kept, lost, ended)]

    found = logged(*tcp, kind="tcp_logs")

    assert [(call.end, call.took_us) for call in found.calls] == [(End.OK, 0), (End.FAILED, 0), (End.OK, 0)]


def test_every_flag_of_envoys_is_judged_or_known_to_say_nothing() -> None:
    flags = {field.name for field in accesslog_pb2.ResponseFlags.DESCRIPTOR.fields} - {"unauthorized_details"}

    ends = {flag: logged(entry(200, response_flags={flag: True})).calls for flag in sorted(flags)}

    said = {flag: calls[0].end for flag, calls in ends.items() if calls}
    assert {flag for flag, end in said.items() if end is End.FAILED} == {
        "upstream_connection_failure", "upstream_connection_termination", "upstream_protocol_error", "upstream_remote_reset",
    }  # fmt: skip
    assert {flag for flag, end in said.items() if end is End.LATE} == {
        "upstream_max_stream_duration_reached", "upstream_request_timeout",
    }  # fmt: skip
    assert {flag for flag, end in said.items() if end is End.OK} == {"delay_injected", "upstream_retry_limit_exceeded"}
