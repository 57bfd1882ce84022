"""The network filters that are known here: the HTTP connection manager with its router, and the TCP proxy."""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from typing import Final

from reachline.core.pick.keying import By, HashPolicy
from reachline.doors.envoy.actions import upgrades
from reachline.doors.envoy.chain import Http2Options, HttpManager, Network, RouteSource, TcpProxy
from reachline.doors.envoy.fields import UINT32, Block
from reachline.doors.envoy.logs import access_logs
from reachline.doors.envoy.mutating import metadata_match
from reachline.doors.envoy.routes import RouteConfig, WeightedCluster
from reachline.doors.envoy.sources import source
from reachline.doors.envoy.vhosts import route_config

__all__ = ["MANAGER", "TCP_PROXY", "http2", "manager", "network", "tcp_proxy"]

_FILTERS: Final = "envoy.extensions.filters."
MANAGER: Final = f"{_FILTERS}network.http_connection_manager.v3.HttpConnectionManager"
TCP_PROXY: Final = f"{_FILTERS}network.tcp_proxy.v3.TcpProxy"
_ROUTER: Final = f"{_FILTERS}http.router.v3.Router"
_CODECS: Final = ("AUTO", "HTTP1", "HTTP2", "HTTP3")
_SERVERS: Final = ("OVERWRITE", "APPEND_IF_ABSENT", "PASS_THROUGH")
_CLIENTS: Final = ("SANITIZE", "FORWARD_ONLY", "APPEND_FORWARD", "SANITIZE_SET", "ALWAYS_FORWARD_ONLY")
_DETAILS: Final = ("subject", "cert", "chain", "dns", "uri")
_SLASHES: Final = (
    "IMPLEMENTATION_SPECIFIC_DEFAULT", "KEEP_UNCHANGED", "REJECT_REQUEST", "UNESCAPE_AND_REDIRECT", "UNESCAPE_AND_FORWARD",
)  # fmt: skip
_UNDERSCORES: Final = ("ALLOW", "REJECT_REQUEST", "DROP_HEADER")
_CHECKED: Final = frozenset((
    "x-envoy-upstream-rq-timeout-ms", "x-envoy-upstream-rq-per-try-timeout-ms", "x-envoy-max-retries",
    "x-envoy-retry-grpc-on", "x-envoy-retry-on",
))  # fmt: skip
_UNSUPPORTED: Final = {
    "scoped_routes": "use route_config or rds", "http3_protocol_options": "HTTP/3 is not spoken here",
    "original_ip_detection_extensions": "use xff_num_trusted_hops", "early_header_mutation_extensions": "",
    "forward_client_cert_matcher": "", "local_reply_config": "answers of this process are as Envoy's own",
    "represent_ipv4_remote_address_as_ipv4_mapped_ipv6": "", "path_normalization_options": "use normalize_path",
    "typed_header_validation_config": "", "proxy_status_config": "", "add_proxy_protocol_connection_state": "",
}  # fmt: skip
_EMPTY: Final = RouteConfig()


def manager(block: Block) -> HttpManager:
    """An HttpConnectionManager; what is wrong is told."""
    codec = block.word("codec_type", _CODECS, "AUTO")
    if codec == "HTTP3":
        block.refuse("codec_type", "is not supported here", "AUTO, HTTP1 and HTTP2 are")
    found = HttpManager(
        stat_prefix=block.text("stat_prefix", needed=True),
        routes=_routes(block),
        codec=codec,
        access_logs=access_logs(block),
        upgrades=upgrades(block),
    )
    found = _with_headers(block, found)
    found = _with_paths(block, found)
    found = _with_limits(block, found)
    found = _with_codecs(block, found)
    found = _with_router(block, found)
    block.noticed("tracing", "request_id_extension", why="requests are not traced")
    block.noticed("access_log_flush_interval", "flush_access_log_on_new_request", "access_log_options", why="a request is logged at its end")  # fmt: skip
    block.noticed("append_local_overload", "http1_safe_max_connection_duration")
    block.unsupported(_UNSUPPORTED)
    block.done()
    return found


def _routes(block: Block) -> RouteConfig | RouteSource:
    kind = block.one_of(("rds", "route_config", "scoped_routes"))
    plain, rds = block.block("route_config"), block.block("rds")
    if kind is None:
        block.found.refuse(block.path, "must have route_config or rds", about_key=True)
    if rds is not None:
        name, origin = rds.text("route_config_name", needed=True), source(rds.block("config_source"))
        if not rds.has("config_source"):
            rds.found.refuse(rds.at("config_source"), "is needed", about_key=True)
        rds.done()
        return _EMPTY if origin is None else RouteSource(name, origin)
    return _EMPTY if plain is None else route_config(plain)


