"""Bootstraps as people write them, each named by what is said about it: taken by both, refused by both, refused by us alone."""

from __future__ import annotations

import json
from typing import Any

from tests.differential.routed import MANAGER, ROUTER, Plain, regex

TCP = "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"
FILE = "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog"
STDOUT = "type.googleapis.com/envoy.extensions.access_loggers.stream.v3.StdoutAccessLog"
OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
TO_C = {"match": {"prefix": "/"}, "route": {"cluster": "c"}}
_LB = {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 80}}}}


def cluster(name: str = "c", **more: Any) -> Plain:
    return {"name": name, "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [_LB]}]}, **more}


def speaking(**options: Any) -> Plain:
    """A cluster with HttpProtocolOptions."""
    return cluster(typed_extension_protocol_options={OPTIONS: {"@type": f"type.googleapis.com/{OPTIONS}", **options}})


def listener(*filters: Plain, name: str = "in", port: int = 0, **more: Any) -> Plain:
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    return {"name": name, "address": address, "filter_chains": [{"filters": list(filters)}], **more}


def manager(*routes: Plain, host: Plain | None = None, config: Plain | None = None, **more: Any) -> Plain:
    """The manager's filter; a field that is None is left out."""
    hosts = [{"name": "all", "domains": ["*"], "routes": list(routes or (TO_C,)), **(host or {})}]
    fields = {
        "@type": MANAGER,
        "stat_prefix": "in",
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {"@type": ROUTER}}],
        "route_config": {"virtual_hosts": hosts, **(config or {})},
        **more,
    }
    kept = {key: value for key, value in fields.items() if value is not None}
    return {"name": "envoy.filters.network.http_connection_manager", "typed_config": kept}


def tcp(**more: Any) -> Plain:
    return {"name": "envoy.filters.network.tcp_proxy", "typed_config": {"@type": TCP, "stat_prefix": "t", **more}}


def bootstrap(*listeners: Plain, clusters: list[Plain] | None = None, **more: Any) -> Plain:
    return {"static_resources": {"listeners": list(listeners), "clusters": clusters or [cluster()]}, **more}


def http(*routes: Plain, **more: Any) -> Plain:
    return bootstrap(listener(manager(*routes, **more)))


def routed(**action: Any) -> Plain:
    """One route with these fields of its action."""
    return http({"match": {"prefix": "/"}, "route": {"cluster": "c", **action}})


def matched(match: Plain) -> Plain:
    return http({"match": match, "route": {"cluster": "c"}})


def headed(**header: Any) -> Plain:
    return matched({"prefix": "/", "headers": [header]})


def redirected(**action: Any) -> Plain:
    return http({"match": {"prefix": "/"}, "redirect": action})


def answered(**action: Any) -> Plain:
    return http({"match": {"prefix": "/"}, "direct_response": action})


def added(key: str = "x-a", value: str = "b", **more: Any) -> Plain:
    return http({**TO_C, "request_headers_to_add": [{"header": {"key": key, "value": value}, **more}]})


def logged(kind: str = FILE, log_filter: Plain | None = None, **more: Any) -> Plain:
    log = {"name": "log", "typed_config": {"@type": kind, **({"path": "/dev/null"} if kind == FILE else {}), **more}}
    return http(access_log=[log | ({"filter": log_filter} if log_filter else {})])


def chained(*matches: Plain) -> Plain:
    """One listener with a chain for each match."""
    chains = [{"filter_chain_match": each, "filters": [tcp(cluster="c")]} for each in matches]
    return bootstrap(listener() | {"filter_chains": chains})


def by_ads(**more: Any) -> Plain:
    ads = {"api_type": "GRPC", "transport_api_version": "V3", "grpc_services": [{"envoy_grpc": {"cluster_name": "c"}}]}
    two = speaking(explicit_http_config={"http2_protocol_options": {}})
    from_ads = {"ads": {}, "resource_api_version": "V3"}
    found = {"ads_config": ads, "lds_config": from_ads, "cds_config": from_ads, **more}
    dynamic = {key: value for key, value in found.items() if value is not None}
    return bootstrap(clusters=[two], dynamic_resources=dynamic, node={"id": "n", "cluster": "c"})


