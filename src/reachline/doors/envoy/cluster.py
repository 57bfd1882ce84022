"""One cluster of an Envoy document, each of its fields read, left aside or refused by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from reachline.doors.envoy.balancing import balancing
from reachline.doors.envoy.checks import check
from reachline.doors.envoy.circuits import thresholds
from reachline.doors.envoy.fields import Block
from reachline.doors.envoy.naming import assignment, dns, eds
from reachline.doors.envoy.outliers import outliers
from reachline.doors.envoy.values import Cluster, Type

__all__ = ["cluster"]

_TYPES: Final = ("STATIC", "STRICT_DNS", "LOGICAL_DNS", "EDS", "ORIGINAL_DST")
_ASIDE: Final = (
    "alt_stat_name", "per_connection_buffer_limit_bytes", "max_requests_per_connection", "common_http_protocol_options",
    "http_protocol_options", "http2_protocol_options", "cleanup_interval", "metadata", "upstream_connection_options",
    "track_timeout_budgets", "track_cluster_stats", "lrs_report_endpoint_metrics", "upstream_http_protocol_options",
    "protocol_selection", "typed_extension_protocol_options",
)  # fmt: skip
"""About connections, protocols and figures: those are the caller's own, or not ours to keep."""
_UNSUPPORTED: Final = {
    "transport_socket_matcher": "endpoints of one cluster are reached alike",
    "upstream_bind_config": "bind in the client, or give a line of the reach door a source",
    "filters": "there is no filter chain here",
    "lrs_server": "",
    "upstream_config": "",
    "preconnect_policy": "",
    "connection_pool_per_downstream_connection": "there are no downstream connections here",
    "original_dst_lb_config": "type: ORIGINAL_DST is not supported here",
}
_MATCHES: Final = {"transport_socket_matches": "endpoints of one cluster are reached alike"}
"""By who leaves it to others how endpoints are spoken to."""
_RAW: Final = "type.googleapis.com/envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer"
_DNS: Final = "type.googleapis.com/envoy.extensions.clusters.dns.v3.DnsCluster"
_HTTP: Final = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


def cluster(block: Block, *, is_whole: bool = False) -> Cluster | None:
    """The cluster; None where it has no name. `is_whole`: how its endpoints are spoken to is read elsewhere, not left aside."""
    kind, names = _type(block)
    is_http2 = _is_http2(block)
    common = block.block("common_lb_config")
    balance = balancing(block, common)
    usual, high = thresholds(block.block("circuit_breakers"))
    name = block.text("name", needed=True)
    found = Cluster(
        name=name,
        type=kind,
        membership=assignment(block.block("load_assignment"), kind),
        connect_timeout=block.seconds("connect_timeout", 5.0),
        dns=dns(block, names, kind),
        eds=eds(block, name, kind),
        check=check(block, http2=is_http2, is_whole=is_whole),
        outliers=outliers(block.block("outlier_detection")),
        policy=balance.policy,
        by_locality=balance.by_locality,
        zone_least=balance.zone_least,
        subsets=balance.subsets,
        hash_hostnames=balance.hash_hostnames,
        thresholds=usual,
        high_thresholds=high,
        close_connections_on_host_health_failure=block.flag("close_connections_on_host_health_failure"),
        ignore_health_on_host_removal=block.flag("ignore_health_on_host_removal"),
        wait_for_warm_on_init=block.flag("wait_for_warm_on_init", default=True),
    )
    if common is not None:
        found = _with_common(common, found, is_custom=names is not None)
    _check_endpoints(block, found)
    _transport(block, is_checked=found.check is not None, is_whole=is_whole)
    block.aside(*_ASIDE)
    block.unsupported(_UNSUPPORTED if is_whole else _UNSUPPORTED | _MATCHES)
    block.done()
    return found if name else None


def _with_common(common: Block, found: Cluster, *, is_custom: bool) -> Cluster:
    """With the fields of `common_lb_config` that are not about balancing."""
    found = replace(
        found,
        update_merge_window=common.seconds("update_merge_window", 1.0, least=0),
        ignore_new_hosts_until_first_hc=common.flag("ignore_new_hosts_until_first_hc"),
        close_connections_on_host_set_change=common.flag("close_connections_on_host_set_change"),
    )
    is_strict = found.type is Type.STRICT_DNS and not is_custom
    if common.has("consistent_hashing_lb_config") and found.hash_hostnames and not is_strict:
        rule = f"use_hostname_for_hashing goes with type: STRICT_DNS, not with {'cluster_type' if is_custom else found.type.value}"
        common.refuse("consistent_hashing_lb_config", rule, "give endpoints a hash_key in the metadata of envoy.lb")
    common.unsupported({"override_host_status": "there are no overridden hosts here"})
    common.done()
    return found


def _type(block: Block) -> tuple[Type, Block | None]:
    """How endpoints are found, and the block of `envoy.cluster.dns` where that says so."""
    block.one_of(("type", "cluster_type"))
    kind, custom = block.word("type", _TYPES, "STATIC"), block.block("cluster_type")
    if kind == "ORIGINAL_DST":
        block.refuse("type", "is not supported here", "STATIC, STRICT_DNS, LOGICAL_DNS and EDS are")
        return Type.STATIC, None
    if custom is None:
        return Type(kind), None
    custom.text("name", needed=True)
    config = custom.block("typed_config")
    custom.done()
    if config is None or config.text("@type") != _DNS:
        custom.found.refuse(custom.path, "only envoy.cluster.dns is supported, with its typed_config", about_key=True)
        return Type.STATIC, None
    return Type.LOGICAL_DNS if config.flag("all_addresses_in_single_endpoint") else Type.STRICT_DNS, config


def _is_http2(block: Block) -> bool:
    """Whether endpoints are spoken to by HTTP/2, which a gRPC check needs."""
    http = block.named("typed_extension_protocol_options", _HTTP)
    if http is None:
        return block.has("http2_protocol_options")
    http.unsupported({"outlier_detection": "which answers are errors is the caller's to say, call by call"})
    explicit = http.block("explicit_http_config")
    return explicit is not None and explicit.has("http2_protocol_options")


def _check_endpoints(block: Block, found: Cluster) -> None:
    """That there are endpoints where the type says so, and that a locality's weight holds for all of its priorities."""
    if found.type is Type.EDS and found.membership.members:
        block.refuse("load_assignment", "is not read of an EDS cluster", "its endpoints come by eds_cluster_config")
    if found.type is not Type.EDS and not block.has("load_assignment"):
        block.found.notice(block.path, "has no load_assignment: the cluster has no endpoints")
    weights: dict[str, int] = {}
    for place, weight in found.membership.locality_weights.items() if found.by_locality else ():
        where = str(place.locality)
        if weights.setdefault(where, weight) != weight:
            rule = f"gives the locality {where or 'without a name'} two weights, by priority"
            block.refuse("load_assignment", rule, "one weight for all priorities is supported")


def _transport(block: Block, *, is_checked: bool, is_whole: bool) -> None:
    socket = block.block("transport_socket")
    if socket is None:
        return
    socket.text("name", needed=not is_whole)
    config = socket.block("typed_config")
    if not is_whole:
        socket.done()
    if config is None or config.text("@type") == _RAW:
        return
    if is_whole:
        return
    if is_checked:
        block.found.refuse(socket.path, "is not supported together with health_checks", about_key=True)
    else:
        block.found.notice(socket.path, "is left aside: the client that makes the calls speaks TLS")
