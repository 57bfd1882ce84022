"""xDS messages as values: endpoints as control planes and files name them, and every reason against them."""

from __future__ import annotations

import random
from typing import Any

import pytest

pytest.importorskip("envoy.service.discovery.v3.discovery_pb2", reason="xds-protos is not installed")

from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf import json_format

from reachline.errors import RemoteProtocolError
from reachline.members import Address, CheckAt, Place
from reachline.model import Health, Locality
from reachline.wire import xds
from reachline.wire.ads import EDS, DeltaRequest, Parcel, Request

NODE = xds.Node(id="n")


def endpoint(host="10.0.0.1", port=80, **fields) -> dict[str, Any]:
    return {"endpoint": {"address": {"socket_address": {"address": host, "port_value": port}}}} | fields


def checked_at(**config) -> dict[str, Any]:
    return {"endpoint": endpoint()["endpoint"] | {"health_check_config": config}}


def group(*endpoints, **fields) -> dict[str, Any]:
    return {"lb_endpoints": list(endpoints)} | fields


def parsed(*groups, name="a", **policy):
    document = {"cluster_name": name, "endpoints": list(groups), "policy": policy}
    message = json_format.ParseDict(document, endpoint_pb2.ClusterLoadAssignment())
    return xds.assignment(Parcel(EDS, message.SerializeToString()))


def test_an_assignment_is_read_with_places_in_order_and_defaults() -> None:
    zone = {"region": "r", "zone": "z", "sub_zone": "s"}
    found = parsed(
        group(endpoint(), priority=1),
        group(endpoint("fd00::1", 81, health_status="TIMEOUT"), locality=zone, load_balancing_weight=9),
    )

    first, second = found.value.membership.members
    assert (found.name, found.error) == ("a", "")
    assert (first.address, first.weight, first.priority, first.health) == (
        Address("10.0.0.1", 80),
        1,
        1,
        Health.UNKNOWN,
    )
    assert (str(second.address), second.health) == ("[fd00::1]:81", Health.TIMEOUT)
    assert found.value.membership.locality_weights == {Place(0, Locality(region="r", zone="z", sub_zone="s")): 9}
    assert (found.value.membership.overprovisioning, found.value.membership.stale_after) == (1.4, None)


def test_what_differs_for_checks_of_an_endpoint_is_read() -> None:
    each = endpoint()
    each["endpoint"] |= {
        "hostname": "h",
        "health_check_config": {"port_value": 9, "hostname": "c", "disable_active_health_check": True},
    }

    (member,) = parsed(group(each)).value.membership.members

    assert (member.hostname, member.check) == ("h", CheckAt("", 9, "c", is_off=True))


@pytest.mark.parametrize(
    ("denominator", "numerator", "share"),
    [("HUNDRED", 50, 0.5), ("TEN_THOUSAND", 50, 0.005), ("MILLION", 50, 0.00005), ("HUNDRED", 300, 1.0)],
)
def test_a_drop_is_a_share_of_its_denominator_and_never_more_than_all(denominator, numerator, share) -> None:
    percent = {"numerator": numerator, "denominator": denominator}

    found = parsed(drop_overloads=[{"category": "t", "drop_percentage": percent}])

    assert found.value.membership.drops == (("t", share),)


