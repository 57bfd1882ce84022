"""What is refused: by place, field, rule and hint; everything at once; and never a traceback."""

from __future__ import annotations

import copy
import importlib
import json
import sys
from contextlib import suppress
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.doors.envoy.documents import BOOTSTRAP, CHECK, assignment, balanced, checked, cluster, endpoint

from reachline.doors.envoy import read
from reachline.errors import ConfigError

TCP = {"tcp_health_check": {}}


def problems(document: Any) -> list[tuple[str, str]]:
    """(field, rule) of everything refused."""
    with pytest.raises(ConfigError) as refused:
        read(document)
    return [(each.path, each.rule) for each in refused.value.problems]


def named(name: str, **more: Any) -> dict[str, Any]:
    return cluster(type=name, load_assignment=assignment(endpoint(address="a.example")), **more)


@pytest.mark.parametrize(
    ("document", "path", "rule"),
    [
        (cluster(name=""), "name", "is needed"),
        (cluster(foo=1), "foo", "unknown field"),
        (cluster(type="SOMEHOW"), "type", "must be STATIC or"),
        (cluster(type="ORIGINAL_DST"), "type", "is not supported here"),
        (cluster(connect_timeout="0s"), "connect_timeout", "must be above 0s"),
        (cluster(connect_timeout="0.0001s"), "connect_timeout", "must be 0.001s or more"),
        (cluster(connect_timeout=1), "connect_timeout", "must be a duration"),
        (cluster(outlier_detection=[]), "outlier_detection", "must be a block"),
        (cluster(health_checks="x"), "health_checks[0]", "must be a block"),
        (cluster(ignore_health_on_host_removal="maybe"), "ignore_health_on_host_removal", "must be true or false"),
        # Endpoints.
        (cluster(load_assignment={"endpoints": []}), "load_assignment.cluster_name", "is needed"),
        (cluster(load_assignment=assignment({})), "endpoints[0].lb_endpoints[0]", "must have an endpoint"),
        (cluster(load_assignment=assignment({"endpoint": {}})), "lb_endpoints[0].endpoint", "must have an address"),
        (cluster(load_assignment=assignment(endpoint(address="a.example"))), "socket_address.address", "numeric address"),
        (cluster(load_assignment=assignment(endpoint(0))), "port_value", "from 1 to 65535"),
        (cluster(load_assignment=assignment(endpoint(70_000))), "port_value", "from 1 to 65535"),
        (cluster(load_assignment=assignment(endpoint(load_balancing_weight=0))), "load_balancing_weight", "from 1 to"),
        (cluster(load_assignment=assignment(endpoint(load_balancing_weight=1.5))), "load_balancing_weight", "whole number"),
        (cluster(load_assignment=assignment(*[endpoint(load_balancing_weight=2**32 - 1)] * 2)), "load_assignment", "sum to"),
        (cluster(load_assignment=assignment(endpoint(health_status="SICK"))), "health_status", "must be UNKNOWN or"),
        (cluster(load_assignment={"cluster_name": "c", "endpoints": [{"priority": 129}]}), "priority", "from 0 to 128"),
        (cluster(load_assignment=assignment(policy={"overprovisioning_factor": 0})), "overprovisioning_factor", "from 1"),
        (cluster(load_assignment=assignment(policy={"drop_overloads": [{"category": ""}]})), "category", "is needed"),
        (
            cluster(load_assignment=assignment(policy={"drop_overloads": [{"category": "a"}, {"category": "b"}]})),
            "drop_overloads", "must be one",
        ),
        (cluster(load_assignment=assignment({"endpoint": {"address": {"pipe": {"path": "/x"}}}})), "address.pipe", "not supported"),
        (
            cluster(load_assignment=assignment(endpoint(metadata={"filter_metadata": {"envoy.lb": 1}}))),
            "filter_metadata", "must be blocks",
        ),
        # Names and assignments.
        (cluster(type="LOGICAL_DNS", load_assignment=assignment()), "load_assignment", "exactly one endpoint"),
        (named("STRICT_DNS", dns_refresh_rate="0.001s"), "dns_refresh_rate", "must be above 0.001s"),
        (named("STRICT_DNS", dns_jitter="-1s"), "dns_jitter", "must not be negative"),
        (named("STRICT_DNS", dns_failure_refresh_rate={}), "base_interval", "is needed"),
        (
            named("STRICT_DNS", dns_failure_refresh_rate={"base_interval": "2s", "max_interval": "1s"}),
            "max_interval", "must not be below",
        ),
        (cluster(type="EDS", load_assignment=None), "eds_cluster_config", "is needed"),
        (cluster(type="EDS", load_assignment=None, eds_cluster_config={"eds_config": {}}), "eds_config", "ads or path"),
        (
            cluster(type="EDS", load_assignment=None, eds_cluster_config={"eds_config": {"api_config_source": {"a": 1}}}),
            "api_config_source", "is not supported here",
        ),
        (cluster(eds_cluster_config={}), "eds_cluster_config", "goes with type: EDS"),
        # Checks.
        (cluster(health_checks=[{**CHECK}]), "health_checks[0]", "must have one of"),
        (cluster(health_checks=[CHECK | TCP, CHECK | TCP]), "health_checks[1]", "second check"),
        (cluster(health_checks=[CHECK | TCP | {"http_health_check": {"path": "/"}}]), "tcp_health_check", "excludes"),
        (cluster(health_checks=[{k: v for k, v in CHECK.items() if k != "timeout"} | TCP]), "health_checks[0].timeout", "is needed"),
        (cluster(health_checks=[CHECK | TCP | {"healthy_threshold": 0}]), "healthy_threshold", "must be 1 or more"),
        (cluster(health_checks=[CHECK | TCP | {"unhealthy_edge_interval": "0s"}]), "unhealthy_edge_interval", "above 0s"),
        (cluster(health_checks=[CHECK | {"grpc_health_check": {}}]), "grpc_health_check", "speaks HTTP/2"),
        (cluster(health_checks=[CHECK | {"custom_health_check": {"name": "x"}}]), "custom_health_check", "only envoy.health"),
        (cluster(health_checks=[CHECK | {"tcp_health_check": {"send": {"text": "0g"}}}]), "send.text", "hex digits"),
        (cluster(health_checks=[CHECK | {"tcp_health_check": {"receive": [{}]}}]), "receive[0]", "must have text"),
        (checked(path="up"), "http_health_check.path", "must begin with /"),
        (checked(expected_statuses=[{"start": 200, "end": 200}]), "expected_statuses[0]", "half-open range"),
        (checked(method="CONNECT"), "method", "other than CONNECT"),
        (checked(send={"text": "01"}), "send", "goes only with"),
        (checked(codec_client_type="HTTP3"), "codec_client_type", "HTTP3 is not supported"),
        (checked(service_name_matcher={"exact": "x"}), "service_name_matcher", "is not supported here"),
        (checked(request_headers_to_add=[{"header": {"key": "x", "value": "%A%"}}]), "header.value", "plain text"),
        (checked() | {"transport_socket": {"name": "tls", "typed_config": {"@type": "x"}}}, "transport_socket", "together"),
        # Outlier detection.
        (cluster(outlier_detection={"max_ejection_percent": 101}), "max_ejection_percent", "from 0 to 100"),
        (cluster(outlier_detection={"interval": "0s"}), "interval", "above 0s"),
        (cluster(outlier_detection={"max_ejection_time": "10s"}), "max_ejection_time", "must not be below"),
        (cluster(outlier_detection={"monitors": [{"name": "x"}]}), "monitors", "is not supported here"),
        (cluster(outlier_detection={"detect_degraded_hosts": True}), "detect_degraded_hosts", "is not supported here"),
        # Balancing.
        (cluster(lb_policy="RING"), "lb_policy", "must be ROUND_ROBIN or"),
        (cluster(lb_policy="CLUSTER_PROVIDED"), "lb_policy", "is not supported here"),
        (cluster(lb_policy="LOAD_BALANCING_POLICY_CONFIG"), "lb_policy", "needs load_balancing_policy"),
        (cluster(lb_policy="MAGLEV", maglev_lb_config={"table_size": 8}), "table_size", "prime"),
        (cluster(lb_policy="RING_HASH", ring_hash_lb_config={"maximum_ring_size": 5}), "maximum_ring_size", "below minimum"),
        (cluster(maglev_lb_config={}, ring_hash_lb_config={}), "maglev_lb_config", "excludes"),
        (cluster(lb_policy="LEAST_REQUEST", least_request_lb_config={"choice_count": 1}), "choice_count", "from 2"),
        (cluster(common_lb_config={"healthy_panic_threshold": {"value": 101}}), "value", "from 0 to 100"),
        (cluster(common_lb_config={"consistent_hashing_lb_config": {"hash_balance_factor": 99}}), "balance_factor", "from 100"),
        (
            cluster(common_lb_config={"consistent_hashing_lb_config": {"use_hostname_for_hashing": True}}),
            "consistent_hashing_lb_config", "goes with type: STRICT_DNS",
        ),
        (
            cluster(common_lb_config={"zone_aware_lb_config": {"routing_enabled": {"value": 50}}}),
            "routing_enabled", "only 0 and 100",
        ),
        (balanced("wrr_locality.v3.WrrLocality"), "load_balancing_policy", "no policy that is supported"),
        (cluster(lb_subset_config={"subset_selectors": [{"keys": ["a"], "fallback_policy": "KEYS_SUBSET"}]}), "fallback_keys_subset", "must name some"),
        # Limits, and the rest.
        (cluster(circuit_breakers={"thresholds": [{"max_connection_pools": 1}]}), "max_connection_pools", "not supported"),
        (cluster(circuit_breakers={"per_host_thresholds": [{"max_requests": 1}]}), "max_requests", "of a single host"),
        (cluster(upstream_bind_config={"source_address": {}}), "upstream_bind_config", "is not supported here"),
        (cluster(cluster_type={"name": "envoy.clusters.aggregate"}), "cluster_type", "only envoy.cluster.dns"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_its_field(document: dict, path: str, rule: str) -> None:
    found = problems([document])

    assert len(found) == 1, found
    assert path in found[0][0]
    assert rule in found[0][1]


@pytest.mark.parametrize(
    ("document", "rule"),
    [
        ("", "is empty"),
        ("x", "must be a bootstrap"),
        ({"node": {}}, "holds no clusters"),
        ([cluster(), cluster()], "a second time"),
        ({"static_resources": {"clusters": []}, "cluster_manager": {"local_cluster_name": "x"}}, "names no cluster"),
        (
            {
                "static_resources": {"clusters": []},
                "layered_runtime": {"layers": [{"static_layer": {"outlier_detection.interval_ms": 1}}]},
            },
            "is not supported here",
        ),
        ("{", "is not YAML"),
    ],
)
def test_a_document_that_is_none_says_what_it_should_be(document: Any, rule: str) -> None:
    assert rule in problems(document)[0][1]


def test_everything_wrong_is_told_at_once_in_order_with_place_value_and_hint() -> None:
    text = BOOTSTRAP.replace("connect_timeout: 0.25s", "connect_timeout: 250ms").replace(
        " interval: 1s", " intervall: 1s", 1
    )

    with pytest.raises(ConfigError) as refused:
        read(text, name="envoy.yaml")

    first, second = refused.value.problems
    assert str(first) == (
        "envoy.yaml:13:22: static_resources.clusters[1].connect_timeout: must be a duration in seconds such as 0.25s or 10s; "
        "write 0.25s (got '250ms')"
    )
    assert (second.path, second.hint) == (
        "static_resources.clusters[1].outlier_detection.intervall", "did you mean 'interval'?"
    )  # fmt: skip


def test_each_item_that_is_no_block_is_told_however_many_there_are() -> None:
    found = problems([cluster(health_checks=["x"] * 300)])

    assert [each for each in found if each[1] == "must be a block of fields"] == [
        (f"[0].health_checks[{at}]", "must be a block of fields") for at in range(300)
    ]


def test_without_a_yaml_library_json_is_read_and_yaml_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reachline.doors.composer", None)

    assert list(read(json.dumps([cluster()])).clusters) == ["c"]
    with pytest.raises(ConfigError, match="is not JSON"):
        read("{")
    with pytest.raises(ConfigError, match="YAML needs the package PyYAML"):
        read(BOOTSTRAP)


WHOLE = yaml.safe_load(BOOTSTRAP)
FIELDS = sorted(
    {
        key
        for document in [WHOLE, checked(), balanced("ring_hash.v3.RingHash")]
        for key in json.dumps(document).split('"')[1::2]
    }
)
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.sampled_from(["1s", "0s", "-1s", "1e9s", *FIELDS])
)  # fmt: skip
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4), max_leaves=6
)  # fmt: skip


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (block, key) and (list, index) inside."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [here for key, inner in pairs for here in ((value, key), *places(inner))]