_RETRY = {
    "retry_on": "5xx,reset,cancelled", "num_retries": 3, "per_try_timeout": "1s", "retriable_status_codes": [404],
    "retry_back_off": {"base_interval": "0.1s", "max_interval": "1s"},
    "retry_host_predicate": [{"name": "previous", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"}}],
    "rate_limited_retry_back_off": {"reset_headers": [{"name": "retry-after"}]},
    "retriable_headers": [{"name": "x-again", "present_match": True}],
}  # fmt: skip
_YAML = """\
static_resources:
  listeners:
  - name: in
    address: &all {socket_address: {address: 0.0.0.0, port_value: 10000}}
    filter_chains:
      filters:
        name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": %s
          statPrefix: in
          codec_type: auto
          routeConfig:
            virtual_hosts:
              name: all
              domains: "*"
              routes: {match: {prefix: /}, route: {cluster: c, timeout: 0.25s, %s}}
          http_filters: {name: router, typed_config: {"@type": %s}}
  clusters:
    name: c
    type: static
    lbPolicy: round_robin
    loadAssignment: {clusterName: c, endpoints: {lbEndpoints: {endpoint: {address: *all}}}}
"""
_TEXT = _YAML % (MANAGER, "%s", ROUTER)

TAKEN: dict[str, Plain | str] = {
    "nothing": "node: {}",
    "as people write it": _TEXT % "priority: high",
    "a key twice, the last one right": _TEXT % "priority: nonsense, priority: DEFAULT",
    "a variable in a text": _TEXT % "host_rewrite_literal: '${HOST}'",
    "truths in words": _TEXT % "append_x_forwarded_host: yes",
    "numbers in quotes": _TEXT % "retry_policy: {num_retries: '2', retry_on: 5xx}",
    "a duration in parts": _TEXT % "idle_timeout: {seconds: 3}",
    "indented by tabs": json.dumps(http(), indent="\t"),
    "a manager": http(),
    "all kinds of retries": routed(retry_policy=_RETRY),
    "unknown words of retries": routed(retry_policy={"retry_on": "nonsense"}),
    "retries of a host": http(host={"retry_policy": {"retry_on": "5xx"}, "include_request_attempt_count": True}),
    "keys": routed(hash_policy=[{"header": {"header_name": "a"}, "terminal": True}, {"cookie": {"name": "b", "ttl": "0s", "path": "/"}}, {"connection_properties": {"source_ip": True}}, {"query_parameter": {"name": "q"}}]),
    "shares": routed(cluster=None) and http({"match": {"prefix": "/"}, "route": {"weighted_clusters": {"clusters": [{"name": "c", "weight": 1}, {"name": "c", "weight": 0}]}}}),
    "by header": http({"match": {"prefix": "/"}, "route": {"cluster_header": "x-c"}}),
    "rewrites": routed(regex_rewrite={"pattern": regex("^/a/(.*)$"), "substitution": r"/\1"}, host_rewrite_header="x-h"),
    "no limits": routed(timeout="0s", idle_timeout="0s", max_stream_duration={"grpc_timeout_header_max": "0s"}),
    "websocket": http(upgrade_configs=[{"upgrade_type": "websocket"}]),
    "websocket of a route": routed(upgrade_configs=[{"upgrade_type": "websocket", "enabled": False}]),
    "redirects": redirected(https_redirect=True, port_redirect=8443, response_code="FOUND", strip_query=True),
    "a redirect of nothing": redirected(),
    "an answer": answered(status=204),
    "an answer in base64": answered(status=200, body={"inline_bytes": "aGk="}),
    "not forwarding": http({"match": {"prefix": "/"}, "non_forwarding_action": {}}),
    "every kind of path": http(*({"match": each, "route": {"cluster": "c"}} for each in ({"path": "/a"}, {"prefix": ""}, {"safe_regex": regex("/a+")}, {"path_separated_prefix": "/a"}, {"connect_matcher": {}}))),
    "RE2's own words": matched({"safe_regex": regex(r"(?i)[[:alpha:]]+\Q.\E\z")}),
    "old header matchers": headed(name="a", exact_match="b"),
    "a range": headed(name="a", range_match={"start": 1, "end": 2}, invert_match=True, treat_missing_header_as_empty=True),
    "parameters": matched({"prefix": "/", "query_parameters": [{"name": "a", "string_match": {"exact": ""}}, {"name": "b", "present_match": True}]}),
    "gRPC alone": matched({"prefix": "/", "grpc": {}}),
    "a share of requests": matched({"prefix": "/", "runtime_fraction": {"default_value": {"numerator": 5, "denominator": "MILLION"}, "runtime_key": "a"}}),
    "headers": added("X-A", "%REQ(x-b?x-c):10% %START_TIME(%s)% 100%%", append_action="OVERWRITE_IF_EXISTS_OR_ADD"),
    "headers removed": http({**TO_C, "request_headers_to_remove": ["x-a"], "response_headers_to_remove": ["server"]}),
    "old append": added(append=False),
    "hosts": http(host={"domains": ["a.example", "*.b.example", "c.*", "*"], "require_tls": "EXTERNAL_ONLY"}),
    "strict order": http(config={"most_specific_header_mutations_wins": True, "ignore_port_in_host_matching": True, "internal_only_headers": ["x-i"], "validate_clusters": False}),
    "no such cluster, unchecked": http({"match": {"prefix": "/"}, "route": {"cluster": "none"}}, config={"validate_clusters": False}),
    "a body beyond the usual": http({"match": {"prefix": "/"}, "direct_response": {"status": 200, "body": {"inline_string": "x" * 5_000}}}, config={"max_direct_response_body_size_bytes": 9_000}),
    "limits": http(common_http_protocol_options={"idle_timeout": "5s", "max_headers_count": 5, "headers_with_underscores_action": "REJECT_REQUEST"}, http_protocol_options={"accept_http_10": True, "header_key_format": {"proper_case_words": {}}}, http2_protocol_options={"max_concurrent_streams": 5}, max_request_headers_kb=96),
    "paths": http(normalize_path=True, merge_slashes=True, path_with_escaped_slashes_action="UNESCAPE_AND_REDIRECT", strip_any_host_port=True),
    "who asks": http(use_remote_address=True, xff_num_trusted_hops=2, internal_address_config={"cidr_ranges": [{"address_prefix": "10.0.0.0", "prefix_len": 8}]}, forward_client_cert_details="SANITIZE_SET", set_current_client_cert_details={"subject": True, "uri": True}),
    "routes by file": bootstrap(listener(manager(route_config=None, rds={"route_config_name": "r", "config_source": {"path_config_source": {"path": "/dev/null"}}})), node={"id": "n", "cluster": "c"}),
    "a log of lines": logged(log_format={"text_format_source": {"inline_string": "%REQ(:path)% %RESPONSE_CODE%\n"}}),
    "a log of objects": logged(log_format={"json_format": {"a": "%DURATION%", "b": {"c": "%REQ(x)%"}}}),
    "a log on standard output": logged(STDOUT),
    "a log of some": logged(log_filter={"or_filter": {"filters": [{"status_code_filter": {"comparison": {"op": "GE", "value": {"default_value": 400, "runtime_key": "a"}}}}, {"response_flag_filter": {"flags": ["UH"]}}]}}),
    "TCP": bootstrap(listener(tcp(cluster="c", idle_timeout="5s", hash_policy=[{"source_ip": {}}], max_connect_attempts=2))),
    "TCP to nowhere": bootstrap(listener(tcp(cluster="none"))),
    "TCP in shares": bootstrap(listener(tcp(weighted_clusters={"clusters": [{"name": "c", "weight": 1}, {"name": "d", "weight": 2}]}))),
    "chains": chained({"server_names": ["a.example", "*.b.example"]}, {"destination_port": 80}, {"prefix_ranges": [{"address_prefix": "10.0.0.0", "prefix_len": 8}]}, {"application_protocols": ["h2"], "transport_protocol": "tls"}, {"source_type": "EXTERNAL", "source_ports": [5]}, {}),
    "a chain for the rest": bootstrap(listener(tcp(cluster="c"), default_filter_chain={"filters": [tcp(cluster="c")]})),
    "inspectors": bootstrap(listener(tcp(cluster="c"), listener_filters=[{"name": each, "typed_config": {"@type": f"type.googleapis.com/envoy.extensions.filters.listener.{each}.v3.{kind}"}} for each, kind in (("tls_inspector", "TlsInspector"), ("http_inspector", "HttpInspector"), ("proxy_protocol", "ProxyProtocol"))])),
    "listener fields": bootstrap(listener(tcp(cluster="c"), per_connection_buffer_limit_bytes=5, drain_type="MODIFY_ONLY", tcp_backlog_size=7, enable_reuse_port=True, listener_filters_timeout="0s", traffic_direction="INBOUND", stat_prefix="x")),
    "HTTP/2 upstream": bootstrap(listener(manager()), clusters=[speaking(explicit_http_config={"http2_protocol_options": {}}, common_http_protocol_options={"idle_timeout": "1s"})]),
    "as below": bootstrap(listener(manager()), clusters=[speaking(use_downstream_protocol_config={"http2_protocol_options": {}})]),
    "old options": bootstrap(listener(manager()), clusters=[cluster(http2_protocol_options={})]),
    "keepalive": bootstrap(listener(manager()), clusters=[cluster(upstream_connection_options={"tcp_keepalive": {"keepalive_time": 5}})]),
    "TLS upstream": bootstrap(listener(manager()), clusters=[cluster(transport_socket={"name": "tls", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext", "sni": "a.example", "common_tls_context": {"alpn_protocols": ["h2"], "tls_params": {"tls_minimum_protocol_version": "TLSv1_3"}, "validation_context": {"trust_chain_verification": "ACCEPT_UNTRUSTED"}}}})]),
    "plain on purpose": bootstrap(listener(manager()), clusters=[cluster(transport_socket={"name": "raw", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer"}})]),
    "ADS": by_ads(),
    "clusters by file": bootstrap(dynamic_resources={"cds_config": {"path": "/dev/null"}}, node={"id": "n", "cluster": "c"}),
    "an admin": bootstrap(admin={"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}}),
    "a router's options": bootstrap(listener(manager(http_filters=[{"name": "r", "typed_config": {"@type": ROUTER, "suppress_envoy_headers": True, "strict_check_headers": ["x-envoy-max-retries"]}}]))),
}  # fmt: skip
"""Both take these."""

REFUSED: dict[str, Plain | str] = {
    "an unknown field": http(foo=1),
    "a list": "[]",
    "nothing at all": "",
    "a merge key": "x: &a {id: a}\nnode: {<<: *a}\n",
    "a variable for a number": json.dumps(bootstrap(listener(tcp(cluster="c")) | {"tcp_backlog_size": "${N}"})),
    "a variable for an address": json.dumps(http()).replace("127.0.0.1", "${HOST}"),
    "a key twice, the last one wrong": _TEXT % "timeout: 1s, timeout: 5",
    "a duration without its unit": routed(timeout=15),
    "a duration in minutes": routed(timeout="1m"),
    "a duration below zero": routed(timeout="-1s"),
    "a word that is none": http(codec_type="HTTP5"),
    "a word with dashes": http(server_header_transformation="append-if-absent"),
    "no name of figures": http(stat_prefix=None),
    "no routes": bootstrap(listener(manager(route_config=None))),
    "v2's manager": json.dumps(http()).replace("envoy.extensions.filters.network.http_connection_manager.v3", "envoy.config.filter.network.http_connection_manager.v2"),
    "v2's config": bootstrap(listener({"name": "envoy.tcp_proxy", "config": {"stat_prefix": "t", "cluster": "c"}})),
    "v2's hosts": bootstrap(clusters=[{"name": "c", "hosts": [{"socket_address": {"address": "127.0.0.1", "port_value": 80}}]}]),
    "v2's tls_context": bootstrap(clusters=[cluster(tls_context={})]),
    "no path rule": matched({}),
    "two path rules": matched({"prefix": "/", "path": "/a"}),
    "a separated prefix that ends": matched({"path_separated_prefix": "/a/"}),
    "looking ahead": matched({"safe_regex": regex("(?=a)")}),
    "referring back": matched({"safe_regex": regex(r"(a)\1")}),
    "an expression without end": matched({"safe_regex": regex("(a")}),
    "no expression": matched({"safe_regex": regex("")}),
    "a header without a name": headed(),
    "a text rule of nothing": headed(name="a", string_match={}),
    "an empty prefix of a header": headed(name="a", string_match={"prefix": ""}),
    "a regex in any case": headed(name="a", string_match={"safe_regex": regex("a"), "ignore_case": True}),
    "a parameter without a name": matched({"prefix": "/", "query_parameters": [{}]}),
    "a share without its default": matched({"prefix": "/", "runtime_fraction": {"runtime_key": "a"}}),
    "no action": http({"match": {"prefix": "/"}}),
    "two actions": http({**TO_C, "redirect": {}}),
    "no match": http({"route": {"cluster": "c"}}),
    "no cluster": http({"match": {"prefix": "/"}, "route": {}}),
    "an empty cluster": routed(cluster=""),
    "no such cluster": routed(cluster="none"),
    "shares of nothing": http({"match": {"prefix": "/"}, "route": {"weighted_clusters": {"clusters": []}}}),
    "shares of zero": http({"match": {"prefix": "/"}, "route": {"weighted_clusters": {"clusters": [{"name": "c", "weight": 0}]}}}),
    "two rewrites": routed(prefix_rewrite="/a", regex_rewrite={"pattern": regex("a"), "substitution": "b"}),
    "two hosts": routed(host_rewrite_literal="a", host_rewrite_header="b"),
    "a wait above its most": routed(retry_policy={"retry_back_off": {"base_interval": "2s", "max_interval": "1s"}}),
    "a wait without a base": routed(retry_policy={"retry_back_off": {"max_interval": "1s"}}),
    "a key of nothing": routed(hash_policy=[{}]),
    "a redirect two ways": redirected(path_redirect="/a", prefix_rewrite="/b"),
    "an answer without a status": answered(),
    "an answer of 100": answered(status=100),
    "an answer too long": answered(status=200, body={"inline_string": "x" * 5_000}),
    "no domains": http(host={"domains": []}),
    "a host without a name": http(host={"name": ""}),
    "a domain twice": http(host={"domains": ["a", "A"]}),
    "a header :path removed": http({**TO_C, "request_headers_to_remove": [":path"]}),
    "the header host": added("host"),
    "an unknown command": added("x", "%FOO%"),
    "a percent sign alone": added("x", "100%"),
    "a command without its header": logged(log_format={"text_format_source": {"inline_string": "%REQ%"}}),
    "an unknown flag": logged(log_filter={"response_flag_filter": {"flags": ["XX"]}}),
    "a log without a path": http(access_log=[{"name": "l", "typed_config": {"@type": FILE}}]),
    "one filter of two": logged(log_filter={"or_filter": {"filters": [{"not_health_check_filter": {}}]}}),
    "no address": bootstrap({"name": "x", "filter_chains": [{"filters": [tcp(cluster="c")]}]}),
    "a name as an address": json.dumps(http()).replace("127.0.0.1", "localhost", 1),
    "no chains": bootstrap(listener() | {"filter_chains": []}),
    "chains that take the same": chained({"destination_port": 5}, {"destination_port": 5}),
    "a star within": chained({"server_names": ["a.*.example"]}),
    "a port of 70000": bootstrap(listener(tcp(cluster="c"), port=70_000)),
    "TCP without a cluster": bootstrap(listener(tcp())),
    "TCP without figures": bootstrap(listener(tcp(cluster="c", stat_prefix=""))),
    "no HTTP version": bootstrap(clusters=[speaking()]),
    "headers of no size": http(max_request_headers_kb=0),
    "headers of nine MiB": http(max_request_headers_kb=9_000),
    "a window too small": http(http2_protocol_options={"initial_stream_window_size": 5}),
    "an upgrade twice": http(upgrade_configs=[{"upgrade_type": "websocket"}, {"upgrade_type": "WebSocket"}]),
    "a node without a name": bootstrap(dynamic_resources={"cds_config": {"path": "/dev/null"}}),
    "ADS by nobody": by_ads(ads_config={"api_type": "GRPC", "transport_api_version": "V3", "grpc_services": [{"envoy_grpc": {"cluster_name": "none"}}]}),
    "clusters from nowhere": bootstrap(dynamic_resources={"cds_config": {}}),
    "a cluster twice": bootstrap(clusters=[cluster(), cluster()]),
    "a strange header checked": bootstrap(listener(manager(http_filters=[{"name": "r", "typed_config": {"@type": ROUTER, "strict_check_headers": ["x"]}}]))),
    "a source without a name": bootstrap(listener(manager(route_config=None, rds={"config_source": {"path": "/dev/null"}}))),
    "TLS below without a certificate": bootstrap(listener() | {"filter_chains": [{"filters": [tcp(cluster="c")], "transport_socket": {"name": "tls", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext"}}}]}),
}  # fmt: skip
"""Both refuse these."""

_FAULT = "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault"
_BUFFER = "type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer"
_ROUTER = {"name": "r", "typed_config": {"@type": ROUTER}}

STRICTER: dict[str, Plain | str] = {
    "no router": http(http_filters=[]),
    "a group that is not there": routed(regex_rewrite={"pattern": regex("a"), "substitution": r"\1"}),
    "a listener twice": bootstrap(listener(tcp(cluster="c"), port=81), listener(tcp(cluster="c"), port=82)),
    "another filter of requests": http(http_filters=[{"name": "b", "typed_config": {"@type": _BUFFER, "max_request_bytes": 5}}, _ROUTER]),
    "a filter switched off": http(http_filters=[{"name": "f", "disabled": True, "typed_config": {"@type": _FAULT}}, _ROUTER]),
    "another filter of connections": bootstrap(listener({"name": "e", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo"}})),
    "other words of its own": http(local_reply_config={"body_format": {"text_format_source": {"inline_string": "no"}}}),
    "mirrors": routed(request_mirror_policies=[{"cluster": "c"}]),
    "hedges": routed(hedge_policy={"hedge_on_per_try_timeout": True}),
    "redirects that are followed": routed(internal_redirect_policy={"max_internal_redirects": 2}),
    "CONNECT ended here": http(upgrade_configs=[{"upgrade_type": "CONNECT"}]),
    "another predicate of retries": routed(retry_policy={"retry_host_predicate": [{"name": "c", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.retry.host.omit_canary_hosts.v3.OmitCanaryHostsPredicate"}}]}),
    "a header hashed in part": routed(hash_policy=[{"header": {"header_name": "a", "regex_rewrite": {"pattern": regex("a"), "substitution": "b"}}}]),
    "state": matched({"prefix": "/", "dynamic_metadata": [{"filter": "a", "path": [{"key": "b"}], "value": {"present_match": True}}]}),
    "a template": matched({"path_match_policy": {"name": "t", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.path.match.uri_template.v3.UriTemplateMatchConfig", "path_template": "/a/{b}"}}}),
    "classes of Unicode": matched({"safe_regex": regex(r"\pL+")}),
    "a header of metadata": added("x", "%DYNAMIC_METADATA(a:b)%"),
    "a log by gRPC": http(access_log=[{"name": "g", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig", "common_config": {"log_name": "a", "transport_api_version": "V3", "grpc_service": {"envoy_grpc": {"cluster_name": "c"}}}}}]),
    "where it was sent to": bootstrap(listener(tcp(cluster="c"), use_original_dst=True)),
    "a pipe": bootstrap(listener(tcp(cluster="c")) | {"address": {"pipe": {"path": "/tmp/no-such-directory/x"}}}),
    "a tunnel": bootstrap(listener(tcp(cluster="c", tunneling_config={"hostname": "a:80"}))),
    "options of another protocol": bootstrap(clusters=[cluster(typed_extension_protocol_options={"envoy.filters.network.redis_proxy": {"@type": "type.googleapis.com/envoy.extensions.filters.network.redis_proxy.v3.RedisProtocolOptions"}})]),
    "a second document": json.dumps(http()) + "\n---\n{}\n",
    "a tag": "node: {id: !x a}",
    "a listener's runtime": bootstrap(layered_runtime={"layers": [{"name": "a", "static_layer": {"upstream": {"healthy_panic_threshold": 5}}}]}),
}  # fmt: skip
"""Envoy takes these; here they are refused by name, for they say where requests go, or who may pass, in a way that is not known here."""

LAXER: dict[str, Plain | str] = {
    "a program of RE2 that is long": matched({"safe_regex": regex("a{200}")}),
    "a word of YAML 1.1 for a text": "node: {id: yes, cluster: c}",
}
"""Envoy refuses these: it measures RE2's programs, and reads `yes` as a truth."""
