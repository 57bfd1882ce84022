"""What data planes are told of clusters: the published weights, as each kind understands them, and nothing made anew in vain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as manager_pb2
from envoy.extensions.filters.network.tcp_proxy.v3 import tcp_proxy_pb2
from envoy.extensions.transport_sockets.tls.v3 import tls_pb2
from hypothesis import given
from hypothesis import strategies as st

from reachline.center.board import Cluster
from reachline.center.xds.chain import Chain, Form, faults, forms
from reachline.center.xds.layout import Host
from reachline.center.xds.rendering import KEPT, Rendering, Surveys
from reachline.center.xds.resources import Kind, Resources
from reachline.core.steer import Steer
from reachline.doors import reach
from reachline.members import Address, are_ipv4, is_numeric
from reachline.model import Gate, Health, LineId, Scope, Snapshot, Standing, Version
from reachline.wire.ads import CDS, EDS, LDS, RDS, Parcel
from reachline.wire.xds import assignment
from reachline.wire.xds_assigned import FINE, WEIGHTS_MOST, Assignment, Spot, Told, said
from reachline.wire.xds_rendering import Entrance, Route, Upstream

THREE: Final = """
clusters:
  shop:
    lines: {a: "http://10.0.0.1:80", b: "http://10.0.0.2:80", c: "http://10.0.0.3:80"}
    listen: 127.0.0.1:9000