@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False), VALUES, st.integers(1, 3))
def test_no_document_ends_in_a_traceback(chance: Any, value: Any, changes: int) -> None:
    document = copy.deepcopy(WHOLE)
    for _ in range(changes):
        block, key = chance.choice(places(document))
        block[key] = copy.deepcopy(value)  # else it may be put into itself

    with suppress(ConfigError):
        read(document)


@pytest.mark.parametrize(
    ("message", "where"),
    [
        ("envoy.config.cluster.v3.cluster_pb2:Cluster", {}),
        ("envoy.config.cluster.v3.outlier_detection_pb2:OutlierDetection", "outlier_detection"),
        ("envoy.config.core.v3.health_check_pb2:HealthCheck", "health_checks"),
        ("envoy.config.core.v3.health_check_pb2:HealthCheck.HttpHealthCheck", "health_checks.http_health_check"),
        ("envoy.config.core.v3.health_check_pb2:HealthCheck.GrpcHealthCheck", "health_checks.grpc_health_check"),
        ("envoy.config.core.v3.health_check_pb2:HealthCheck.TcpHealthCheck", "health_checks.tcp_health_check"),
        ("envoy.config.cluster.v3.cluster_pb2:Cluster.CommonLbConfig", "common_lb_config"),
        ("envoy.config.cluster.v3.cluster_pb2:Cluster.RingHashLbConfig", "ring_hash_lb_config"),
        ("envoy.config.cluster.v3.cluster_pb2:Cluster.LeastRequestLbConfig", "least_request_lb_config"),
        ("envoy.config.cluster.v3.cluster_pb2:Cluster.LbSubsetConfig", "lb_subset_config"),
        ("envoy.config.cluster.v3.circuit_breaker_pb2:CircuitBreakers.Thresholds", "circuit_breakers.thresholds"),
        ("envoy.config.endpoint.v3.endpoint_pb2:ClusterLoadAssignment", "load_assignment"),
        ("envoy.config.endpoint.v3.endpoint_components_pb2:LocalityLbEndpoints", "load_assignment.endpoints"),
    ],
)  # fmt: skip
def test_every_field_that_envoy_has_is_known(message: str, where: str) -> None:
    """Read, left aside or refused by name; never called unknown."""
    module, _, name = message.partition(":")
    kind = importlib.import_module(module)
    for step in name.split("."):
        kind = getattr(kind, step)
    inner: Any = {field.name: None for field in kind.DESCRIPTOR.fields}
    for step in reversed(where.split(".") if where else []):
        inner = {step: [inner] if step in {"health_checks", "thresholds", "endpoints"} else inner}

    unknown = [each for each in problems([cluster() | inner | {"name": ""}]) if each[1] == "unknown field"]

    assert unknown == []