def _with_headers(block: Block, found: HttpManager) -> HttpManager:
    details = block.block("set_current_client_cert_details")
    told = frozenset[str]()
    if details is not None:
        told = frozenset(each for each in _DETAILS if details.flag(each))
        details.done()
    scheme = block.block("scheme_header_transformation")
    overwrite = ""
    if scheme is not None:
        scheme.unsupported({"match_upstream": "write scheme_to_overwrite"})
        overwrite = scheme.word("scheme_to_overwrite", ("HTTP", "HTTPS"), "HTTP").lower() if scheme.has("scheme_to_overwrite") else ""  # fmt: skip
        scheme.aside("scheme_to_overwrite")
        scheme.done()
    internal = block.block("internal_address_config")
    networks: tuple[Network, ...] = ()
    if internal is not None:
        networks = tuple(each for one in internal.blocks("cidr_ranges") if (each := network(one)) is not None)
        internal.aside("unix_sockets")
        internal.done()
    return replace(
        found,
        server_name=block.text("server_name") or "envoy",
        server_header=block.word("server_header_transformation", _SERVERS, _SERVERS[0]),
        scheme=overwrite,
        via=block.text("via"),
        add_user_agent=block.flag("add_user_agent"),
        use_remote_address=block.flag("use_remote_address"),
        trusted_hops=block.whole("xff_num_trusted_hops"),
        skip_xff_append=block.flag("skip_xff_append"),
        append_x_forwarded_port=block.flag("append_x_forwarded_port"),
        internal_networks=networks,
        generate_request_id=block.flag("generate_request_id", default=True),
        preserve_request_id=block.flag("preserve_external_request_id"),
        request_id_in_response=block.flag("always_set_request_id_in_response"),
        client_certificate=block.word("forward_client_cert_details", _CLIENTS, _CLIENTS[0]),
        client_certificate_details=told,
        proxy_100_continue=block.flag("proxy_100_continue"),
    )


def _with_paths(block: Block, found: HttpManager) -> HttpManager:
    slashes = block.word("path_with_escaped_slashes_action", _SLASHES, _SLASHES[0])
    block.one_of(("strip_matching_host_port", "strip_any_host_port"))
    matching, any_port = block.flag("strip_matching_host_port"), block.flag("strip_any_host_port")
    return replace(
        found,
        normalize_path=block.flag("normalize_path"),
        merge_slashes=block.flag("merge_slashes"),
        escaped_slashes="KEEP_UNCHANGED" if slashes == _SLASHES[0] else slashes,
        strip_port="ANY" if any_port else "MATCHING" if matching else "NONE",
        strip_trailing_dot=block.flag("strip_trailing_host_dot"),
    )


def _with_limits(block: Block, found: HttpManager) -> HttpManager:
    kib = block.whole("max_request_headers_kb", 60, least=1, most=8_192)
    found = replace(
        found,
        stream_idle_timeout=block.seconds("stream_idle_timeout", 300.0, least=0),
        request_timeout=block.seconds("request_timeout", 0.0, least=0),
        request_headers_timeout=block.seconds("request_headers_timeout", 0.0, least=0),
        drain_timeout=block.seconds("drain_timeout", 5.0, least=0),
        delayed_close_timeout=block.seconds("delayed_close_timeout", 1.0, least=0),
        max_request_headers_kib=kib,
        stream_error_on_invalid_message=block.flag("stream_error_on_invalid_http_message"),
    )
    block.noticed("stream_flush_timeout", why="stream_idle_timeout counts")
    common = block.block("common_http_protocol_options")
    if common is None:
        return found
    found = replace(
        found,
        idle_timeout=common.seconds("idle_timeout", 3600.0, least=0),
        max_connection_duration=common.seconds("max_connection_duration", 0.0, least=0),
        max_stream_duration=common.seconds("max_stream_duration", 0.0, least=0),
        max_requests_per_connection=common.whole("max_requests_per_connection"),
        max_headers=common.whole("max_headers_count", 100, least=1),
        headers_with_underscores=common.word("headers_with_underscores_action", _UNDERSCORES, "ALLOW"),
    )
    common.noticed("max_response_headers_kb", why="it is a cluster's")
    common.done()
    return found