"""
MESSAGES: Final[Mapping[str, Any]] = {
    CDS: cluster_pb2.Cluster, EDS: endpoint_pb2.ClusterLoadAssignment, LDS: listener_pb2.Listener,
    RDS: route_pb2.RouteConfiguration,
}  # fmt: skip


class World:
    """A document, what is published of its clusters, and what was resolved."""

    def __init__(self, text: str) -> None:
        self.addresses: dict[Host, tuple[str, ...]] = {}
        self.surveys = Surveys()
        self.read(text)

    def read(self, text: str) -> None:
        document = reach.read(text, name="d.yaml", environ={})
        self.forms = forms(document)
        self.clusters = {name: self._cluster(document, name) for name in document.clusters}

    def _cluster(self, document: Any, name: str) -> Cluster:
        lines = {line.id: line for line in reach.lines(document, name)}
        standings = tuple(standing(line, base) for line, base in ((each, lines[each].base) for each in lines))
        snapshot = Snapshot(scope=Scope(cluster=name), version=Version(1, 1), issued_ms=0, standings=standings)
        rules = reach.rules(document, name)
        return Cluster(scope=Scope(cluster=name), lines=lines, rules=rules, snapshot=snapshot)

    def stands(self, line: str, weight: int, health: Health = Health.HEALTHY, gate: Gate = Gate.CLOSED) -> None:
        """One line stands otherwise; all other standings are shared with the last snapshot."""
        name = line.partition("/")[0]
        known = self.clusters[name]
        new = standing(line, weight, health, gate)
        standings = tuple(new if each.line == line else each for each in known.snapshot.standings)
        self.clusters[name] = replace(known, snapshot=replace(known.snapshot, standings=standings))

    def told(self, rendering: Rendering) -> Resources:
        return rendering.update(self.clusters, self.forms, self.surveys, dict(self.addresses))


def standing(line: str, weight: int, health: Health = Health.HEALTHY, gate: Gate = Gate.CLOSED) -> Standing:
    return Standing(
        line=LineId(line), health=health, gate=gate, step=0, weight=weight, raw_milli=1_000 * weight, score=weight,
        reason="", window=0, since_ms=0,
    )  # fmt: skip


def message(resources: Resources, type_url: str, name: str) -> Any:
    found = resources.get(type_url, name)
    assert found is not None, (type_url, name, list(resources.shelf(type_url).by_name))
    return MESSAGES[type_url].FromString(found.body)


def seen(resources: Resources, cluster: str = "shop") -> dict[str, tuple[int, Health]]:
    """Weight and health of each locality."""
    found = message(resources, EDS, cluster)
    return {
        each.locality.sub_zone: (each.load_balancing_weight.value, Health(each.lb_endpoints[0].health_status))
        for each in found.endpoints
    }


# Shares.


def test_each_line_is_a_locality_with_the_weight_that_was_published() -> None:
    world = World(THREE)
    world.stands("shop/b", 30)

    found = world.told(Rendering(Kind.ENVOY))

    assert seen(found) == {"a": (100, Health.HEALTHY), "b": (30, Health.HEALTHY), "c": (100, Health.HEALTHY)}


@pytest.mark.parametrize("gate", [Gate.HALF_OPEN, Gate.RAMP])
@pytest.mark.parametrize("health", [Health.UNHEALTHY, Health.DEGRADED, Health.HEALTHY])
def test_trials_and_ramps_get_their_share_as_published(gate: Gate, health: Health) -> None:
    world = World(THREE)
    world.stands("shop/a", 5, health, gate)

    assert seen(world.told(Rendering(Kind.ENVOY)))["a"] == (5, Health.HEALTHY)


@pytest.mark.parametrize(
    ("health", "said"),
    [(Health.UNHEALTHY, Health.UNHEALTHY), (Health.DRAINING, Health.DRAINING), (Health.HEALTHY, Health.UNHEALTHY)],
)
def test_who_gets_nothing_stays_known_and_is_unhealthy(health: Health, said: Health) -> None:
    world = World(THREE)
    world.stands("shop/a", 0, health, Gate.OPEN)

    assert seen(world.told(Rendering(Kind.ENVOY)))["a"] == (1, said)


def test_degraded_is_told_to_who_gives_it_its_weight_all_the_same() -> None:
    world = World(THREE)
    world.stands("shop/a", 40, Health.DEGRADED)

    assert seen(world.told(Rendering(Kind.ENVOY)))["a"] == (40, Health.DEGRADED)
    assert seen(world.told(Rendering(Kind.GRPC)))["a"] == (40, Health.HEALTHY)


def test_a_degraded_share_that_whole_percent_would_spoil_is_told_as_healthy() -> None:
    world = World(THREE)
    rendering = Rendering(Kind.ENVOY)
    world.stands("shop/a", 3, Health.DEGRADED)
    assert seen(world.told(rendering))["a"] == (3, Health.HEALTHY)

    world.stands("shop/a", 40, Health.DEGRADED)
    assert seen(world.told(rendering))["a"] == (40, Health.DEGRADED)

    world.stands("shop/a", 3, Health.DEGRADED)
    assert seen(world.told(rendering))["a"] == (3, Health.HEALTHY)


def test_degraded_lines_keep_their_share_in_an_envoy_because_priorities_are_split_by_weight() -> None:
    policy = message(World(THREE).told(Rendering(Kind.ENVOY)), EDS, "shop").policy

    assert policy.weighted_priority_health
    assert policy.overprovisioning_factor.value == 100


def test_regions_get_the_shares_of_the_plan_and_what_it_refuses_is_dropped() -> None:
    world = World(
        "clusters: {shop: {lines: {a: {to: 'tcp://10.0.0.1:80', region: r1}, b: {to: 'tcp://10.0.0.2:80', region: r2}}}}"
    )
    known = world.clusters["shop"]
    world.clusters["shop"] = replace(known, steer=Steer(1_000, (("r1", 200), ("r2", 600)), "priority.shed"))

    found = world.told(Rendering(Kind.ENVOY))

    weights = seen(found)
    assert weights["b"][0] == pytest.approx(3 * weights["a"][0], rel=1e-6)
    (drop,) = message(found, EDS, "shop").policy.drop_overloads
    assert (drop.category, drop.drop_percentage.numerator) == ("priority.shed", 200_000)


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=30))
def test_weights_never_sum_to_more_than_xds_allows_and_none_is_rounded_away(weights: list[int]) -> None:
    lines = ", ".join(f"l{at}: 'tcp://10.0.0.{at + 1}:80'" for at in range(len(weights)))
    world = World(f"clusters: {{shop: {{lines: {{{lines}}}}}}}")
    for at, weight in enumerate(weights):
        world.stands(f"shop/l{at}", weight)

    found = world.told(Rendering(Kind.ENVOY))

    told = seen(found)
    assert [told[f"l{at}"][1] is Health.HEALTHY for at in range(len(weights))] == [weight > 0 for weight in weights]
    assert sum(weight for weight, _ in told.values()) <= WEIGHTS_MOST
    body = found.get(EDS, "shop")
    assert body is not None
    assert assignment(Parcel(EDS, body.body, "shop")).error == ""


# Who is told of which lines.


ZONES: Final = """
clusters:
  shop:
    lines:
      a: {to: "tcp://10.0.0.1:80", from: [az1, az2]}
      b: {to: "tcp://10.0.0.2:80", from: [az1]}
      c: "tcp://10.0.0.3:80"
