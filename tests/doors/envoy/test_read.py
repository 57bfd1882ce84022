"""What an Envoy document becomes: values in our words, with Envoy's defaults."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import yaml
from tests.doors.envoy.documents import BOOTSTRAP, CHECK, assignment, balanced, checked, cluster, endpoint, followed

from reachline.core.outlier_rules import ENVOY
from reachline.core.pick.policy import Fallback, HashFunction, Selector, SlowStart
from reachline.doors.envoy import Budget, Cluster, Dns, Eds, Flag, Host, Settings, Thresholds, Type, read, rules, show
from reachline.errors import ConfigError
from reachline.members import Address, CheckAt, Drop, Place
from reachline.model import Health, Locality
from reachline.talk.checked import GrpcCheck, HttpCheck, RedisCheck, TcpCheck

HERE, THERE = Locality(region="r", zone="a", sub_zone="s"), Locality(zone="b")


@pytest.fixture(scope="module")
def settings() -> Settings:
    return read(BOOTSTRAP, name="envoy.yaml")


def one(document: dict) -> Cluster:
    return read([document]).clusters["c"]


def test_a_bootstrap_is_its_clusters_and_what_concerns_them(settings: Settings) -> None:
    assert list(settings.clusters) == ["edge", "payments", "names", "assigned", "watched"]
    assert settings.local_cluster == "edge"
    assert settings.outlier_log == "/var/log/outliers.log"
    assert settings.notices == ()


def test_endpoints_keep_weight_health_place_metadata_and_how_they_are_checked(settings: Settings) -> None:
    first, second, third = settings.clusters["payments"].membership.members

    assert (first.address, first.hostname, first.weight) == (Address("10.0.0.1", 443), "one.example", 7)
    assert (first.health, first.locality, first.priority) == (Health.DEGRADED, HERE, 0)
    assert first.metadata == {"envoy.lb": {"hash_key": "one"}}
    assert first.check == CheckAt(port=8080, hostname="up.example")
    assert (second.address, second.check.is_off, second.health) == (Address("::1", 443), True, Health.UNKNOWN)
    assert (third.priority, third.locality) == (1, THERE)


def test_an_assignment_says_of_the_cluster_as_a_whole(settings: Settings) -> None:
    membership = settings.clusters["payments"].membership

    assert membership.locality_weights == {Place(0, HERE): 3, Place(1, THERE): 1}
    assert membership.drops == (Drop("lb", 0.05),)
    assert (membership.overprovisioning, membership.weighted_priorities, membership.stale_after) == (1.2, True, 30.0)


def test_a_policy_has_its_own_fields_and_what_the_endpoints_say(settings: Settings) -> None:
    policy = rules(settings, "payments").policy

    assert (policy.name, policy.ring_least, policy.hash_function) == ("ring_hash", 2048, HashFunction.MURMUR_HASH_2)
    assert (policy.panic, policy.overprovision, policy.health_by_weight) == (33, 120, True)
    assert (policy.balance_factor, policy.hash_health) == (150, False)
    assert policy.localities == {HERE: 3, THERE: 1}


def test_hostnames_are_hashed_where_that_is_asked_for() -> None:
    named = {"common_lb_config": {"consistent_hashing_lb_config": {"use_hostname_for_hashing": True}}}

    assert one(cluster(type="STRICT_DNS", **named)).hash_hostnames
    assert one(
        balanced("maglev.v3.Maglev", consistent_hashing_lb_config={"use_hostname_for_hashing": True})
    ).hash_hostnames


def test_a_check_has_every_interval_and_what_is_asked(settings: Settings) -> None:
    check = settings.clusters["payments"].check

    assert check is not None
    assert check.rules[:4] == (500, 5_000, 3, 2)
    assert (check.rules.unhealthy_edge_interval_ms, check.rules.unhealthy_interval_ms) == (1_000, None)
    assert (check.rules.initial_jitter_ms, check.rules.interval_jitter_percent) == (100, 10)
    assert (check.rules.reuse_connection, check.rules.always_log_health_check_failures) == (False, True)
    assert check.event_log == "/var/log/checks.log"
    assert check.asked == HttpCheck(
        path="/up",
        host="checks.example",
        method="POST",
        send=b"hi",
        receive=(b"ok", b"!"),
        expected_statuses=((200, 204),),
        retriable_statuses=((500, 600),),
        headers=(("x-from", "checks"),),
    )


def test_outlier_detection_is_off_unless_its_block_stands_there(settings: Settings) -> None:
    assert settings.clusters["names"].outliers is None
    assert one(cluster(outlier_detection={})).outliers == ENVOY
    assert settings.clusters["payments"].outliers == ENVOY._replace(
        consecutive_5xx=3,
        interval_ms=1_000,
        base_ejection_ms=2_000,
        max_ejection_ms=60_000,
        max_ejection_jitter_ms=500,
        max_ejection_percent=50,
        split_external_local_origin_errors=True,
        successful_active_health_check_uneject_host=False,
        always_eject_one_host=True,
        success_rate_stdev_factor=1_500,
    )


def test_limits_are_of_usual_and_of_high_priority(settings: Settings) -> None:
    found = settings.clusters["payments"]

    assert found.thresholds == Thresholds(
        max_connections=10, max_pending_requests=11, max_requests=12, max_retries=13, max_connections_per_endpoint=4
    )
    assert found.high_thresholds == Thresholds(budget=Budget(share=0.25, least=5))


def test_names_are_followed_as_said(settings: Settings) -> None:
    found = settings.clusters["names"]

    assert found.type is Type.STRICT_DNS
    assert found.membership.members[0].address == Address("db.example", 5432)
    assert found.dns == Dns(
        refresh=2.0, respect_ttl=True, jitter=0.1, failure_base=1.0, failure_max=10.0, family="V4_PREFERRED",
        resolvers=(Address("127.0.0.1", 5353),),
    )  # fmt: skip


@pytest.mark.parametrize(("is_one", "kind"), [(False, Type.STRICT_DNS), (True, Type.LOGICAL_DNS)])
def test_names_by_the_extension_are_those_of_the_types(is_one: bool, kind: Type) -> None:
    found = one(followed(all_addresses_in_single_endpoint=is_one, dns_refresh_rate="2s", dns_lookup_family="V4_ONLY"))

    assert (found.type, found.dns) == (kind, Dns(refresh=2.0, family="V4_ONLY"))
    assert one(followed()).dns == Dns()


def test_least_request_has_choices_bias_and_slow_start(settings: Settings) -> None:
    policy = settings.clusters["names"].policy

    assert (policy.name, policy.choices, policy.bias) == ("least_request", 3, 0.5)
    assert policy.slow_start == SlowStart(window_ms=60_000, aggression=2.0, least=0.2)


def test_an_assignment_comes_by_ads_or_from_a_file(settings: Settings) -> None:
    assert settings.clusters["assigned"].eds == Eds(service="assigned-v2", initial_fetch_timeout=3.0)
    assert settings.clusters["watched"].eds == Eds(service="watched", path="/etc/eds.yaml")


@pytest.mark.parametrize(
    ("check", "asked"),
    [
        ({"tcp_health_check": {"send": {"text": "00"}, "receive": [{"text": "01"}]}}, TcpCheck(send=b"\0", receive=(b"\1",))),
        (
            {"custom_health_check": {"name": "r", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.health_checkers.redis.v3.Redis"}}},
            RedisCheck(),
        ),
        ({"grpc_health_check": {"service_name": "s", "authority": "a"}}, GrpcCheck(service_name="s", authority="a")),
    ],
)  # fmt: skip
def test_every_kind_of_check_is_read(check: dict, asked: object) -> None:
    found = one(cluster(health_checks=[CHECK | check], http2_protocol_options={})).check

    assert found is not None
    assert found.asked == asked


@pytest.mark.parametrize(
    ("kind", "fields", "name"),
    [
        ("round_robin.v3.RoundRobin", {}, "round_robin"),
        ("random.v3.Random", {}, "random"),
        ("maglev.v3.Maglev", {"table_size": 7}, "maglev"),
        ("ring_hash.v3.RingHash", {"hash_function": "MURMUR_HASH_2"}, "ring_hash"),
        ("least_request.v3.LeastRequest", {"selection_method": "FULL_SCAN"}, "least_request"),
    ],
)
def test_an_extension_is_the_policy_whatever_lb_policy_says(kind: str, fields: dict, name: str) -> None:
    policy = one(balanced(kind, **fields) | {"lb_policy": "RING_HASH"}).policy

    assert policy.name == name
    assert policy.full_scan is (name == "least_request")


def test_the_first_extension_that_is_known_counts() -> None:
    known = balanced("maglev.v3.Maglev")["load_balancing_policy"]["policies"]
    unknown = balanced("of.the.Future")["load_balancing_policy"]["policies"]

    assert one(cluster(load_balancing_policy={"policies": unknown + known})).policy.name == "maglev"


def test_subsets_are_selectors_with_fallbacks() -> None:
    selector = {"keys": ["a", "b"], "fallback_policy": "KEYS_SUBSET", "fallback_keys_subset": ["a"]}
    said = {"fallback_policy": "DEFAULT_SUBSET", "default_subset": {"a": "1"}, "subset_selectors": [selector]}

    subsets = one(cluster(lb_subset_config=said)).subsets

    assert subsets is not None
    assert (subsets.fallback, subsets.default) == (Fallback.DEFAULT, {"a": "1"})
    assert subsets.selectors == (
        Selector(keys=frozenset("ab"), fallback=Fallback.KEYS, fallback_keys=frozenset("a")),
    )  # fmt: skip


def test_zone_aware_routing_needs_to_know_the_callers() -> None:
    settings = read([cluster(common_lb_config={"zone_aware_lb_config": {"min_cluster_size": 3}})])
    off = read([cluster(common_lb_config={"zone_aware_lb_config": {"routing_enabled": {"value": 0}}})])

    with_callers = rules(settings, "c", home=HERE, callers={HERE: 2, THERE: 1}).policy.zoning

    assert rules(settings, "c").policy.zoning is None
    assert rules(off, "c", home=HERE, callers={HERE: 2, THERE: 1}).policy.zoning is None
    assert with_callers is not None
    assert (with_callers.cluster_least, with_callers.home) == (3, HERE)


def test_the_same_document_is_read_alike_as_yaml_json_with_tabs_camel_case_and_values() -> None:
    values = yaml.safe_load(BOOTSTRAP.replace("key: off", "key: 'off'"))
    camel = json.dumps(values).replace("static_resources", "staticResources").replace("lb_policy", "lbPolicy")

    expected = read(BOOTSTRAP)

    assert read(values).clusters == expected.clusters
    assert read(json.dumps(values, indent="\t")).clusters == expected.clusters
    assert read(camel).clusters == expected.clusters


def test_clusters_alone_are_a_document() -> None:
    assert read([cluster()]) == read({"clusters": [cluster()]})


def test_numbers_in_quotes_and_numbered_words_are_as_protobuf_has_them() -> None:
    found = one(cluster(lb_policy=2, load_assignment=assignment(endpoint(load_balancing_weight="3", health_status=5))))

    assert found.policy.name == "ring_hash"
    assert (found.membership.members[0].weight, found.membership.members[0].health) == (3, Health.DEGRADED)


def test_null_is_as_if_the_field_were_not_there() -> None:
    assert one(cluster() | {"outlier_detection": None}) == one(cluster())


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (cluster(load_assignment=assignment(endpoint(), endpoint())), "10.0.0.1:80 stands at 0 and at 1"),
        (cluster(load_assignment=None), "has no load_assignment"),
        (cluster(circuit_breakers={"thresholds": [{}, {}]}), "the second of priority DEFAULT"),
        (
            cluster(transport_socket={"name": "tls", "typed_config": {"@type": "UpstreamTlsContext"}}),
            "the client that makes the calls speaks TLS",
        ),
    ],
)
def test_what_is_odd_is_noticed_with_its_place(document: dict, said: str) -> None:
    notices = read(json.dumps([document]), name="envoy.json").notices

    assert said in str(notices)
    assert notices[0].place.startswith("envoy.json:1:")


def test_a_cluster_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(ConfigError, match="names no cluster of the document; known: c"):
        rules(read([cluster()]), "d")


def test_a_check_of_an_http_cluster_goes_with_its_defaults() -> None:
    found = one(checked()).check

    assert found is not None
    assert found.rules.no_traffic_interval_ms == 60_000
    assert found.asked == HttpCheck(path="/up")


def test_states_are_shown_as_envoys_admin_shows_them() -> None:
    out = Host(
        Address("10.0.0.1", 80), frozenset({Flag.EJECTED, Flag.FAILED_CHECK}), priority=1, locality=HERE, rate=50.0,
        hostname="one.example", weight=3,
    )  # fmt: skip

    shown = show({"c": [out, Host(Address("10.0.0.2", 80), health=Health.UNKNOWN)]})

    first, second = shown["cluster_statuses"][0]["host_statuses"]  # type: ignore[index]
    assert first == {
        "address": {"socket_address": {"address": "10.0.0.1", "port_value": 80}},
        "health_status": {
            "failed_active_health_check": True, "failed_outlier_check": True, "eds_health_status": "HEALTHY",
        },
        "weight": 3, "priority": 1, "hostname": "one.example", "success_rate": {"value": 50.0},
        "locality": {"region": "r", "zone": "a", "sub_zone": "s"},
    }  # fmt: skip
    assert second["health_status"] == {"eds_health_status": "HEALTHY"}
    assert second["locality"] == {}


def test_reading_plain_values_needs_neither_pydantic_nor_yaml() -> None:
    code = (
        "import json, sys; from reachline.doors.envoy import read; read(json.loads(sys.argv[1]));"
        "print(sorted({'pydantic', 'yaml', 'h2', 'grpc', 'google'} & sys.modules.keys()))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps([checked()])], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "[]"
