"""A whole bootstrap becomes values, with Envoy's defaults; what is wrong or not supported is told by place, all of it at once."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.core.pick.keying import By
from reachline.doors.envoy.chain import Chain, HttpManager, RouteSource, TcpProxy
from reachline.doors.envoy.routes import Append, Command, Forward, HostRewrite, Mutations, Redirect, RouteConfig
from reachline.doors.envoy.whole import read
from reachline.errors import ConfigError
from reachline.members import Address

BOOTSTRAP = """\
node: {id: edge-1, cluster: edge, locality: {zone: a}, metadata: {role: edge}}
admin: {address: {socket_address: {address: 127.0.0.1, port_value: 9901}}}
dynamic_resources:
  ads_config: {api_type: DELTA_GRPC, transport_api_version: V3, grpc_services: [{envoy_grpc: {cluster_name: plane}}]}
  cds_config: {ads: {}, initial_fetch_timeout: 3s}
static_resources:
  secrets:
  - name: own
    tls_certificate: {certificate_chain: {filename: /tls/chain.pem}, private_key: {filename: /tls/key.pem}}
  - name: issuers
    validation_context: {trusted_ca: {filename: /tls/ca.pem}}
  listeners:
  - name: web
    address: {socket_address: {address: 0.0.0.0, port_value: 443}}
    listener_filters:
    - {name: tls, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector}}
    filter_chains:
    - name: shop
      filter_chain_match: {server_names: [Shop.example, "*.shop.example"]}
      transport_socket:
        name: tls
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
          require_client_certificate: true
          common_tls_context:
            alpn_protocols: [h2, http/1.1]
            tls_certificate_sds_secret_configs: [{name: own}]
            combined_validation_context:
              default_validation_context: {match_typed_subject_alt_names: [{san_type: DNS, matcher: {suffix: .example}}], trusted_ca: {filename: /tls/other.pem}}
              validation_context_sds_secret_config: {name: issuers}
      filters:
      - name: http
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: shop
          use_remote_address: true
          common_http_protocol_options: {idle_timeout: 60s}
          access_log:
          - name: file
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog
              path: /dev/stdout
              log_format: {json_format: {took: "%DURATION%", who: {agent: "%REQ(USER-AGENT):20%"}, fixed: 5}}
          route_config:
            name: local
            response_headers_to_add: [{header: {key: X-Route, value: "at %ROUTE_NAME%"}, append_action: ADD_IF_ABSENT}]
            virtual_hosts:
            - name: shop
              domains: [Shop.Example, "*.shop.example"]
              routes:
              - name: cart
                match: {path_separated_prefix: /cart}
                route:
                  timeout: 0s
                  weighted_clusters: {clusters: [{name: a, weight: 9}, {name: b, weight: 1}]}
                  host_rewrite_literal: cart.internal
                  retry_policy: {retry_on: "5xx, reset", num_retries: 3, retry_back_off: {base_interval: 0.1s}}
                  hash_policy: [{cookie: {name: session, ttl: 60s}, terminal: true}]
              - match: {prefix: /}
                redirect: {host_redirect: www.shop.example, response_code: FOUND}
          http_filters: [{name: router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]
    - filters:
      - name: tcp
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
          stat_prefix: rest
          cluster: a
          hash_policy: [{source_ip: {}}]
  clusters:
  - {name: a, load_assignment: {cluster_name: a}}
  - name: b
    load_assignment: {cluster_name: b}
    transport_socket:
      name: tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        sni: b.example
        common_tls_context: {validation_context_sds_secret_config: {name: issuers}}
  - name: plane
    load_assignment: {cluster_name: plane}
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {max_concurrent_streams: 7}}
"""


@pytest.fixture(scope="module")
def chain() -> Chain:
    return read(BOOTSTRAP, name="envoy.yaml")


def manager(chain: Chain) -> HttpManager:
    handler = chain.listeners[0].chains[0].handler
    assert isinstance(handler, HttpManager)
    return handler


def routes(chain: Chain) -> RouteConfig:
    found = manager(chain).routes
    assert isinstance(found, RouteConfig)
    return found


def test_a_bootstrap_says_who_it_is_where_it_is_asked_and_what_comes_from_elsewhere(chain: Chain) -> None:
    assert (chain.node.id, chain.node.cluster, chain.node.locality.zone, chain.node.metadata) == (
        "edge-1",
        "edge",
        "a",
        {"role": "edge"},
    )
    assert chain.admin is not None
    assert chain.admin.address == Address("127.0.0.1", 9901)
    assert chain.ads is not None
    assert (chain.ads.cluster, chain.ads.delta) == ("plane", True)
    assert chain.cds is not None
    assert (chain.cds.path, chain.cds.initial_fetch_timeout) == ("", 3.0)
    assert chain.lds is None
    assert chain.notices == ()


def test_a_filter_chain_keeps_whom_it_takes_and_its_tls(chain: Chain) -> None:
    shop, rest = chain.listeners[0].chains
    tls = shop.tls

    assert shop.match.server_names == ("shop.example", "*.shop.example")
    assert tls is not None
    assert [each.chain.file for each in tls.certificates] == ["/tls/chain.pem"]
    assert tls.require_client_certificate
    assert tls.alpn == ("h2", "http/1.1")
    assert tls.trusted is not None
    assert tls.trusted.authorities.file == "/tls/ca.pem"
    assert [(kind, match.text) for kind, match in tls.trusted.names] == [("DNS", ".example")]
    assert isinstance(rest.handler, TcpProxy)
    assert [each.by for each in rest.handler.hash] == [By.SOURCE_IP]
    assert rest.tls is None


def test_a_manager_keeps_what_it_says_and_has_envoys_defaults_for_the_rest(chain: Chain) -> None:
    found = manager(chain)

    assert (found.use_remote_address, found.idle_timeout) == (True, 60.0)
    assert (found.stream_idle_timeout, found.max_headers, found.server_name, found.codec) == (
        300.0,
        100,
        "envoy",
        "AUTO",
    )
    (log,) = found.access_logs
    assert log.path == "/dev/stdout"
    assert log.format.json == {
        "took": (Command("DURATION"),),
        "who": {"agent": (Command("REQ", "USER-AGENT", 20),)},
        "fixed": 5,
    }


def test_routes_keep_match_action_and_changes(chain: Chain) -> None:
    config = routes(chain)
    (host,) = config.hosts
    cart, rest = host.routes

    assert host.domains == ("shop.example", "*.shop.example")
    action = cart.action
    assert isinstance(action, Forward)
    assert [(each.name, each.weight) for each in action.weighted] == [("a", 9), ("b", 1)]
    assert (action.timeout, action.host_rewrite, action.host_text) == (None, HostRewrite.LITERAL, "cart.internal")
    assert action.retry is not None
    assert (set(action.retry.retry_on), action.retry.retries) == ({"5xx", "reset"}, 3)
    assert (action.retry.back_off.base, action.retry.back_off.most) == (0.1, 1.0)
    assert [(each.by, each.name, each.terminal) for each in action.hash] == [(By.COOKIE, "session", True)]
    assert [(each.name, each.ttl) for each in action.hash_cookies] == [("session", 60.0)]
    assert rest.action == Redirect(host="www.shop.example", status=302)
    assert cart.mutations == Mutations()
    (header,) = config.mutations.response_add
    assert (header.name, header.value, header.append) == (
        "x-route",
        ("at ", Command("ROUTE_NAME")),
        Append.ADD_IF_ABSENT,
    )


def test_clusters_keep_how_their_endpoints_are_spoken_to(chain: Chain) -> None:
    plain, tls, plane = (chain.upstreams[name] for name in ("a", "b", "plane"))

    assert (plain.protocol, plain.tls, plain.idle_timeout) == ("HTTP1", None, 3600.0)
    assert tls.tls is not None
    assert tls.tls.sni == "b.example"
    assert tls.tls.trusted is not None
    assert tls.tls.trusted.authorities.file == "/tls/ca.pem"
    assert (plane.protocol, plane.http2.max_concurrent_streams) == ("HTTP2", 7)


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        read(text, name="envoy.yaml")
    return [str(each) for each in refused.value.problems]


def test_all_that_is_wrong_is_told_at_once_each_at_its_place() -> None:
    text = (
        BOOTSTRAP.replace("timeout: 0s", "timeout: 5m")
        .replace("num_retries: 3", "num_retries: many")
        .replace("cluster: a\n", "cluster: ''\n")
        .replace("prefix: /}", "prefix: /, headers: [{name: a, string_match: {safe_regex: {regex: '(?=b)'}}}]}")
        .replace("sni: b.example", "snl: b.example")
    )

    assert problems(text) == [
        "envoy.yaml:54:28: static_resources.listeners[0].filter_chains[0].filters[0].typed_config.route_config.virtual_hosts[0].routes[0].route.timeout: must be a duration in seconds such as 0.25s or 10s (got '5m')",
        "envoy.yaml:57:71: static_resources.listeners[0].filter_chains[0].filters[0].typed_config.route_config.virtual_hosts[0].routes[0].route.retry_policy.num_retries: must be a whole number (got 'many')",
        "envoy.yaml:59:91: static_resources.listeners[0].filter_chains[0].filters[0].typed_config.route_config.virtual_hosts[0].routes[1].match.headers[0].string_match.safe_regex.regex: has (?=b…, which RE2 does not know; there is no looking ahead or behind, and no comment (got '(?=b)')",
        "envoy.yaml:64:9: static_resources.listeners[0].filter_chains[1].filters[0].typed_config: must have cluster or weighted_clusters",
        "envoy.yaml:77:9: static_resources.clusters[1].transport_socket.typed_config.snl: unknown field; did you mean 'sni'?",
    ]  # fmt: skip


def test_what_is_of_an_older_envoy_is_called_so() -> None:
    filters = BOOTSTRAP.replace("extensions.filters.network.tcp_proxy.v3", "config.filter.network.tcp_proxy.v2")
    hosts = BOOTSTRAP.replace("{name: a, load_assignment: {cluster_name: a}}", "{name: a, hosts: []}")

    assert any("is of Envoy's API v2" in each for each in problems(filters))
    assert "is a field of Envoy's API v2; write load_assignment" in problems(hosts)[0]


def test_a_variable_that_nothing_filled_in_is_named() -> None:
    notices = read(BOOTSTRAP.replace("cart.internal", "${CART}"), name="envoy.yaml").notices
    refused = problems(BOOTSTRAP.replace("0.0.0.0", "'${HOST}'"))

    assert [(each.rule, each.hint) for each in notices] == [
        ("holds ${CART}, and nothing fills it in here", "run the document through envsubst first")
    ]
    assert any("nothing fills in ${HOST} here" in each for each in refused)


def test_of_a_key_that_stands_there_twice_the_last_one_counts_and_both_are_named() -> None:
    found = read(
        BOOTSTRAP.replace("stat_prefix: rest", "stat_prefix: first\n          stat_prefix: rest"), name="envoy.yaml"
    )

    assert found.listeners[0].chains[1].handler.stat_prefix == "rest"
    (notice,) = found.notices
    assert notice.place == "envoy.yaml:67:11"
    assert "the last one counts" in notice.rule


def test_chains_that_ask_for_names_have_tls_looked_at_and_say_so() -> None:
    start = BOOTSTRAP.index("    listener_filters:")
    found = read(BOOTSTRAP[:start] + BOOTSTRAP[BOOTSTRAP.index("    filter_chains:") :], name="envoy.yaml")

    assert found.listeners[0].inspect_tls
    assert ["tls_inspector is added" in each.rule for each in found.notices] == [True]


def test_what_has_no_effect_is_a_notice_and_what_would_have_one_is_refused() -> None:
    traced = BOOTSTRAP.replace("use_remote_address: true", "tracing: {verbose: true}")
    mirrored = BOOTSTRAP.replace("timeout: 0s", "request_mirror_policies: [{cluster: a}]")

    (notice,) = read(traced, name="envoy.yaml").notices
    assert notice.path.endswith("typed_config.tracing")
    (problem,) = problems(mirrored)
    assert "request_mirror_policies: is not supported here" in problem


def test_routes_that_come_by_name_need_a_node_and_who_serves_them() -> None:
    text = BOOTSTRAP.replace(
        "stat_prefix: shop", "stat_prefix: shop\n          rds: {route_config_name: r, config_source: {ads: {}}}"
    )
    start, end = text.index("          route_config:"), text.index("          http_filters:")
    text = text[:start] + text[end:]

    assert manager(read(text)).routes == RouteSource("r", manager(read(text)).routes.source)  # type: ignore[union-attr]
    without = text[text.index("static_resources") :]
    assert [each.partition(": ")[2] for each in problems(without)] == [
        "node: must have id and cluster: something here comes from elsewhere",
        "dynamic_resources: must have ads_config: something here comes by ads",
    ]


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["listeners", "filter_chains", "address", "clusters", "name", "static_resources", "filters", "typed_config", "@type", "route_config", "virtual_hosts"]), inner, max_size=4), max_leaves=12))  # fmt: skip
def test_whatever_it_is_it_is_read_or_refused(value: object) -> None:
    found: object = None
    with suppress(ConfigError):
        found = read({"static_resources": value})

    assert found is None or isinstance(found, Chain)


@pytest.mark.parametrize(
    "layer",
    ["{routing.shift: 50}", "{routing: {shift: 50}}", "{routing.shares: {b: 5}}"],
)
def test_a_runtime_that_would_move_traffic_is_refused(layer: str) -> None:
    share = "runtime_fraction: {default_value: {numerator: 5}, runtime_key: routing.shift}"
    text = BOOTSTRAP.replace("match: {prefix: /}", f"match: {{prefix: /, {share}}}").replace(
        "weighted_clusters: {", "weighted_clusters: {runtime_key_prefix: routing.shares, "
    )
    layers = f"layered_runtime: {{layers: [{{name: a, static_layer: {layer}}}]}}\n"

    (problem,) = problems(layers + text)
    assert "static_layer.routing" in problem.replace('."', ".").replace('".', ".")
    assert "is not supported here; write the field itself" in problem
    assert read("layered_runtime: {layers: [{name: a, static_layer: {re2.max_program_size.error_level: 9}}]}\n" + text)


def test_a_filter_chain_without_a_known_filter_is_refused_by_its_type() -> None:
    (problem,) = problems(BOOTSTRAP.replace("network.tcp_proxy.v3.TcpProxy", "network.mongo_proxy.v3.MongoProxy"))

    assert "is not supported here: MongoProxy" in problem