def _with_codecs(block: Block, found: HttpManager) -> HttpManager:
    first, second = block.block("http_protocol_options"), block.block("http2_protocol_options")
    if second is not None:
        found = replace(found, http2=http2(second))
    if first is None:
        return found
    found = replace(
        found,
        allow_absolute_url=first.flag("allow_absolute_url", default=True),
        accept_http_10=first.flag("accept_http_10"),
        default_host=first.text("default_host_for_http_10"),
        enable_trailers=first.flag("enable_trailers"),
        allow_chunked_length=first.flag("allow_chunked_length"),
        proper_case=proper_case(first),
    )
    if first.has("override_stream_error_on_invalid_http_message"):
        own = first.flag("override_stream_error_on_invalid_http_message")
        found = replace(found, stream_error_on_invalid_message=own)
    first.aside("override_stream_error_on_invalid_http_message", "use_balsa_parser")
    first.unsupported({"allow_custom_methods": "", "send_fully_qualified_url": "", "ignore_http_11_upgrade": ""})
    first.done()
    return found


def proper_case(block: Block) -> bool:
    """Whether `header_key_format` asks for `Proper-Case`."""
    inner = block.block("header_key_format")
    if inner is None:
        return False
    words = inner.block("proper_case_words")
    if words is not None:
        words.done()
    inner.unsupported({"stateful_formatter": "use proper_case_words"})
    inner.done()
    return words is not None


def http2(block: Block) -> Http2Options:
    """Http2ProtocolOptions."""
    base, windows = Http2Options(), (65_535, 2**31 - 1)
    keep = block.block("connection_keepalive")
    interval = timeout = None
    if keep is not None:
        interval, timeout = keep.maybe_seconds("interval", least=1), keep.maybe_seconds("timeout", least=1)
        if not keep.has("timeout"):
            keep.found.refuse(keep.at("timeout"), "is needed", about_key=True)
        keep.noticed("interval_jitter", "connection_idle_interval")
        keep.done()
    found = Http2Options(
        max_concurrent_streams=block.whole(
            "max_concurrent_streams", base.max_concurrent_streams, least=1, most=2**31 - 1
        ),
        stream_window=block.whole("initial_stream_window_size", base.stream_window, least=windows[0], most=windows[1]),
        connection_window=block.whole(
            "initial_connection_window_size", base.connection_window, least=windows[0], most=windows[1]
        ),
        allow_connect=block.flag("allow_connect"),
        keepalive_interval=interval,
        keepalive_timeout=timeout,
    )
    block.noticed(
        "hpack_table_size", "max_outbound_frames", "max_outbound_control_frames", "max_metadata_size",
        "max_consecutive_inbound_frames_with_empty_payload", "max_inbound_priority_frames_per_stream",
        "max_inbound_window_update_frames_per_data_frame_sent", "use_oghttp2_codec", why="this process has limits of its own",
    )  # fmt: skip
    block.aside("stream_error_on_invalid_http_messaging", "override_stream_error_on_invalid_http_message")
    block.unsupported({"allow_metadata": "", "custom_settings_parameters": ""})
    block.done()
    return found


def _with_router(block: Block, found: HttpManager) -> HttpManager:
    """The filters: the router alone, at the end."""
    filters = block.blocks("http_filters")
    router: Block | None = None
    before = len(block.found)
    for each in filters:
        name, is_off = each.text("name", needed=True), each.flag("disabled")
        each.unsupported({"config_discovery": "write typed_config"})
        each.aside("is_optional")
        typed = each.typed("typed_config")
        each.done()
        if typed is not None and typed[0] == _ROUTER and each is filters[-1] and not is_off:
            router = typed[1]
        elif typed is not None and typed[0] == _ROUTER:
            each.found.refuse(each.path, "must be the last filter, and on", about_key=True)
            typed[1].aside(*_ROUTER_FIELDS)
        else:
            kind = name if typed is None else typed[0].rpartition(".")[2]
            rule = f"is not supported here: {kind}" if typed is not None else "must have a typed_config"
            each.found.refuse(each.path, rule, "the router is", about_key=True)
    if router is None:
        if len(block.found) == before:
            block.found.refuse(block.at("http_filters"), "must end with the router", about_key=True)
        return found
    return _routed(router, found)


_ROUTER_FIELDS: Final = (
    "suppress_envoy_headers", "respect_expected_rq_timeout", "strict_check_headers", "upstream_log", "dynamic_stats",
    "start_child_span", "suppress_grpc_request_failure_code_stats", "upstream_log_options", "upstream_http_filters",
)  # fmt: skip