@pytest.mark.parametrize(
    ("groups", "policy", "error"),
    [
        ([group(endpoint("a.test"))], {}, "endpoints[0].lb_endpoints[0].address must be a numeric address; a name needs strict_dns or logical_dns (got 'a.test')"),
        ([group(endpoint(port=0))], {}, "endpoints[0].lb_endpoints[0].port must be a whole number, 1 to 65535 (got 0)"),
        ([group(endpoint(load_balancing_weight=0))], {}, "endpoints[0].lb_endpoints[0].weight must be a whole number, 1 to 4294967295 (got 0)"),
        ([group(endpoint(), priority=129)], {}, "endpoints[0].lb_endpoints[0].priority must be a whole number, 0 to 128 (got 129)"),
        ([group(checked_at(port_value=70_000))], {}, "endpoints[0].lb_endpoints[0].check.port must be a whole number, 0 to 65535 (got 70000)"),
        ([group(checked_at(address={"socket_address": {"address": "a.test"}}))], {}, "endpoints[0].lb_endpoints[0].check.host must be a numeric address (got 'a.test')"),
        ([group(checked_at(hostname="a\r\nx: y"))], {}, "endpoints[0].lb_endpoints[0].check.hostname must be printable (got 'a\\r\\nx: y')"),
        ([group({"endpoint": {"address": {"pipe": {"path": "/x"}}}})], {}, "endpoints[0].lb_endpoints[0]: must have an endpoint.address.socket_address"),
        ([group({"endpoint_name": "x"})], {}, "endpoints[0].lb_endpoints[0]: must have an endpoint.address.socket_address"),
        ([group(*[endpoint(f"10.0.0.{at}", load_balancing_weight=2**31) for at in (1, 2)])], {}, "endpoints[0]: weights sum to 4294967296, at most 4294967295"),
        ([group(load_balancing_weight=2**31), group(load_balancing_weight=2**31)], {}, "weights of the localities of priority 0 sum to 4294967296, at most 4294967295"),
        ([{"leds_cluster_locality_config": {}}], {}, "endpoints[0]: endpoints by LEDS are not read"),
        ([], {"endpoint_stale_after": "0s"}, "policy.endpoint_stale_after must be above 0"),
        ([], {"overprovisioning_factor": 0}, "policy.overprovisioning_factor must be above 0"),
        ([], {"drop_overloads": [{}]}, "policy.drop_overloads[0].category must not be empty"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_its_place(groups, policy, error) -> None:
    assert parsed(*groups, **policy) == ("a", None, error)


def test_all_that_is_wrong_is_said_at_once_and_a_name_is_needed() -> None:
    assert parsed(group(endpoint("x", 0)), name="").error.count("; ") == 3


def test_metadata_that_json_cannot_hold_is_refused() -> None:
    message = endpoint_pb2.ClusterLoadAssignment(cluster_name="a")
    each = message.endpoints.add().lb_endpoints.add()
    each.endpoint.address.socket_address.address, each.endpoint.address.socket_address.port_value = "10.0.0.1", 80
    each.metadata.filter_metadata["envoy.lb"]["v"] = float("nan")

    assert "lb_endpoints[0].metadata: " in xds.assignment(Parcel(EDS, message.SerializeToString())).error


def test_whatever_bytes_come_they_are_read_or_refused() -> None:
    rng = random.Random(5)
    document = {
        "cluster_name": "a",
        "endpoints": [group(endpoint(metadata={"filter_metadata": {"f": {"x": [1, {"y": None}]}}}))],
    }
    seed = json_format.ParseDict(document, endpoint_pb2.ClusterLoadAssignment()).SerializeToString()
    taken = 0

    for _ in range(3_000):
        data = bytearray(seed)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        found = xds.assignment(Parcel(EDS, bytes(data)))
        assert bool(found.error) is (found.value is None)
        taken += not found.error

    assert 0 < taken < 3_000


def test_requests_carry_the_node_once_and_errors_with_a_code() -> None:
    first = discovery_pb2.DiscoveryRequest.FromString(xds.encode(Request(EDS, ("a",), is_first=True), NODE))
    nack = discovery_pb2.DiscoveryRequest.FromString(xds.encode(Request(EDS, ("a",), "1", "n", "bad"), NODE))

    assert (first.node.id, "xds.config.supports-resource-ttl" in first.node.client_features) == ("n", True)
    assert not nack.HasField("node")
    assert (nack.version_info, nack.response_nonce, nack.error_detail.code, nack.error_detail.message) == (
        "1",
        "n",
        3,
        "bad",
    )


def test_a_delta_request_carries_versions_and_names() -> None:
    request = DeltaRequest(EDS, ("a",), ("b",), {"a": "1"}, "n")

    message = discovery_pb2.DeltaDiscoveryRequest.FromString(xds.encode(request, NODE))

    assert (message.resource_names_subscribe, message.resource_names_unsubscribe) == (["a"], ["b"])
    assert (dict(message.initial_resource_versions), message.response_nonce) == ({"a": "1"}, "n")


def test_an_envelope_in_a_sotw_answer_tells_name_version_and_time_to_live() -> None:
    envelope = discovery_pb2.Resource(name="a", version="3")
    envelope.ttl.FromMilliseconds(1_500)
    beat = discovery_pb2.DiscoveryResponse(version_info="9", type_url=EDS, nonce="n")
    beat.resources.add().Pack(envelope)
    envelope.resource.Pack(endpoint_pb2.ClusterLoadAssignment(cluster_name="a"))
    beat.resources.add().Pack(envelope)

    first, second = xds.decode(beat.SerializeToString()).parcels

    assert (first.is_heartbeat, first.name, first.version, first.ttl) == (True, "a", "3", 1.5)
    assert (second.is_heartbeat, second.type_url, xds.assignment(second).name) == (False, EDS, "a")


@pytest.mark.parametrize("read", [xds.decode, xds.decode_delta])
def test_bytes_that_are_no_response_are_the_peers_fault(read) -> None:
    with pytest.raises(RemoteProtocolError, match="DiscoveryResponse cannot be read"):
        read(b"\x0a\xff")
