"""What `connect(clusters={…})` may be given: our own words, Envoy's, files; and what is refused, with its place, rule and hint."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from tests.upstream.kept import addresses, settings

from reachline.core.outlier_rules import ENVOY, NATIVE, Detector, Growth
from reachline.core.pick import TABLE
from reachline.discovery.naming import DnsSettings, Family
from reachline.errors import ConfigError
from reachline.members import Address
from reachline.model import Health, Locality
from reachline.talk.checked import GrpcCheck, HttpCheck, RedisCheck, TcpCheck
from reachline.upstream.reading import read

A, B, C = addresses(3)
NAN, INF = float("nan"), float("inf")
WEIGHT = "must be a whole number, 1 to 4294967295"


def refusal(document: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        read({"c": document}, place="connect()")
    return str(caught.value)


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({}, "clusters.c.targets: is needed by type: static"),
        ({"targets": A}, "clusters.c.targets: must be a list of addresses, or weights by address"),
        ({"targets": ["10.0.0.1"]}, "clusters.c.targets[0]: must name host and port; for example 10.0.0.1:443 (got '10.0.0.1')"),
        ({"targets": [{"address": A, "weight": NAN}]}, f"clusters.c.targets[0]: weight {WEIGHT}, not nan"),
        ({"targets": [{"address": A, "weight": 0}]}, f"clusters.c.targets[0]: weight {WEIGHT}, not 0"),
        ({"targets": [A, {"address": B, "weight": 2**32}]}, f"clusters.c.targets[1]: weight {WEIGHT}, not 4294967296"),
        ({"targets": {A: INF}}, f"""clusters.c.targets."{A}": weight {WEIGHT}, not inf"""),
        ({"targets": {A: 2**32 - 1, B: 1}}, "weights of one priority sum to 4294967295 at most, not 4294967296"),
        ({"targets": [{"address": A, "priority": 129}]}, "priority must be a whole number, 0 to 128, not 129"),
        ({"targets": [{"address": A, "wieght": 2}]}, "clusters.c.targets[0].wieght: unknown field; did you mean 'weight'?"),
        ({"targets": ["http://a:80", "https://b:443"]}, "clusters.c.targets[1]: must have the scheme of the others, http"),
        ({"type": "static", "targets": ["a.test:80"]}, "must be a numeric address; a name needs strict_dns or logical_dns"),
        ({"type": "logical_dns", "targets": ["a:1", "b:1"]}, "must be exactly one: the cluster is logical_dns"),
        ({"type": "dns", "targets": [A]}, "clusters.c.type: must be static or strict_dns or logical_dns or file or eds"),
        ({"type": "eds"}, "clusters.c.control_plane: is needed by type: eds; host:port"),
        ({"type": "file"}, "clusters.c.path: is needed"),
        ({"type": "file", "path": "x", "targets": [A]}, "does not go with type: file"),
        ({"targets": [A], "polcy": "random"}, "clusters.c.polcy: unknown field; did you mean 'policy'?"),
        ({"targets": [A], "policy": "maglevv"}, "did you mean maglev? (got 'maglevv')"),
        ({"targets": [A], "policy": {"choice_count": 1}}, "clusters.c.policy.choice_count: must be a whole number from 2"),
        ({"targets": [A], "policy": {"table_size": 65_536}}, "policy.table_size: must be a prime number; 65537 is one"),
        ({"targets": [A], "policy": {"minimum_ring_size": 9, "maximum_ring_size": 3}}, "a ring's least size (9)"),
        ({"targets": [A], "policy": {"slow_start_config": {}}}, "slow start's window is above 0 ms, not 0"),
        ({"targets": [A], "policy": {"active_request_bias": NAN}}, "a bias is 0 or more, not nan"),
        ({"targets": [A], "localities": {"r/a": -1}}, "clusters.c.localities.\"r/a\": must be a whole number from 0"),
        ({"targets": ["a:1"], "dns": {"refresh": NAN}}, "clusters.c.dns.refresh: must be from 0 s to ten years"),
        ({"targets": ["a:1"], "dns": {"refresh": 0}}, "clusters.c.dns.refresh: must be 0.001 s or more"),
        ({"targets": ["a:1"], "dns": {"jitter": "soon"}}, "clusters.c.dns.jitter: must be seconds, for example 0.25"),
        ({"targets": ["a:1"], "dns_resolvers": ["ns.test"]}, "must be numeric addresses, not 'ns.test'"),
        ({"targets": [A], "checks": "http"}, "clusters.c.checks: must be a block, for example"),
        ({"targets": [A], "checks": {}}, "clusters.c.checks: must have one of http_health_check"),
        ({"targets": [A], "checks": [{"http": {"path": "/"}}, {"tcp": {}}]}, "clusters.c.checks[1]: is a second check"),
        ({"targets": [A], "checks": {"http": {"path": "no"}}}, "clusters.c.checks.http.path: must begin with /"),
        ({"targets": [A], "checks": [{"http": {"path": "/"}, "interval": -1}]}, "clusters.c.checks[0].interval: must be a duration"),
        ({"targets": [A], "checks": {"redis": {"keyy": "k"}}}, "clusters.c.checks.redis.keyy: unknown field"),
        ({"targets": [A], "checks": {"tcp": {}, "tls": {"ca": "/nowhere.pem"}}}, "TLS cannot be set up"),
        ({"targets": [A], "outliers": {"interval": 0}}, "clusters.c.outliers.interval: must be above 0s"),
        ({"targets": [A], "outliers": {"growth": "cubic"}}, "clusters.c.outliers.growth: must be linear or exponential"),
        ({"targets": [A], "outliers": {"together": ["LATENCY", "SUCCESS_RATE"]}}, "names LATENCY, which is not asked for; set latency"),
        ({"targets": [A], "outliers": {"consecutive_5xxx": 5}}, "did you mean 'consecutive_5xx'?"),
        ({"targets": [A], "outliers": {"max_ejection_time": 1, "base_ejection_time": 2}}, "must not be below base_ejection_time"),
        (5, "connect(): clusters.c: must be a cluster's settings, or the path of an Envoy file (got int)"),
        ("/nowhere.json", "clusters.c: cannot be read: No such file or directory (got /nowhere.json)"),
        ({"lb_policy": "MAGLEVV"}, "connect(): clusters.c.lb_policy: must be ROUND_ROBIN or"),
        ({"type": "EDS", "eds_cluster_config": {"eds_config": {"ads": {}}}}, "is assigned by ADS, and no control_plane is named"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_place_rule_and_hint(document: Any, told: str) -> None:
    assert told in refusal(document)


def test_all_problems_of_all_clusters_are_told_together() -> None:
    with pytest.raises(ConfigError) as caught:
        read({"a": {"targets": [A], "policy": "x", "checks": 5}, "b": {"type": "file"}}, place="connect()")

    assert [each.path for each in caught.value.problems] == [
        "clusters.a.policy",
        "clusters.a.checks",
        "clusters.b.path",
    ]


def test_the_smallest_settings_have_the_defaults_of_the_reference() -> None:
    found = settings(targets=[A])

    assert (found.type, found.policy.name, found.check, found.outliers) == ("static", "least_request", None, None)
    assert settings(targets=["a.test:80", B]).type == "strict_dns"
    assert settings(targets=["a.test:80"]).dns == DnsSettings()
    assert settings(type="logical_dns", targets=["a.test:80"]).dns.empty_for == math.inf


def test_targets_are_addresses_urls_weights_or_blocks() -> None:
    block = {
        "address": "[2001:db8::1]:443", "weight": 3, "priority": 1, "locality": "r/z/s", "hostname": "a.test",
        "health_status": "DEGRADED", "metadata": {"stage": "canary"},
    }  # fmt: skip
    first, second = settings(targets=["https://10.0.0.1:8443", block]).membership.members

    assert (first.address, first.weight) == (Address("10.0.0.1", 8443), 1)
    assert second.address == Address("2001:db8::1", 443)
    assert (second.weight, second.priority, second.hostname, second.health) == (3, 1, "a.test", Health.DEGRADED)
    assert second.locality == Locality(region="r", zone="z", sub_zone="s")
    assert second.metadata == {"envoy.lb": {"stage": "canary"}}
    assert settings(targets=["https://10.0.0.1"]).scheme == "https"
    assert [each.weight for each in settings(targets={A: 5, B: 3}).membership.members] == [5, 3]


@pytest.mark.parametrize("name", TABLE)
def test_every_policy_can_be_named(name: str) -> None:
    assert (
        settings(targets=[A], policy=name).policy.name
        == settings(targets=[A], policy={"name": name}).policy.name
        == name
    )


def test_durations_are_seconds_or_texts() -> None:
    one = settings(
        targets=["a:1"], dns={"refresh": 2, "empty_for": math.inf, "family": "v4"}, checks={"tcp": {}, "interval": 0.25}
    )
    other = settings(
        targets=["a:1"],
        dns={"refresh": "2s", "empty_for": math.inf, "family": "v4"},
        checks={"tcp": {}, "interval": "0.25s"},
    )

    assert one == other
    assert (one.dns.refresh, one.dns.family) == (2.0, Family.V4)
    assert one.check is not None
    assert one.check.rules.interval_ms == one.check.rules.no_traffic_interval_ms == 250


def test_each_kind_of_check_is_read() -> None:
    http = {"path": "/healthz", "headers": {"x-a": "1"}, "expected_statuses": [200, 204]}
    kinds = [
        (HttpCheck(path="/healthz", headers=(("x-a", "1"),), expected_statuses=((200, 201), (204, 205))), {"http": http}),
        (TcpCheck(send=b"\x01", receive=(b"\x02",)), {"tcp": {"send": {"text": "01"}, "receive": [{"text": "02"}]}}),
        (GrpcCheck(service_name="pay"), {"grpc": {"service_name": "pay"}}),
        (RedisCheck(key="maintenance"), {"redis": {"key": "maintenance"}}),
    ]  # fmt: skip

    for asked, document in kinds:
        check = settings(targets=[A], checks=[document]).check
        assert check is not None
        assert check.asked == asked


def test_what_is_ours_of_checks_and_outliers_is_read_beside_envoys() -> None:
    checks = {
        "http": {"path": "/"},
        "count_all": True,
        "unhealthy_threshold": 5,
        "tls": {"server_name": "a.test", "verify": False},
    }
    outliers = {
        "consecutive_5xx": 7, "base_ejection_time": 2.5, "growth": "linear", "keep_removed": 5, "latency": True,
        "latency_minimum_gap": 0.02, "together": ["SUCCESS_RATE", "LATENCY"],
    }  # fmt: skip
    found = settings(targets=[A], checks=checks, outliers=outliers)

    assert found.check is not None
    assert (found.check.rules.count_all, found.check.rules.unhealthy_threshold) == (True, 5)
    assert found.check.asked.secure is not None
    assert (found.check.asked.secure.server_name, found.check.asked.secure.verify) == ("a.test", False)
    assert found.outliers == NATIVE._replace(
        consecutive_5xx=7,
        base_ejection_ms=2_500,
        max_ejection_percent=50,
        growth=Growth.LINEAR,
        keep_removed_ms=5_000,
        latency=True,
        latency_minimum_gap_us=20_000,
        together=(Detector.SUCCESS_RATE, Detector.LATENCY),
    )
    assert settings(targets=[A], outliers=True).outliers == NATIVE._replace(max_ejection_percent=50)


def envoy(**more: Any) -> dict[str, Any]:
    socket = {"socket_address": {"address": "10.0.0.1", "port_value": 80}}
    assignment = {"cluster_name": "c", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": socket}}]}]}
    return {"name": "c", "load_assignment": assignment, "outlier_detection": {}, **more}


def test_a_whole_envoy_cluster_has_envoys_defaults() -> None:
    found = read({"c": envoy()}, place="test")["c"]

    assert (found.type, found.policy.name, found.policy.hash_health) == ("static", "round_robin", False)
    assert found.outliers == ENVOY
    named = envoy(type="STRICT_DNS")
    del named["outlier_detection"]
    dns = read({"c": named}, place="test")["c"].dns
    assert (dns.respect_ttl, dns.empty_for, dns.stale_after, dns.ready_any) == (False, 0.0, math.inf, True)
    assert dns.family is Family.V6_FIRST


def test_a_cluster_of_a_bootstrap_is_found_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "envoy.json"
    manager = {"outlier_detection": {"event_log_path": "/tmp/outliers.log"}}
    path.write_text(json.dumps({"static_resources": {"clusters": [envoy()]}, "cluster_manager": manager}))

    assert read({"c": path}, place="test")["c"].outlier_log == "/tmp/outliers.log"
    assert read({"c": str(path)}, place="test")["c"].membership.members[0].address == Address("10.0.0.1", 80)
    with pytest.raises(ConfigError, match=r"clusters\.other: has no cluster of that name; it has c"):
        read({"other": path}, place="test")


def test_an_envoy_cluster_by_ads_takes_its_control_plane_from_beside_it() -> None:
    document = {"type": "EDS", "eds_cluster_config": {"service_name": "pay", "eds_config": {"ads": {}}}}

    found = read({"c": {**document, "control_plane": {"address": "127.0.0.1:18000", "delta": True}}}, place="test")["c"]

    assert found.control_plane is not None
    assert (found.type, found.service, found.control_plane.delta) == ("eds", "pay", True)
