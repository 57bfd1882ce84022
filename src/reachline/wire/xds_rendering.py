"""Clusters, listeners and routes as xDS messages' bytes. Values in, bytes out; knows no snapshot, no document and no stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

try:
    from envoy.config.accesslog.v3 import accesslog_pb2
    from envoy.config.cluster.v3 import cluster_pb2
    from envoy.config.core.v3 import address_pb2, config_source_pb2
    from envoy.config.listener.v3 import listener_pb2
    from envoy.config.route.v3 import route_components_pb2, route_pb2
    from envoy.extensions.access_loggers.grpc.v3 import als_pb2
    from envoy.extensions.filters.http.router.v3 import router_pb2
    from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as manager_pb2
    from envoy.extensions.filters.network.tcp_proxy.v3 import tcp_proxy_pb2
    from envoy.extensions.retry.host.previous_hosts.v3 import previous_hosts_pb2
    from envoy.extensions.transport_sockets.raw_buffer.v3 import raw_buffer_pb2
    from envoy.extensions.transport_sockets.tls.v3 import common_pb2, tls_pb2
    from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2
    from google.protobuf import any_pb2
    from google.protobuf.message import Message
except ImportError as missing:
    raise ImportError(
        f"xDS needs the extra `xds`: pip install 'reachline[xds]' (no module {missing.name})"
    ) from missing

from reachline.members import Address, is_numeric
from reachline.model import Seconds

__all__ = [
    "CONTROL", "Api", "Entrance", "Retry", "Route", "Secured", "Upstream", "api_listener", "cluster", "listener", "routes",
]  # fmt: skip

CONTROL: Final = "_reachline"
"""The name under which a bootstrap knows the center, which no cluster of a document can have: where access logs go."""
_ADS: Final = config_source_pb2.ConfigSource(ads={}, resource_api_version="V3")
_HTTP2: Final = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_MATCH: Final = "envoy.transport_socket_match"
_TLS: Final = "envoy.transport_sockets.tls"
_BUDGET_PERCENT: Final = 20.0
"""Retries among a cluster's calls under way, the SDK's share: where all lines fail, they are asked a fifth more often…"""
_BUDGET_LEAST: Final = 50
"""…or this many at once. Each draw for a retry moves the round on, so that with two lines every call begins on the dead one, with three
second one: room for 9 000 calls a second of 10 ms, where a fifth would not do. A twentieth of Envoy's limit of calls at once (1 024)."""
_BACK_OFF: Final[Seconds] = 0.001
"""Envoy's least: another line is asked, which is in no trouble. Its usual 25 ms would spare nobody, and take the budget's room."""
_OTHERS_LOOKED_FOR: Final = 20
"""Draws until a line is found that the call was not tried on: with two lines alike, one call in a million finds none."""
_RESPONSE_TIMEOUT: Final = "UT"
"""Envoy's flag."""


class Secured(NamedTuple):
    """How TLS is spoken to a cluster's lines, by their host names. `ca`: PEM file where the data plane runs."""

    hosts: tuple[str, ...]
    ca: str
    verifies: bool = True
    is_http2: bool = False


class Upstream(NamedTuple):
    """A cluster without its endpoints."""

    name: str
    connect_timeout: Seconds
    is_http2: bool = False
    secured: Secured | None = None
    reports_load: bool = False
    """Whether clients are asked to report calls to the server that told them of it (gRPC does, Envoy is told by its bootstrap)."""
    is_retried: bool = False
    """Whether routes of ours try calls again: within a budget."""


class Retry(NamedTuple):
    """When a call is tried again, on an endpoint where it was not."""

    most: int
    """Tries beyond the first."""
    on: tuple[str, ...]
    """Envoy's words."""


class Route(NamedTuple):
    """Calls whose path begins with `prefix` go to `cluster`. `timeout` of a whole call, 0: none."""

    cluster: str
    prefix: str = "/"
    timeout: Seconds | None = None
    is_host_rewritten: bool = False
    retry: Retry | None = None
    is_upgraded: bool = False
    """Whether calls may become a WebSocket."""


class Entrance(NamedTuple):
    """One address at which a proxy listens. `cluster` set: its bytes go there as they come; else by the routes of its name."""

    name: str
    address: Address
    cluster: str = ""
    logs_access: bool = False
    """Whether each call is told to the center, by each of its attempts."""


class Api(NamedTuple):
    """What a gRPC client dials as `xds:///name`."""

    name: str


def _bytes(message: Message) -> bytes:
    # The same content is the same bytes, also where it holds maps: versions are made of them.
    return bytes(message.SerializeToString(deterministic=True))


def cluster(upstream: Upstream) -> bytes:
    """A Cluster whose endpoints come by EDS on the same stream, split by the weights of localities, never in panic."""
    message = cluster_pb2.Cluster(
        name=upstream.name, type=cluster_pb2.Cluster.EDS, eds_cluster_config={"eds_config": _ADS}
    )
    _set(message.connect_timeout, upstream.connect_timeout)
    # Guard and fail-open are the center's: whom it leaves weight gets calls, and nobody else.
    message.common_lb_config.healthy_panic_threshold.value = 0
    message.common_lb_config.locality_weighted_lb_config.SetInParent()
    if upstream.is_retried:
        budget = message.circuit_breakers.thresholds.add().retry_budget
        budget.budget_percent.value, budget.min_retry_concurrency.value = _BUDGET_PERCENT, _BUDGET_LEAST
    if upstream.is_http2:
        options = http_protocol_options_pb2.HttpProtocolOptions()
        options.explicit_http_config.http2_protocol_options.SetInParent()
        message.typed_extension_protocol_options[_HTTP2].Pack(options)
    if upstream.secured is not None:
        _secure(message, upstream.secured)
    if upstream.reports_load:
        message.lrs_server.self.SetInParent()
    return _bytes(message)