def _routed(router: Block, found: HttpManager) -> HttpManager:
    checked = tuple(each.lower() for each in router.texts("strict_check_headers"))
    if not set(checked) <= _CHECKED:
        router.refuse("strict_check_headers", f"must be of {', '.join(sorted(_CHECKED))}")
    found = replace(
        found,
        suppress_envoy_headers=router.flag("suppress_envoy_headers"),
        respect_expected_timeout=router.flag("respect_expected_rq_timeout"),
        strict_check_headers=checked,
        upstream_logs=access_logs(router, "upstream_log"),
    )
    router.aside("dynamic_stats", "start_child_span", "suppress_grpc_request_failure_code_stats")
    router.noticed("upstream_log_options", why="a try is logged at its end")
    router.unsupported(
        {"upstream_http_filters": "there is no filter chain here", "reject_connect_request_early_data": ""}
    )
    router.done()
    return found


def tcp_proxy(block: Block) -> TcpProxy:
    """A TcpProxy; what is wrong is told."""
    kind = block.one_of(("cluster", "weighted_clusters"))
    cluster, shares = block.text("cluster"), block.block("weighted_clusters")
    if kind is None or (kind == "cluster" and not cluster):
        block.found.refuse(block.path, "must have cluster or weighted_clusters", about_key=True)
    policies = _kept(block)
    idle = block.maybe_seconds("idle_timeout")
    found = TcpProxy(
        stat_prefix=block.text("stat_prefix", needed=True),
        cluster=cluster,
        weighted=() if shares is None else _shares(shares),
        metadata_match=metadata_match(block.block("metadata_match")),
        idle_timeout=3600.0 if idle is None else idle,
        max_connection_duration=block.seconds("max_downstream_connection_duration", 0.0),
        connect_attempts=block.whole("max_connect_attempts", 1, least=1),
        hash=policies,
        access_logs=access_logs(block),
    )
    block.noticed(
        "access_log_flush_interval", "flush_access_log_on_connected", "access_log_options", why="a connection is logged at its end"
    )  # fmt: skip
    block.noticed("max_downstream_connection_duration_jitter_percentage", why="durations have no jitter")
    block.unsupported(
        {
            "on_demand": "name the cluster", "tunneling_config": "connections are not tunnelled", "backoff_options": "",
            "proxy_protocol_tlvs": "", "upstream_connect_mode": "", "max_early_data_bytes": "",
            "downstream_idle_timeout": "use idle_timeout", "upstream_idle_timeout": "use idle_timeout",
        }
    )  # fmt: skip
    block.done()
    return found


def _kept(block: Block) -> tuple[HashPolicy, ...]:
    """What keeps connections to an endpoint: where they come from."""
    found = []
    for each in block.blocks("hash_policy"):
        if each.one_of(("source_ip", "filter_state")) is None:
            each.found.refuse(each.path, "must have source_ip", about_key=True)
        inner = each.block("source_ip")
        if inner is not None:
            inner.done()
            found.append(HashPolicy(by=By.SOURCE_IP))
        each.unsupported({"filter_state": "there is no filter state here"})
        each.done()
    return tuple(found)


def _shares(block: Block) -> tuple[WeightedCluster, ...]:
    found = []
    for each in block.blocks("clusters"):
        one = WeightedCluster(
            name=each.text("name", needed=True),
            weight=each.whole("weight", least=1),
            metadata_match=metadata_match(each.block("metadata_match")),
        )
        if not each.has("weight"):
            each.found.refuse(each.at("weight"), "is needed", about_key=True)
        each.done()
        found.append(one)
    if not found:
        block.found.refuse(block.at("clusters"), "is needed and must not be empty", about_key=True)
    elif sum(each.weight for each in found) > UINT32:
        block.refuse("clusters", f"has weights that sum to more than {UINT32}")
    block.done()
    return tuple(found)


def network(block: Block) -> Network | None:
    """A CidrRange; without `prefix_len` it is of no bits, as in Envoy."""
    prefix, bits = block.text("address_prefix", needed=True), block.whole("prefix_len", 0, most=128)
    block.done()
    try:
        address = ipaddress.ip_address(prefix)
    except ValueError:
        if prefix:
            block.refuse("address_prefix", "must be a numeric address")
        return None
    return Network(prefix, min(bits, address.max_prefixlen))
