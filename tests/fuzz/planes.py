"""What data planes and control planes say to each other, and to us."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any, Final

from tests.fuzz.reshape import reshaped
from tests.fuzz.target import (
    LONGEST_NOTE,
    SHAPES,
    Target,
)

from reachline.doors.envoy.asked import Request
from reachline.errors import RemoteProtocolError
from reachline.members import faults_of
from reachline.wire.ads import EDS, Client, Response

__all__ = ["evidence_targets", "followers_targets", "planes_targets"]


ASSIGNMENT: Final = {
    "@type": EDS, "cluster_name": "a", "policy": {"drop_overloads": [{"category": "t", "drop_percentage": {"numerator": 5}}]},
    "endpoints": [
        {
            "priority": 1, "locality": {"region": "r"}, "load_balancing_weight": 3,
            "lb_endpoints": [
                {
                    "endpoint": {"address": {"socket_address": {"address": "10.0.0.1", "port_value": 80}}, "hostname": "h"},
                    "health_status": "DRAINING", "load_balancing_weight": 2, "metadata": {"filter_metadata": {"f": {"x": [1]}}},
                }
            ],
        }
    ],
}  # fmt: skip


def planes_targets() -> Iterator[Target]:
    """What a control plane says, where the extra `xds` is there to read it."""
    if find_spec("envoy") is None:
        return
    from envoy.service.discovery.v3 import discovery_pb2
    from google.protobuf import json_format

    from reachline.wire import xds

    said = {"type_url": EDS, "version_info": "1", "nonce": "n", "resources": [ASSIGNMENT]}
    sotw = json_format.ParseDict(said, discovery_pb2.DiscoveryResponse())
    delta = discovery_pb2.DeltaDiscoveryResponse(type_url=EDS, nonce="n", removed_resources=["b"])
    delta.resources.add(name="a", version="1", resource=sotw.resources[0]).ttl.FromSeconds(9)
    delta.resources.add(name="b", version="1")
    wrapped = discovery_pb2.DiscoveryResponse(type_url=EDS, nonce="n")
    wrapped.resources.add().Pack(delta.resources[0])

    def received(decode: Callable[[bytes], Response], *, is_delta: bool) -> Callable[[bytes], None]:
        def run(data: bytes) -> None:
            client = Client(xds.PARSERS, delta=is_delta)
            client.subscribe(EDS, "a")
            client.requests()
            for told in client.received(decode(data), 0.0):
                _assigned(told.value)
            for request in client.requests():
                assert len(request.error) <= LONGEST_NOTE
                xds.encode(request, xds.Node(id="n"))
            client.turn(client.deadline() or 0.0)

        return run

    def of_document(data: bytes) -> None:
        for parsed in xds.from_document(reshaped({"resources": [ASSIGNMENT]}, data)):
            assert bool(parsed.error) is (parsed.value is None)
            _assigned(parsed.value)

    remote = (RemoteProtocolError,)
    sotw_seeds = tuple(each.SerializeToString() for each in (sotw, wrapped))
    yield Target(name="wire.xds", run=received(xds.decode, is_delta=False), errors=remote, seeds=sotw_seeds)
    run = received(xds.decode_delta, is_delta=True)
    yield Target(name="wire.xds.delta", run=run, errors=remote, seeds=(delta.SerializeToString(),))
    yield Target(name="wire.xds.shape", run=of_document, errors=remote, seeds=SHAPES, is_slow=True)


def evidence_targets() -> Iterator[Target]:
    """What data planes send of their probes and calls."""
    if find_spec("envoy") is None:
        return
    from envoy.service.accesslog.v3 import als_pb2
    from envoy.service.health.v3 import hds_pb2
    from envoy.service.load_stats.v3 import lrs_pb2
    from google.protobuf import json_format

    from reachline.wire import als, hds, lrs

    node = {
        "id": "envoy-1",
        "locality": {"zone": "az1"},
        "user_agent_name": "envoy",
        "metadata": {"reachline": {"token": "t"}},
    }
    at = {"socket_address": {"address": "10.0.0.1", "port_value": 443}}

    def seed(kind: Any, document: Mapping[str, Any]) -> bytes:
        return bytes(json_format.ParseDict(document, kind()).SerializeToString())

    def logged(data: bytes) -> None:
        for call in als.decode(data).calls:
            assert call.address
            assert call.took_us >= 0

    def loaded(data: bytes) -> None:
        for spot in lrs.decode(data).spots:
            assert min(spot.load.ok, spot.load.errors) >= 0
            assert all(math.isfinite(one.total) and one.answers for one in spot.load.metrics)

    common = {
        "upstream_cluster": "a", "upstream_remote_address": at, "duration": "0.02s", "time_to_first_upstream_rx_byte": "0.01s",
        "response_flags": {"upstream_request_timeout": True}, "access_log_type": "DownstreamEnd",
    }  # fmt: skip
    http, tcp = {"common_properties": common, "response": {"response_code": 200}}, {"common_properties": common}
    entries = (
        seed(
            als_pb2.StreamAccessLogsMessage,
            {"identifier": {"node": node}, "http_logs": {"log_entry": [http]}},
        ),
        seed(als_pb2.StreamAccessLogsMessage, {"tcp_logs": {"log_entry": [tcp]}}),
    )
    metric = {"metric_name": "cpu", "num_requests_finished_with_metric": 2, "total_metric_value": 0.5}
    spot: dict[str, Any] = {
        "locality": {"sub_zone": "a"},
        "total_successful_requests": 3,
        "load_metric_stats": [metric],
    }
    spot["upstream_endpoint_stats"] = [{"address": at, "total_error_requests": 1}]
    load = {
        "node": node,
        "cluster_stats": [{"cluster_name": "a", "upstream_locality_stats": [spot], "load_report_interval": "1s"}],
    }
    asked = {"health_check_request": {"node": node, "capability": {"health_check_protocols": ["HTTP", "TCP"]}}}
    rows = [{"endpoints_health": [{"endpoint": {"address": at}, "health_status": "TIMEOUT"}]}]
    told = {
        "endpoint_health_response": {
            "cluster_endpoints_health": [{"cluster_name": "a", "locality_endpoints_health": rows}]
        }
    }
    probed = tuple(seed(hds_pb2.HealthCheckRequestOrEndpointHealthResponse, each) for each in (asked, told))
    remote = (RemoteProtocolError,)
    yield Target(name="wire.als", run=logged, errors=remote, seeds=entries)
    yield Target(name="wire.lrs", run=loaded, errors=remote, seeds=(seed(lrs_pb2.LoadStatsRequest, load),))
    yield Target(name="wire.hds", run=hds.decode, errors=remote, seeds=probed)


def followers_targets() -> Iterator[Target]:
    """What a client of a center says, where the extra `xds` is there to read it: whatever it is, the next answer can be made."""
    if find_spec("envoy") is None:
        return
    from reachline.wire import xds
    from reachline.wire.ads import CDS, DeltaRequest, Request
    from reachline.wire.ads_serving import Subscriber
    from reachline.wire.resources import EMPTY, Differences, rendered
    from reachline.wire.xds_serving import Splicer, read, read_delta

    states = [
        EMPTY.replaced([rendered(url, name, f"{name}{number}".encode()) for url in (CDS, EDS) for name in "ab"])
        for number in range(2)
    ]

    def received(
        parse: Callable[[bytes], tuple[Request | DeltaRequest, object]], *, is_delta: bool
    ) -> Callable[[bytes], None]:
        def run(data: bytes) -> None:
            stream, splicer = Subscriber(Differences(), delta=is_delta), Splicer()
            request, _ = parse(data)
            for state in states:
                stream.received(request)
                while (answer := stream.due(state)) is not None:
                    splicer.bytes_of(answer)
            assert all(len(seen.error) <= LONGEST_NOTE for seen in stream.seen())

        return run

    node, remote = xds.Node(id="n", metadata={"k": [1]}), (RemoteProtocolError,)
    sotw = (Request(EDS, ("a", "b"), "1", is_first=True), Request(CDS, ("*",), "1", "1", "b: is bad"))
    delta = (
        DeltaRequest(EDS, ("a",), ("b",), {"a": "1"}, is_first=True),
        DeltaRequest(CDS, nonce="1", error="b: is bad"),
    )
    seeds = tuple(xds.encode(each, node) for each in sotw)
    yield Target(name="wire.xds_serving", run=received(read, is_delta=False), errors=remote, seeds=seeds)
    seeds = tuple(xds.encode(each, node) for each in delta)
    yield Target(name="wire.xds_serving.delta", run=received(read_delta, is_delta=True), errors=remote, seeds=seeds)


def _assigned(value: object) -> None:
    """Whatever is taken can be balanced and checked."""
    if value is None:
        return
    membership = value.membership  # type: ignore[attr-defined]  # an Assignment, which only the extra knows
    assert len({each.address for each in membership.members}) == len(membership.members)
    assert not any(faults_of(each) for each in membership.members)
    assert membership.overprovisioning > 0
    assert all(0 <= each.share <= 1 for each in membership.drops)
