"""What an Envoy document says beside its clusters, as plain values in our words: listeners, filter chains, sources.

TLS is in `secured`, logs are in `logged`, routes in `routes`.

Refuses to know YAML, positions and sockets. Names and defaults are Envoy's; durations are seconds, 0 is "no limit" where
the docstring says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from reachline.core.pick.keying import HashPolicy
from reachline.doors.envoy.logged import AccessLog
from reachline.doors.envoy.routes import RouteConfig, Upgrade, WeightedCluster
from reachline.doors.envoy.secured import DownstreamTls, SocketMatch, UpstreamTls
from reachline.doors.envoy.values import Settings
from reachline.errors import Problem
from reachline.members import Address
from reachline.model import Locality, Seconds

__all__ = [
    "Admin",
    "Ads",
    "Chain",
    "ChainMatch",
    "FilterChain",
    "Http2Options",
    "HttpManager",
    "Listener",
    "Network",
    "Node",
    "RouteSource",
    "Source",
    "TcpProxy",
    "Upstream",
]


class Network(NamedTuple):
    """A range of addresses: `10.0.0.0/8`, the address as it was written and its bits."""

    prefix: str
    bits: int

    def __str__(self) -> str:
        return f"{self.prefix}/{self.bits}"


class Source(NamedTuple):
    """Where resources come from: a file, or ADS."""

    path: str = ""
    """A file that holds a DiscoveryResponse; empty: by ADS."""
    initial_fetch_timeout: Seconds = 15.0
    """0: as long as it takes."""
    watched: str = ""
    """A directory in which a move is waited for instead of at the file; empty: the file's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ads:
    """`ads_config`, or a stream of its own for one kind of resources."""

    cluster: str = ""
    """The cluster that serves it (`envoy_grpc`)."""
    target: str = ""
    """`google_grpc.target_uri`; empty: by cluster."""
    delta: bool = False
    authority: str = ""
    metadata: tuple[tuple[str, str], ...] = ()
    """`initial_metadata`, sent with the call."""
    set_node_once: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Who this process says that it is."""

    id: str = ""
    cluster: str = ""
    locality: Locality = Locality()
    metadata: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Http2Options:
    """Limits of HTTP/2; Envoy's defaults."""

    max_concurrent_streams: int = 1_024
    stream_window: int = 16_777_216
    connection_window: int = 25_165_824
    allow_connect: bool = False
    keepalive_interval: Seconds | None = None
    keepalive_timeout: Seconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """How a cluster's endpoints are spoken to."""

    protocol: str = "HTTP1"
    """HTTP1, HTTP2, AUTO (by ALPN) or DOWNSTREAM (as the client speaks)."""
    tls: UpstreamTls | None = None
    """Of endpoints that none of `by_match` fits; None: plain text."""
    by_match: tuple[SocketMatch, ...] = ()
    """The first one that an endpoint's metadata fits is how it is spoken to."""
    idle_timeout: Seconds = 3600.0
    """Of a connection without requests; 0: no limit."""
    max_connection_duration: Seconds = 0.0
    """0: no limit."""
    max_stream_duration: Seconds = 0.0
    """0: no limit."""
    max_requests_per_connection: int = 0
    """0: no limit."""
    max_headers: int = 100
    max_response_headers_kib: int = 60
    buffer_limit: int = 1 << 20
    """Bytes that are held of a connection before its reading is paused."""
    http2: Http2Options = Http2Options()
    accept_http_10: bool = False
    enable_trailers: bool = False
    keepalive: tuple[int, int, int] | None = None
    """TCP keepalive: (probes, seconds of silence before, seconds between); 0 in one: the machine's own."""

    @property
    def secured(self) -> tuple[UpstreamTls, ...]:
        """TLS of every kind that it may be spoken to by."""
        return tuple(each for each in (self.tls, *(match.tls for match in self.by_match)) if each is not None)


