"""Documents that Envoy takes and documents that it refuses: the door does the same, but for what it says it does not support."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.differential.real import refused
from tests.doors.envoy.documents import CHECK, assignment, balanced, cluster, endpoint, followed
from tests.wanted import shows

from reachline.doors.envoy import read
from reachline.errors import ConfigError

pytestmark = pytest.mark.real

TCP = {"tcp_health_check": {}}
HTTP2 = {
    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
}
REDIS = {
    "name": "x",
    "typed_config": {"@type": "type.googleapis.com/envoy.extensions.health_checkers.redis.v3.Redis", "key": "k"},
}


def groups(*each: dict[str, Any]) -> dict[str, Any]:
    return cluster(load_assignment={"cluster_name": "c", "endpoints": list(each)})


def tcp(**more: Any) -> dict[str, Any]:
    return cluster(health_checks=[CHECK | TCP | more])


def http(**more: Any) -> dict[str, Any]:
    return cluster(health_checks=[CHECK | {"http_health_check": {"path": "/"} | more}])


def ejecting(**more: Any) -> dict[str, Any]:
    return cluster(outlier_detection=more)


def named(kind: str, address: str = "localhost", **more: Any) -> dict[str, Any]:
    return cluster(type=kind, load_assignment=assignment(endpoint(address=address)), **more)


TAKEN = {
    "a cluster": cluster(),
    "camel case": cluster(connectTimeout="1s", lbPolicy="RANDOM"),
    "no endpoints": cluster(load_assignment=None),
    "an empty assignment": groups(),
    "a weight in quotes": cluster(load_assignment=assignment(endpoint(load_balancing_weight="3"))),
    "a weight as a float": cluster(load_assignment=assignment(endpoint(load_balancing_weight=3.0))),
    "IPv6": cluster(load_assignment=assignment(endpoint(address="::1"))),
    "an endpoint twice": cluster(load_assignment=assignment(endpoint(), endpoint())),
    "a gap of priorities": groups({"priority": 3, "lb_endpoints": [endpoint()]}),
    "priority 128": groups({"priority": 128, "lb_endpoints": [endpoint()]}),
    "a health by number": cluster(load_assignment=assignment(endpoint(health_status=5))),
    "a drained one": cluster(load_assignment=assignment(endpoint(health_status="DRAINING"))),
    "drops": cluster(load_assignment=assignment(policy={"drop_overloads": [{"category": "a", "drop_percentage": {"numerator": 5}}]})),
    "null": cluster() | {"outlier_detection": None},
    "names": named("STRICT_DNS"),
    "a name that is an address": named("STRICT_DNS", "127.0.0.1"),
    "one name": named("LOGICAL_DNS"),
    "names by the extension": followed(dns_refresh_rate="2s", respect_dns_ttl=True),
    "one name by the extension": followed(all_addresses_in_single_endpoint=True),
    "names and their waits": named("STRICT_DNS", dns_refresh_rate="0.002s", dns_jitter="0s", respect_dns_ttl=True, dns_failure_refresh_rate={"base_interval": "1s", "max_interval": "1s"}),
    "waits of names that there are not": cluster(dns_failure_refresh_rate={"base_interval": "2s", "max_interval": "1s"}),
    "outliers by default": ejecting(),
    "outliers never": ejecting(consecutive_5xx=0, success_rate_stdev_factor=0),
    "a base above the usual ceiling": ejecting(base_ejection_time="400s"),
    "ceiling is base": ejecting(base_ejection_time="10s", max_ejection_time="10s"),
    "a flag in quotes": ejecting(always_eject_one_host="true"),
    "a check": tcp(),
    "more jitter than interval": tcp(interval_jitter_percent=200, initial_jitter="9s"),
    "ranges of statuses": http(expected_statuses=[{"start": 100, "end": 600}], retriable_statuses=[{"start": 500, "end": 501}]),
    "HEAD": http(method="HEAD"),
    "POST with a body": http(method="POST", send={"text": "01"}),
    "binary": http(receive=[{"binary": "AAE="}]),
    "headers": http(request_headers_to_add=[{"header": {"key": "x", "value": "y"}}]),
    "HTTP/2 checks": http(codec_client_type="HTTP2"),
    "gRPC checks": cluster(health_checks=[CHECK | {"grpc_health_check": {}}], typed_extension_protocol_options=HTTP2),
    "Redis checks by any name": cluster(health_checks=[CHECK | {"custom_health_check": REDIS}]),
    "a policy by number": cluster(lb_policy=2),
    "a block of another policy": cluster(ring_hash_lb_config={"minimum_ring_size": 10, "maximum_ring_size": 5}),
    "a table of seven": cluster(lb_policy="MAGLEV", maglev_lb_config={"table_size": 7}),
    "panic": cluster(common_lb_config={"healthy_panic_threshold": {"value": 33.4}}),
    "slow start": cluster(round_robin_lb_config={"slow_start_config": {"slow_start_window": "10s"}}),
    "full scan": balanced("least_request.v3.LeastRequest", selection_method="FULL_SCAN"),
    "hostnames hashed by extension": balanced("ring_hash.v3.RingHash", consistent_hashing_lb_config={"use_hostname_for_hashing": True}),
    "hostnames hashed": named("STRICT_DNS", common_lb_config={"consistent_hashing_lb_config": {"use_hostname_for_hashing": True}}),
    "random by extension": balanced("random.v3.Random"),
    "limits": cluster(circuit_breakers={"thresholds": [{"max_connections": 1, "retry_budget": {"budget_percent": {"value": 20}}}, {"priority": "HIGH"}, {}]}),
    "connections of one endpoint": cluster(circuit_breakers={"per_host_thresholds": [{"max_connections": 1}]}),
    "subsets": cluster(lb_subset_config={"fallback_policy": "ANY_ENDPOINT", "subset_selectors": [{"keys": ["a"]}]}),
}  # fmt: skip
REFUSED = {
    "no name": cluster(name=""),
    "an unknown field": cluster(foo=1),
    "weight 0": cluster(load_assignment=assignment(endpoint(load_balancing_weight=0))),
    "a name where none is resolved": cluster(load_assignment=assignment(endpoint(address="localhost"))),
    "priority 129": groups({"priority": 129, "lb_endpoints": [endpoint()]}),
    "an assignment without a name": cluster(load_assignment={"endpoints": []}),
    "two kinds of drops": cluster(load_assignment=assignment(policy={"drop_overloads": [{"category": "a"}, {"category": "b"}]})),
    "a refresh of 1 ms by the extension": followed(dns_refresh_rate="0.001s"),
    "a type and a type": followed() | {"type": "STATIC"},
    "two logical names": cluster(type="LOGICAL_DNS", load_assignment=assignment(endpoint(address="localhost"), endpoint(81, "localhost"))),
    "a refresh of 1 ms": cluster(dns_refresh_rate="0.001s"),
    "failures shorter than their beginning": named("STRICT_DNS", dns_failure_refresh_rate={"base_interval": "2s", "max_interval": "1s"}),
    "EDS without a source": cluster(type="EDS", load_assignment=None),
    "a source without EDS": cluster(eds_cluster_config={"eds_config": {"ads": {}}}),
    "sweeps all the time": ejecting(interval="0s"),
    "more than all out": ejecting(max_ejection_percent=101),
    "a ceiling below the base": ejecting(max_ejection_time="10s"),
    "a check of nothing": cluster(health_checks=[CHECK]),
    "two checks": cluster(health_checks=[CHECK | TCP, CHECK | TCP]),
    "no path": http(path=""),
    "an empty range": http(expected_statuses=[{"start": 200, "end": 200}]),
    "CONNECT": http(method="CONNECT"),
    "GET with a body": http(send={"text": "01"}),
    "a host of two lines": http(host="a\nb"),
    "gRPC checks by HTTP/1": cluster(health_checks=[CHECK | {"grpc_health_check": {}}]),
    "a policy that another field holds": cluster(lb_policy="LOAD_BALANCING_POLICY_CONFIG"),
    "a ring's least above its most": cluster(lb_policy="RING_HASH", ring_hash_lb_config={"maximum_ring_size": 5}),
    "a table of eight": cluster(lb_policy="MAGLEV", maglev_lb_config={"table_size": 8}),
    "hostnames of addresses hashed": cluster(common_lb_config={"consistent_hashing_lb_config": {"use_hostname_for_hashing": True}}),
    "a table of nine by extension": balanced("maglev.v3.Maglev", table_size=9),
    "an empty list of policies": cluster(load_balancing_policy={"policies": []}),
    "subsets that fall back to themselves": cluster(lb_subset_config={"subset_selectors": [{"keys": ["a"], "fallback_policy": "KEYS_SUBSET", "fallback_keys_subset": ["a"]}]}),
}  # fmt: skip
STRICTER = {
    "port 0": cluster(load_assignment=assignment(endpoint(0))),
    "a threshold of 0": tcp(unhealthy_threshold=0),
    "less than a millisecond": ejecting(interval="0.0005s"),
    "a path that is none": http(path="up"),
    "an empty ring": cluster(lb_policy="RING_HASH", ring_hash_lb_config={"minimum_ring_size": 0}),
    "a health without a name": cluster(load_assignment=assignment(endpoint(health_status=99))),
    "a bias below zero": cluster(lb_policy="LEAST_REQUEST", least_request_lb_config={"active_request_bias": {"default_value": -1, "runtime_key": "b"}}),
    "weights of more than 32 bits": cluster(load_assignment=assignment(*[endpoint(port, load_balancing_weight=2**32 - 1) for port in (80, 81)])),
    "one field twice": cluster(connect_timeout="1s", connectTimeout="1s"),
}  # fmt: skip
"""A wanted difference: what Envoy takes, and what cannot work or can only be a slip."""


def document(*clusters: dict[str, Any]) -> dict[str, Any]:
    return {"static_resources": {"clusters": list(clusters)}}


def why_not(made: dict[str, Any]) -> str:
    """What the door says against a document; empty: nothing."""
    try:
        read(json.dumps(made))
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", [*TAKEN, *REFUSED, *STRICTER])
def test_the_door_takes_and_refuses_the_same(name: str) -> None:
    made = (TAKEN | REFUSED | STRICTER)[name]

    assert bool(why_not(document(made))) is (name not in TAKEN)


@shows("stricter")
def test_envoy_takes_all_that_we_take_and_what_we_are_stricter_about(envoy_binary: Path, tmp_path: Path) -> None:
    clusters = [each | {"name": f"c{number}"} for number, each in enumerate((TAKEN | STRICTER).values())]

    said = refused(envoy_binary, document(*clusters), tmp_path)

    assert said == ""


def test_envoy_refuses_what_we_refuse_one_by_one(envoy_binary: Path, tmp_path: Path) -> None:
    def asked(item: tuple[int, dict[str, Any]]) -> str:
        directory = tmp_path / str(item[0])
        directory.mkdir()
        return refused(envoy_binary, document(item[1]), directory)

    with ThreadPoolExecutor(2) as pool:
        said = dict(zip(REFUSED, pool.map(asked, enumerate(REFUSED.values())), strict=True))

    assert [name for name, reason in said.items() if not reason] == []


def test_what_was_read_is_what_envoy_shows_of_it(envoy_binary: Path, tmp_path: Path) -> None:
    """Weights, priorities, localities and health, by the document that the admin serves; `show` writes the same keys."""
    from tests.differential.real import bootstrap, running

    from reachline.doors.envoy import Host, show

    made = cluster(
        load_assignment={
            "cluster_name": "c",
            "endpoints": [
                {
                    "locality": {"region": "r", "zone": "z", "sub_zone": "s"},
                    "lb_endpoints": [endpoint(81, load_balancing_weight=3), endpoint(82, health_status="DEGRADED")],
                },
                {
                    "priority": 1,
                    "lb_endpoints": [endpoint(83, health_status="UNHEALTHY"), endpoint(84, health_status="TIMEOUT")],
                },
            ],
        }
    )
    found = read(json.dumps([made])).clusters["c"]
    hosts = [
        Host(each.address, health=each.health, weight=each.weight, priority=each.priority, locality=each.locality)
        for each in found.membership.members
    ]
    with running(envoy_binary, bootstrap([made], tmp_path), tmp_path) as envoy:
        theirs = envoy.admin("/clusters?format=json")["cluster_statuses"][0]

    own = show({"c": hosts})["cluster_statuses"][0]  # type: ignore[index]
    keys = {"address", "health_status", "weight", "priority", "locality"}
    assert own["host_statuses"] == [
        {key: value for key, value in host.items() if key in keys} for host in theirs["host_statuses"]
    ]  # fmt: skip
