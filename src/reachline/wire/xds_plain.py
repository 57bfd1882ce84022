"""Resources of control planes as plain values, as they would stand in a document: the doors read them from there.

Knows protobuf, and needs the extra `xds`; imported only where it is used. What a resource means is not known here.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

try:
    from envoy.config.cluster.v3 import cluster_pb2
    from envoy.config.listener.v3 import listener_pb2
    from envoy.config.route.v3 import route_pb2
    from google.protobuf import json_format
    from google.protobuf.message import DecodeError
except ImportError as missing:
    raise ImportError(
        f"xDS needs the extra `xds`: pip install 'reachline[xds]' (no module {missing.name})"
    ) from missing

from reachline.errors import RemoteProtocolError
from reachline.wire.ads import CDS, LDS, RDS, Parcel

__all__ = ["plain"]

_KINDS: Final[dict[str, Any]] = {
    CDS: cluster_pb2.Cluster,
    LDS: listener_pb2.Listener,
    RDS: route_pb2.RouteConfiguration,
}
_EXTENSIONS: Final = "envoy.extensions"
_INNER: Final = (
    "access_loggers.file.v3.file", "access_loggers.stream.v3.stream", "clusters.dns.v3.dns_cluster",
    "filters.http.router.v3.router", "filters.listener.http_inspector.v3.http_inspector",
    "filters.listener.proxy_protocol.v3.proxy_protocol", "filters.listener.tls_inspector.v3.tls_inspector",
    "filters.network.http_connection_manager.v3.http_connection_manager", "filters.network.tcp_proxy.v3.tcp_proxy",
    "load_balancing_policies.least_request.v3.least_request", "load_balancing_policies.maglev.v3.maglev",
    "load_balancing_policies.random.v3.random", "load_balancing_policies.ring_hash.v3.ring_hash",
    "load_balancing_policies.round_robin.v3.round_robin", "load_balancing_policies.subset.v3.subset",
    "load_balancing_policies.client_side_weighted_round_robin.v3.client_side_weighted_round_robin",
    "load_balancing_policies.wrr_locality.v3.wrr_locality",
    "retry.host.previous_hosts.v3.previous_hosts", "transport_sockets.raw_buffer.v3.raw_buffer",
    "transport_sockets.tls.v3.tls", "upstreams.http.v3.http_protocol_options", "health_check.event_sinks.file.v3.file",
)  # fmt: skip
"""What may stand inside, as `typed_config`: its fields are read by these modules' descriptors. Others are refused by name."""
_loaded: Final[list[str]] = []


def plain(parcel: Parcel) -> dict[str, object]:
    """A resource's fields by the names of documents; RemoteProtocolError where it cannot be read."""
    _load()
    message = _KINDS[parcel.type_url]()
    try:
        message.ParseFromString(parcel.body)
        return dict(json_format.MessageToDict(message, preserving_proto_field_name=True))
    except (DecodeError, TypeError, ValueError, json_format.Error, RecursionError) as error:
        words = " ".join(str(error).split())[:300]
        raise RemoteProtocolError(f"cannot be read: {words or type(error).__name__}") from error


def _load() -> None:
    """Make what may stand inside known; a release of the messages may lack some."""
    if _loaded:
        return
    for name in _INNER:
        try:
            import_module(f"{_EXTENSIONS}.{name}_pb2")
        except ImportError:
            continue
        _loaded.append(name)