class RouteSource(NamedTuple):
    """A route configuration that comes by name (RDS)."""

    name: str
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpManager:
    """An HttpConnectionManager with its router."""

    stat_prefix: str
    routes: RouteConfig | RouteSource
    codec: str = "AUTO"
    """AUTO, HTTP1 or HTTP2."""
    access_logs: tuple[AccessLog, ...] = ()
    # headers
    server_name: str = "envoy"
    server_header: str = "OVERWRITE"
    """OVERWRITE, APPEND_IF_ABSENT or PASS_THROUGH."""
    scheme: str = ""
    """What `:scheme` is overwritten with; empty: it stays."""
    via: str = ""
    add_user_agent: bool = False
    use_remote_address: bool = False
    trusted_hops: int = 0
    skip_xff_append: bool = False
    append_x_forwarded_port: bool = False
    internal_networks: tuple[Network, ...] = ()
    """Addresses that count as internal; where none are named none do (Envoy from 1.33 on trusts no private ranges by itself)."""
    generate_request_id: bool = True
    preserve_request_id: bool = False
    request_id_in_response: bool = False
    client_certificate: str = "SANITIZE"
    """x-forwarded-client-cert: SANITIZE, FORWARD_ONLY, APPEND_FORWARD, SANITIZE_SET or ALWAYS_FORWARD_ONLY."""
    client_certificate_details: frozenset[str] = frozenset()
    """subject, cert, chain, dns, uri: what of the certificate is told."""
    proxy_100_continue: bool = False
    # paths and authorities
    normalize_path: bool = False
    merge_slashes: bool = False
    escaped_slashes: str = "KEEP_UNCHANGED"
    """KEEP_UNCHANGED, REJECT_REQUEST, UNESCAPE_AND_REDIRECT or UNESCAPE_AND_FORWARD."""
    strip_port: str = "NONE"
    """Of the authority: NONE, MATCHING (the listener's own port) or ANY."""
    strip_trailing_dot: bool = False
    # limits and times
    idle_timeout: Seconds = 3600.0
    """Of a connection without requests; 0: no limit."""
    stream_idle_timeout: Seconds = 300.0
    """Of a request without any bytes either way; 0: no limit."""
    request_timeout: Seconds = 0.0
    """Until a request is here whole; 0: no limit."""
    request_headers_timeout: Seconds = 0.0
    """Until its headers are; 0: no limit."""
    max_connection_duration: Seconds = 0.0
    max_stream_duration: Seconds = 0.0
    max_requests_per_connection: int = 0
    """0: no limit."""
    max_headers: int = 100
    max_request_headers_kib: int = 60
    headers_with_underscores: str = "ALLOW"
    """ALLOW, REJECT_REQUEST or DROP_HEADER."""
    drain_timeout: Seconds = 5.0
    delayed_close_timeout: Seconds = 1.0
    stream_error_on_invalid_message: bool = False
    # codecs
    allow_absolute_url: bool = True
    accept_http_10: bool = False
    default_host: str = ""
    """Of HTTP/1.0 requests without one."""
    enable_trailers: bool = False
    allow_chunked_length: bool = False
    proper_case: bool = False
    """Whether names of headers go out as `Proper-Case` by HTTP/1.1."""
    http2: Http2Options = Http2Options()
    upgrades: tuple[Upgrade, ...] = ()
    # the router filter
    suppress_envoy_headers: bool = False
    respect_expected_timeout: bool = False
    """`respect_expected_rq_timeout`: whether `x-envoy-expected-rq-timeout-ms` of a request is believed."""
    strict_check_headers: tuple[str, ...] = ()
    upstream_logs: tuple[AccessLog, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpProxy:
    """A TcpProxy. Exactly one of `cluster` and `weighted`."""

    stat_prefix: str
    cluster: str = ""
    weighted: tuple[WeightedCluster, ...] = ()
    metadata_match: Mapping[str, str] = field(default_factory=dict)
    idle_timeout: Seconds = 3600.0
    """Without any bytes either way; 0: no limit."""
    max_connection_duration: Seconds = 0.0
    """0: no limit."""
    connect_attempts: int = 1
    hash: tuple[HashPolicy, ...] = ()
    access_logs: tuple[AccessLog, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainMatch:
    """Which connections a chain takes; what is empty or None takes all. Envoy's order of looking is `routing.chain_for`'s."""

    port: int | None = None
    """Of the destination."""
    to: tuple[Network, ...] = ()
    """Of the destination."""
    server_names: tuple[str, ...] = ()
    """SNI: exact or `*.suffix`, in lower case."""
    transport: str = ""
    """`tls` or `raw_buffer`."""
    alpn: tuple[str, ...] = ()
    directly_from: tuple[Network, ...] = ()
    source_type: str = "ANY"
    """ANY, SAME_IP_OR_LOOPBACK or EXTERNAL."""
    source: tuple[Network, ...] = ()
    source_ports: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterChain:
    """Who it takes, what is spoken below, and what takes over."""

    name: str = ""
    match: ChainMatch = ChainMatch()
    tls: DownstreamTls | None = None
    handler: HttpManager | TcpProxy
    handshake_timeout: Seconds = 0.0
    """`transport_socket_connect_timeout`; 0: no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One listener."""

    name: str
    address: Address
    """Port 0: any that is free."""
    more_addresses: tuple[Address, ...] = ()
    chains: tuple[FilterChain, ...] = ()
    default: FilterChain | None = None
    inspect_tls: bool = False
    """`tls_inspector`: SNI and ALPN are looked at before a chain is chosen."""
    inspect_http: bool = False
    proxy_protocol: bool = False
    """Whether connections begin with a PROXY header, which says where they come from."""
    listener_filters_timeout: Seconds = 15.0
    """0: no limit."""
    continue_on_timeout: bool = False
    buffer_limit: int = 1 << 20
    bind: bool = True
    """`bind_to_port`."""
    backlog: int | None = None
    access_logs: tuple[AccessLog, ...] = ()
    """Of connections that no chain took, or that ended early."""
    drain_on_modify_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Admin:
    """The admin's door."""

    address: Address
    access_logs: tuple[AccessLog, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """A whole document. `settings` are its clusters, as the other readers of this door see them."""

    settings: Settings = Settings()
    upstreams: Mapping[str, Upstream] = field(default_factory=dict)
    """How each cluster of `settings.clusters` is spoken to, by its name."""
    listeners: tuple[Listener, ...] = ()
    admin: Admin | None = None
    node: Node = Node()
    lds: Source | None = None
    """Where more listeners come from."""
    cds: Source | None = None
    """Where more clusters come from."""
    ads: Ads | None = None
    notices: tuple[Problem, ...] = ()
    """What has no effect here and changes nothing of where traffic goes or who may pass."""