def _secure(message: Any, secured: Secured) -> None:
    """TLS by each line's own name; lines without it are spoken to in plain."""
    for host in secured.hosts:
        match = message.transport_socket_matches.add(name=host)
        match.match.fields["tls"].string_value = host
        match.transport_socket.name = _TLS
        match.transport_socket.typed_config.Pack(_context(host, secured))
    plain = message.transport_socket_matches.add(name="plain")
    plain.match.SetInParent()
    plain.transport_socket.name = "envoy.transport_sockets.raw_buffer"
    plain.transport_socket.typed_config.Pack(raw_buffer_pb2.RawBuffer())


def _context(host: str, secured: Secured) -> Any:
    context = tls_pb2.UpstreamTlsContext()
    is_address = is_numeric(host)
    if not is_address:
        context.sni = host
    if secured.is_http2:
        context.common_tls_context.alpn_protocols.append("h2")
    if secured.verifies:
        validation = context.common_tls_context.validation_context
        validation.trusted_ca.filename = secured.ca
        kind = common_pb2.SubjectAltNameMatcher.IP_ADDRESS if is_address else common_pb2.SubjectAltNameMatcher.DNS
        validation.match_typed_subject_alt_names.add(san_type=kind).matcher.exact = host
    return context


# Listeners and routes.


def listener(entrance: Entrance) -> bytes:
    """A proxy's Listener: HTTP by the RouteConfiguration of its own name, or bytes to one cluster."""
    host, port = entrance.address
    message = listener_pb2.Listener(
        name=entrance.name, address=address_pb2.Address(socket_address={"address": host, "port_value": port})
    )
    filter_ = message.filter_chains.add().filters.add()
    log = _access_log(entrance) if entrance.logs_access else None
    if entrance.cluster:
        filter_.name = "envoy.filters.network.tcp_proxy"
        filter_.typed_config.Pack(
            tcp_proxy_pb2.TcpProxy(stat_prefix=entrance.name, cluster=entrance.cluster, access_log=log and [log])
        )
    else:
        filter_.name = "envoy.filters.network.http_connection_manager"
        filter_.typed_config.Pack(_manager(entrance.name, log))
    return _bytes(message)


def _manager(name: str, log: Any = None) -> Any:
    """`log` is the router's, of each attempt; the manager's is of those whole calls of which it does not know that they took too long."""
    router = any_pb2.Any()
    router.Pack(router_pb2.Router(upstream_log=log and [log]))
    late = accesslog_pb2.AccessLogFilter(response_flag_filter={"flags": [_RESPONSE_TIMEOUT]})
    return manager_pb2.HttpConnectionManager(
        stat_prefix=name,
        rds=manager_pb2.Rds(route_config_name=name, config_source=_ADS),
        http_filters=[manager_pb2.HttpFilter(name="envoy.filters.http.router", typed_config=router)],
        access_log=log and [accesslog_pb2.AccessLog(name=log.name, typed_config=log.typed_config, filter=late)],
    )


def _access_log(entrance: Entrance) -> Any:
    log = accesslog_pb2.AccessLog(name="envoy.access_loggers.grpc")
    kind = als_pb2.TcpGrpcAccessLogConfig if entrance.cluster else als_pb2.HttpGrpcAccessLogConfig
    config = kind()
    common = config.common_config
    common.log_name, common.transport_api_version = CONTROL, config_source_pb2.ApiVersion.V3
    common.grpc_service.envoy_grpc.cluster_name = CONTROL
    log.typed_config.Pack(config)
    return log


def api_listener(api: Api) -> bytes:
    """What a gRPC client that dials `xds:///name` asks for."""
    message = listener_pb2.Listener(name=api.name)
    message.api_listener.api_listener.Pack(_manager(api.name))
    return _bytes(message)


def routes(name: str, hosts: Sequence[tuple[str, Sequence[Route]]]) -> bytes:
    """A RouteConfiguration: for each host name (`*`: any other) its routes, the first that fits counts; ports in Host are not read."""
    message = route_pb2.RouteConfiguration(name=name, ignore_port_in_host_matching=True)
    for host, found in hosts:
        virtual = message.virtual_hosts.add(name=host, domains=[host])
        virtual.routes.extend(map(_route, found))
    return _bytes(message)


def _route(route: Route) -> Any:
    message = route_components_pb2.Route()
    if route.prefix.rstrip("/"):
        message.match.path_separated_prefix = route.prefix.rstrip("/")
    else:
        message.match.prefix = route.prefix
    message.route.cluster = route.cluster
    if route.timeout is not None:
        _set(message.route.timeout, route.timeout)
    if route.is_host_rewritten:
        message.route.auto_host_rewrite.value = True
    if route.is_upgraded:
        message.route.upgrade_configs.add(upgrade_type="websocket")
    if route.retry is not None:
        _retry(message.route.retry_policy, route.retry)
    return message


def _retry(message: Any, retry: Retry) -> None:
    message.retry_on, message.num_retries.value = ",".join(retry.on), retry.most
    message.retry_host_predicate.add(name="envoy.retry_host_predicates.previous_hosts").typed_config.Pack(
        previous_hosts_pb2.PreviousHostsPredicate()
    )
    message.host_selection_retry_max_attempts = _OTHERS_LOOKED_FOR
    _set(message.retry_back_off.base_interval, _BACK_OFF)


def _set(duration: Any, seconds: Seconds) -> None:
    duration.FromNanoseconds(round(seconds * 1e9))