agents: {one: {locality: {zone: az1}}, two: {locality: {zone: az2}}}
"""


def test_clients_of_a_zone_are_told_what_is_seen_from_there() -> None:
    world = World(ZONES)
    world.stands("shop/a@az1", 20)

    assert {name: weight for name, (weight, _) in seen(world.told(Rendering(Kind.ENVOY, "az1"))).items()} == {
        "a@az1": 20, "b@az1": 100, "c": 100,
    }  # fmt: skip
    assert list(seen(world.told(Rendering(Kind.ENVOY, "az2")))) == ["a@az2", "c"]


def test_clients_of_a_zone_without_lines_are_told_all_and_one_endpoint_once() -> None:
    world = World(ZONES.replace('c: "tcp://10.0.0.3:80"', ""))
    world.stands("shop/a@az1", 20)

    assert seen(world.told(Rendering(Kind.GRPC, "az9"))) == {
        "a@az1": (120, Health.HEALTHY), "b@az1": (100, Health.HEALTHY),
    }  # fmt: skip


def test_lines_by_way_of_a_proxy_or_an_own_source_are_left_out_and_said() -> None:
    world = World(
        "clusters: {shop: {lines: {a: 'tcp://10.0.0.1:80', b: {to: 'tcp://10.0.0.1:80', via: 'socks5://10.0.0.9:1'},"
        " c: {to: 'tcp://10.0.0.1:80', source: 10.0.0.7}, d: 'icmp://10.0.0.1'}}}"
    )
    rendering = Rendering(Kind.ENVOY)

    assert list(seen(world.told(rendering))) == ["a"]
    said = "\n".join(rendering.notes()["shop"])
    assert "shop/b is not told: goes by way of a proxy" in said
    assert "shop/c is not told: leaves by an address" in said
    assert "shop/d is not told: answers echo requests" in said


def test_a_cluster_without_any_line_for_data_planes_is_not_offered() -> None:
    found = World("clusters: {shop: {lines: ['icmp://10.0.0.1']}}").told(Rendering(Kind.GRPC))

    assert not any(shelf.by_name for shelf in found.shelves.values())


# Names.


NAMED: Final = "clusters: {shop: {lines: {a: 'http://a.example', b: 'http://10.0.0.2'}, listen: '127.0.0.1:9000'}}"


def test_a_line_with_a_name_has_all_its_addresses_in_one_locality_and_they_share_its_weight() -> None:
    world = World(NAMED)
    world.addresses[Host("a.example")] = ("10.0.1.1", "10.0.1.2", "10.0.1.3")

    a, _ = message(world.told(Rendering(Kind.ENVOY)), EDS, "shop").endpoints

    assert [each.endpoint.address.socket_address.address for each in a.lb_endpoints] == [
        "10.0.1.1",
        "10.0.1.2",
        "10.0.1.3",
    ]
    assert {each.endpoint.hostname for each in a.lb_endpoints} == {"a.example"}
    assert sum(each.load_balancing_weight.value for each in a.lb_endpoints) == FINE * a.load_balancing_weight.value


def test_a_line_with_a_name_gets_its_new_weight_too() -> None:
    world, rendering = World(NAMED), Rendering(Kind.ENVOY)
    world.addresses[Host("a.example")] = ("10.0.1.1", "10.0.1.2")
    world.told(rendering)

    world.stands("shop/a", 30)

    assert seen(world.told(rendering)) == {"a": (30, Health.HEALTHY), "b": (100, Health.HEALTHY)}


def test_a_name_without_an_address_is_left_out_until_it_has_one() -> None:
    world = World(NAMED)
    rendering = Rendering(Kind.ENVOY)
    assert list(seen(world.told(rendering))) == ["b"]
    assert "has no address yet" in rendering.notes()["shop"][0]

    world.addresses[Host("a.example")] = ("10.0.1.1",)

    assert list(seen(world.told(rendering))) == ["a", "b"]
    assert rendering.notes() == {}


def test_a_cluster_that_would_become_empty_keeps_its_last_endpoints_and_says_so() -> None:
    world = World(THREE)
    rendering = Rendering(Kind.ENVOY)
    world.stands("shop/b", 7)
    before = world.told(rendering)

    world.read("clusters: {shop: {lines: {a: {to: 'http://10.0.0.1:80', via: 'socks5://10.0.0.9:1'}}}}")
    after = world.told(rendering)

    assert after.get(EDS, "shop") is before.get(EDS, "shop")
    assert KEPT in rendering.notes()["shop"]
    world.read(THREE)
    assert seen(world.told(rendering))["b"] == (100, Health.HEALTHY)
    assert rendering.notes() == {}


def test_a_cluster_that_left_the_document_is_gone() -> None:
    world = World(THREE + "  other: {lines: ['tcp://10.0.0.9:1']}\n")
    rendering = Rendering(Kind.ENVOY)
    world.told(rendering)

    world.read(THREE)

    assert list(world.told(rendering).shelf(CDS).by_name) == ["shop"]


# Clusters.


def test_an_envoy_panics_never_and_splits_by_localities() -> None:
    found = message(World(THREE).told(Rendering(Kind.ENVOY)), CDS, "shop")

    assert found.common_lb_config.HasField("healthy_panic_threshold")
    assert found.common_lb_config.healthy_panic_threshold.value == 0
    assert found.common_lb_config.HasField("locality_weighted_lb_config")
    assert found.eds_cluster_config.eds_config.HasField("ads")
    assert found.connect_timeout.ToSeconds() == 1
    assert not found.HasField("lrs_server")


def test_grpc_clients_are_asked_to_report_to_who_told_them() -> None:
    found = message(World(THREE).told(Rendering(Kind.GRPC)), CDS, "shop")

    assert found.lrs_server.HasField("self")


def test_tls_is_spoken_to_each_line_by_its_own_name_and_checked() -> None:
    world = World("clusters: {shop: {lines: {a: 'https://a.example', b: 'https://10.0.0.2', c: 'http://10.0.0.3'}}}")
    world.addresses[Host("a.example")] = ("10.0.1.1",)
    found = world.told(Rendering(Kind.ENVOY))

    matches = message(found, CDS, "shop").transport_socket_matches
    assert [each.name for each in matches] == ["10.0.0.2", "a.example", "plain"]
    context = tls_pb2.UpstreamTlsContext.FromString(matches[1].transport_socket.typed_config.value)
    validation = context.common_tls_context.validation_context
    assert context.sni == "a.example"
    assert validation.trusted_ca.filename == "/etc/ssl/certs/ca-certificates.crt"
    assert [each.matcher.exact for each in validation.match_typed_subject_alt_names] == ["a.example"]
    wanted = [
        dict(each.lb_endpoints[0].metadata.filter_metadata.get("envoy.transport_socket_match", {}))
        for each in message(found, EDS, "shop").endpoints
    ]
    assert wanted == [{"tls": "a.example"}, {"tls": "10.0.0.2"}, {}]
    assert not message(world.told(Rendering(Kind.GRPC)), CDS, "shop").transport_socket_matches


# Listeners and routes.


def managed(listener: Any) -> Any:
    (chain,) = listener.filter_chains
    return manager_pb2.HttpConnectionManager.FromString(chain.filters[0].typed_config.value)


def test_an_envoy_listens_where_the_document_says_and_leads_to_the_cluster() -> None:
    found = World(THREE).told(Rendering(Kind.ENVOY))

    listener = message(found, LDS, "127.0.0.1:9000")
    assert (listener.address.socket_address.address, listener.address.socket_address.port_value) == ("127.0.0.1", 9000)
    assert managed(listener).rds.route_config_name == "127.0.0.1:9000"
    (virtual,) = message(found, RDS, "127.0.0.1:9000").virtual_hosts
    assert (list(virtual.domains), virtual.routes[0].match.prefix, virtual.routes[0].route.cluster) == (
        ["*"],
        "/",
        "shop",
    )


def test_clusters_share_a_listener_by_host_and_prefix_and_the_longest_prefix_counts() -> None:
    at = "at: 127.0.0.1:9000"
    rows = {
        "a": f"{{{at}}}", "b": f"{{{at}, prefix: /b}}", "c": f"{{{at}, prefix: /b/c, hosts: [c.example, d.example]}}",
    }  # fmt: skip
    text = "".join(
        f"  {name}:\n    lines: ['http://10.0.0.1']\n    listen: {listen}\n" for name, listen in rows.items()
    )

    found = World(f"clusters:\n{text}").told(Rendering(Kind.ENVOY))

    said = {
        host.domains[0]: [
            (each.match.path_separated_prefix or each.match.prefix, each.route.cluster) for each in host.routes
        ]
        for host in message(found, RDS, "127.0.0.1:9000").virtual_hosts
    }
    rest = [("/b", "b"), ("/", "a")]
    assert said == {"*": rest, "c.example": [("/b/c", "c"), *rest], "d.example": [("/b/c", "c"), *rest]}


def test_lines_that_speak_no_http_are_passed_on_as_bytes() -> None:
    found = World(THREE.replace("http://", "tcp://")).told(Rendering(Kind.ENVOY))

    (chain,) = message(found, LDS, "127.0.0.1:9000").filter_chains
    assert tcp_proxy_pb2.TcpProxy.FromString(chain.filters[0].typed_config.value).cluster == "shop"
    assert not found.shelf(RDS).by_name


def test_grpc_lines_are_spoken_to_by_http2_and_their_streams_last() -> None:
    found = World(THREE.replace("http://", "grpc://")).told(Rendering(Kind.ENVOY))

    assert list(message(found, CDS, "shop").typed_extension_protocol_options)
    route = message(found, RDS, "127.0.0.1:9000").virtual_hosts[0].routes[0].route
    assert route.HasField("timeout")
    assert route.timeout.ToMilliseconds() == 0


def test_a_grpc_client_finds_each_cluster_under_its_name() -> None:
    found = World(THREE).told(Rendering(Kind.GRPC))

    assert list(found.shelf(LDS).by_name) == ["shop"]
    manager = manager_pb2.HttpConnectionManager.FromString(message(found, LDS, "shop").api_listener.api_listener.value)
    assert manager.rds.route_config_name == "shop"
    assert message(found, RDS, "shop").virtual_hosts[0].routes[0].route.cluster == "shop"


def routers(manager: Any) -> Any:
    (filter_,) = manager.http_filters
    return router_pb2.Router.FromString(filter_.typed_config.value)


def test_proxies_log_each_attempt_to_the_center_where_they_are_asked_to_and_which_calls_took_too_long() -> None:
    quiet, asked = Rendering(Kind.ENVOY), Rendering(Kind.ENVOY, logs_access=True)
    world = World(THREE)

    without = managed(message(world.told(quiet), LDS, "127.0.0.1:9000"))
    found = managed(message(world.told(asked), LDS, "127.0.0.1:9000"))

    assert not without.access_log
    assert not routers(without).upstream_log
    (late,), (each,) = found.access_log, routers(found).upstream_log
    assert list(late.filter.response_flag_filter.flags) == ["UT"]
    assert not each.HasField("filter")
    assert late.typed_config == each.typed_config


def test_connections_of_bytes_are_logged_as_they_are() -> None:
    found = World(THREE.replace("http://", "tcp://")).told(Rendering(Kind.ENVOY, logs_access=True))

    (chain,) = message(found, LDS, "127.0.0.1:9000").filter_chains
    assert len(tcp_proxy_pb2.TcpProxy.FromString(chain.filters[0].typed_config.value).access_log) == 1


def test_a_call_that_never_reached_a_service_is_tried_again_elsewhere_within_a_budget() -> None:
    found = World(THREE).told(Rendering(Kind.ENVOY))

    policy = message(found, RDS, "127.0.0.1:9000").virtual_hosts[0].routes[0].route.retry_policy
    assert policy.retry_on == "connect-failure,refused-stream,reset-before-request"
    assert policy.num_retries.value == 1
    assert [each.name for each in policy.retry_host_predicate] == ["envoy.retry_host_predicates.previous_hosts"]
    assert policy.host_selection_retry_max_attempts == 20
    assert policy.retry_back_off.base_interval.ToMilliseconds() == 1
    (threshold,) = message(found, CDS, "shop").circuit_breakers.thresholds
    assert threshold.retry_budget.budget_percent.value == 20
    assert threshold.retry_budget.min_retry_concurrency.value == 50


def test_the_document_says_how_often_and_when_else_a_call_is_tried_again() -> None:
    listen = "{at: 127.0.0.1:9000, retries: {most: 2, also: [reset, gateway-error]}}"
    found = World(THREE.replace("listen: 127.0.0.1:9000", f"listen: {listen}")).told(Rendering(Kind.ENVOY))

    policy = message(found, RDS, "127.0.0.1:9000").virtual_hosts[0].routes[0].route.retry_policy
    assert policy.retry_on == "connect-failure,refused-stream,reset-before-request,reset,gateway-error"
    assert policy.num_retries.value == 2


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (THREE.replace("listen: 127.0.0.1:9000", "listen: {at: 127.0.0.1:9000, retries: off}"), Kind.ENVOY),
        # They try again by themselves what no server has seen, and know no budget.
        (THREE, Kind.GRPC),
    ],
)
def test_routes_without_retries_have_no_policy_and_their_cluster_no_budget(text: str, kind: Kind) -> None:
    found = World(text).told(Rendering(kind))

    (table,) = found.shelf(RDS).by_name
    assert not message(found, RDS, table).virtual_hosts[0].routes[0].route.HasField("retry_policy")
    assert not message(found, CDS, "shop").HasField("circuit_breakers")


def test_calls_become_a_websocket_where_the_document_lets_them_and_last() -> None:
    listens = (
        "[{at: 127.0.0.1:9000, websocket: true}, {at: 127.0.0.1:9001, websocket: true, timeout: 9s}, 127.0.0.1:9002]"
    )
    found = World(THREE.replace("listen: 127.0.0.1:9000", f"listen: {listens}")).told(Rendering(Kind.ENVOY))

    ways = [message(found, RDS, f"127.0.0.1:{port}").virtual_hosts[0].routes[0].route for port in (9000, 9001, 9002)]

    assert [[each.upgrade_type for each in way.upgrade_configs] for way in ways] == [["websocket"], ["websocket"], []]
    assert [(way.HasField("timeout"), way.timeout.seconds) for way in ways] == [(True, 0), (True, 9), (False, 0)]


def test_bytes_are_not_tried_again() -> None:
    found = World(THREE.replace("http://", "tcp://")).told(Rendering(Kind.ENVOY))

    assert not message(found, CDS, "shop").HasField("circuit_breakers")


def test_what_does_not_fit_together_is_found() -> None:
    routes = {"r": (("*", (Route("gone"),)),)}
    chain = Chain(
        {"a": Upstream("a", 1)},
        {"l": Entrance("l", Address("::", 1), ""), "t": Entrance("t", Address("::", 2), "no")},
        routes,
    )

    assert sorted(faults(chain, ["b"])) == [
        "assignment b is of no cluster", "cluster a has no assignment", "listener l has no routes",
        "listener t leads to no, which is no cluster", "routes r lead to gone, which is no cluster",
    ]  # fmt: skip


# What is made anew.


def test_nothing_new_is_the_same_object() -> None:
    world, rendering = World(THREE), Rendering(Kind.ENVOY)

    assert world.told(rendering) is world.told(rendering)


def test_a_weight_that_changed_makes_one_assignment_anew_and_no_piece_of_it() -> None:
    world, rendering = World(THREE + "  other: {lines: ['tcp://10.0.0.9:1']}\n"), Rendering(Kind.ENVOY)
    before = world.told(rendering)
    made = rendering.encoded("shop")

    world.stands("shop/b", 30)
    after = world.told(rendering)

    assert rendering.encoded("shop") == made
    assert after.get(EDS, "shop") is not before.get(EDS, "shop")
    assert after.get(EDS, "other") is before.get(EDS, "other")
    assert all(after.shelf(url) is before.shelf(url) for url in (CDS, LDS, RDS))


MANY: Final = 12
TWELVE: Final = ", ".join(f"l{at}: 'tcp://10.0.0.{at + 1}:80'" for at in range(MANY))


def test_a_line_that_is_no_longer_degraded_does_not_count_as_degraded() -> None:
    world, rendering = World(f"clusters: {{shop: {{lines: {{{TWELVE}}}}}}}"), Rendering(Kind.ENVOY)
    world.stands("shop/l0", 90, Health.DEGRADED)
    assert seen(world.told(rendering))["l0"] == (90, Health.DEGRADED)

    world.stands("shop/l0", 100, Health.HEALTHY)
    world.told(rendering)
    world.stands("shop/l1", 1, Health.DEGRADED)

    assert seen(world.told(rendering))["l1"] == (1, Health.HEALTHY)


moves = st.tuples(
    st.integers(0, MANY - 1), st.sampled_from([0, 1, 3, 40, 100, 10**9]),
    st.sampled_from([Health.HEALTHY, Health.DEGRADED, Health.UNHEALTHY, Health.DRAINING, Health.UNKNOWN]),
    st.sampled_from(list(Gate)),
)  # fmt: skip


@given(st.lists(st.lists(moves, max_size=3), max_size=8), st.sampled_from(["ENVOY", "GRPC"]))
def test_after_any_changes_what_is_told_is_what_a_new_rendering_would_tell(
    rounds: list[list[tuple[int, int, Health, Gate]]], kind: str
) -> None:
    world, kept = World(f"clusters: {{shop: {{lines: {{{TWELVE}}}}}}}"), Rendering(Kind[kind])
    world.told(kept)

    for changes in rounds:
        for at, weight, health, gate in changes:
            world.stands(f"shop/l{at}", weight, health, gate)
        found, fresh = world.told(kept).get(EDS, "shop"), world.told(Rendering(Kind[kind])).get(EDS, "shop")

        assert found == fresh


names = st.text("abcdefgh-", min_size=1, max_size=150)
spots = st.builds(
    Spot, names, st.lists(st.tuples(st.sampled_from(["10.0.0.1", "2001:db8::1"]), st.integers(1, 65_535)), min_size=1, max_size=3).map(tuple),
    st.sampled_from(["", "r1"]), st.sampled_from(["", "az1"]), st.sampled_from(["", "a.example"]), st.booleans(),
)  # fmt: skip
told = st.builds(said, st.integers(0, 70_000_000), st.sampled_from([Health.HEALTHY, Health.UNHEALTHY, Health.DEGRADED]))


@given(st.lists(st.lists(st.tuples(spots, told), max_size=6), min_size=1, max_size=4))
def test_an_assignment_in_pieces_is_what_a_whole_message_would_be(rounds: list[list[tuple[Spot, Told]]]) -> None:
    kept = Assignment("c")
    for rows in rounds:
        body = kept.body(tuple(spot for spot, _ in rows), [told for _, told in rows])

    assert body == Assignment("c").body(tuple(spot for spot, _ in rows), [told for _, told in rows])
    found = endpoint_pb2.ClusterLoadAssignment.FromString(body)
    assert [
        (each.locality.sub_zone, each.locality.region, each.locality.zone, each.load_balancing_weight.value)
        for each in found.endpoints
    ] == [(spot.name, spot.region, spot.zone, told.weight or 1) for spot, told in rows]
    assert [
        [
            (end.endpoint.address.socket_address.address, end.endpoint.address.socket_address.port_value)
            for end in each.lb_endpoints
        ]
        for each in found.endpoints
    ] == [list(spot.addresses) for spot, _ in rows]
    assert [each.lb_endpoints[0].health_status for each in found.endpoints] == [told.health.value for _, told in rows]


@given(
    st.lists(
        st.one_of(
            st.ip_addresses().map(str), st.sampled_from(["a.example", "1.2.3", "1.2.3.4\n5.6.7.8", "01.2.3.4", ""])
        )
    )
)
def test_many_addresses_are_known_as_such_as_each_alone_is(hosts: list[str]) -> None:
    assert are_ipv4(hosts) == all(is_numeric(host) and ":" not in host for host in hosts)


def test_forms_are_what_the_document_says() -> None:
    text = THREE + "xds: {connect_timeout: 250ms, verify: false}\n"

    assert World(text).forms["shop"] == Form(
        0.25, "/etc/ssl/certs/ca-certificates.crt", False, World(THREE).forms["shop"].listens
    )
