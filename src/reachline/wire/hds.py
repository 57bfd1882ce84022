"""Health discovery (HDS): what an Envoy is asked to probe, and what it says of it. Messages ⇄ values; needs the extra `xds`.

Envoy says of each endpoint only whether its last probes went well: no round trip, no count, no reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from reachline.wire.telling import Teller, read, teller_of

try:
    from envoy.config.core.v3 import base_pb2, health_check_pb2
    from envoy.extensions.transport_sockets.tls.v3 import tls_pb2
    from envoy.service.health.v3 import hds_pb2
    from envoy.type.v3 import http_pb2
except ImportError as missing:
    raise ImportError(
        f"xDS needs the extra `xds`: pip install 'reachline[xds]' (no module {missing.name})"
    ) from missing

from reachline.errors import RemoteProtocolError
from reachline.model import Health, Kind
from reachline.wire.request import Request

__all__ = ["METHOD", "MOST_VERDICTS", "Ask", "Asked", "Introduced", "Secured", "Told", "Verdict", "decode", "encode"]

METHOD: Final = "/envoy.service.health.v3.HealthDiscoveryService/StreamHealthCheck"
MOST_VERDICTS: Final = 20_000
"""Endpoints of one report: twice the lines that a center is built for; to read them takes an eighth of a second."""
_KINDS: Final = {hds_pb2.Capability.HTTP: Kind.HTTP, hds_pb2.Capability.TCP: Kind.TCP}
_HEALTH: Final = {number: Health[name] for name, number in health_check_pb2.HealthStatus.items()}
_MATCH: Final = "reachline"
"""By this name a check finds the transport socket that stands beside it."""


class Secured(NamedTuple):
    """TLS before the probe. Envoy does not check the certificate: it has no roots but those of its own configuration."""

    name: str
    alpn: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What an HTTP check asks, and what it expects; status ranges with both ends included."""

    request: Request = field(repr=False)
    expect: tuple[tuple[int, int], ...]
    body: bytes = b""
    """What the page must contain; empty: anything."""
    is_second: bool = False
    """HTTP/2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One line by one kind: probed at each of its addresses, and reported under `name`."""

    name: str
    addresses: tuple[tuple[str, int], ...]
    interval_ms: int
    timeout_ms: int
    http: Asked | None = None
    """None: being connected is all, unless…"""
    send: bytes = b""
    """…something is sent then…"""
    receive: bytes = b""
    """…or must come."""
    secured: Secured | None = None


class Introduced(NamedTuple):
    """The first message of a stream: who it is, and what it can probe."""

    teller: Teller
    kinds: frozenset[Kind]


class Verdict(NamedTuple):
    """One endpoint of one `Ask`."""

    name: str
    address: str
    port: int
    health: Health


class Told(NamedTuple):
    """A report. It is complete: what it does not name was not probed yet, or not asked for."""

    verdicts: tuple[Verdict, ...]


def decode(data: bytes) -> Introduced | Told:
    """What an Envoy sends; RemoteProtocolError where it cannot be read or is beyond all bounds."""
    message = read(hds_pb2.HealthCheckRequestOrEndpointHealthResponse, data)
    if message.HasField("health_check_request"):
        asked = message.health_check_request
        kinds = frozenset(_KINDS[one] for one in asked.capability.health_check_protocols if one in _KINDS)
        return Introduced(teller_of(asked.node), kinds)
    clusters = message.endpoint_health_response.cluster_endpoints_health
    count = sum(len(each.endpoints_health) for one in clusters for each in one.locality_endpoints_health)
    if count > MOST_VERDICTS:
        raise RemoteProtocolError(f"a report on {count} endpoints, at most {MOST_VERDICTS} are taken")
    return Told(
        tuple(
            _verdict(one.cluster_name, row)
            for one in clusters
            for each in one.locality_endpoints_health
            for row in each.endpoints_health
        )
    )


def _verdict(name: str, row: Any) -> Verdict:
    at = row.endpoint.address.socket_address
    return Verdict(name, at.address, at.port_value, _HEALTH.get(row.health_status, Health.UNKNOWN))


def encode(asks: Sequence[Ask], every_ms: int) -> bytes:
    """What an Envoy is to probe from now on, in place of all it was told before, and how often it reports.

    Its own thresholds are one: each report says how the last probe ended, and patience is the judge's.
    """
    message = hds_pb2.HealthCheckSpecifier()
    message.interval.FromMilliseconds(every_ms)
    for ask in asks:
        _add(message.cluster_health_checks.add(), ask)
    return bytes(message.SerializeToString(deterministic=True))


def _add(cluster: Any, ask: Ask) -> None:
    cluster.cluster_name = ask.name
    check = cluster.health_checks.add()
    check.timeout.FromMilliseconds(ask.timeout_ms)
    # These clusters have no traffic, and Envoy's default for such ones is a probe a minute.
    for interval in (check.interval, check.no_traffic_interval, check.no_traffic_healthy_interval):
        interval.FromMilliseconds(ask.interval_ms)
    check.unhealthy_threshold.value = check.healthy_threshold.value = 1
    # A new connection each time, as agents make one: a kept one says nothing of the line's way in.
    check.reuse_connection.value = False
    if ask.http is None:
        check.tcp_health_check.SetInParent()
        if ask.send:
            check.tcp_health_check.send.text = ask.send.hex()
        if ask.receive:
            check.tcp_health_check.receive.add().text = ask.receive.hex()
    else:
        _ask_http(check.http_health_check, ask.http)
    if ask.secured is not None:
        _secure(cluster, check, ask.secured)
    place = cluster.locality_endpoints.add()
    for address, port in ask.addresses:
        at = place.endpoints.add().address.socket_address
        at.address, at.port_value = address, port


def _ask_http(check: Any, asked: Asked) -> None:
    request = asked.request
    check.host, check.path = request.authority, request.path
    check.method = base_pb2.RequestMethod.Value(request.method)
    for low, high in asked.expect:
        status = check.expected_statuses.add()
        status.start, status.end = low, high + 1
    for name, value in request.headers:
        option = check.request_headers_to_add.add()
        option.header.key, option.header.value = name, value
        option.append_action = base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
    if asked.body:
        check.receive.add().text = asked.body.hex()
    if asked.is_second:
        check.codec_client_type = http_pb2.CodecClientType.HTTP2


def _secure(cluster: Any, check: Any, secured: Secured) -> None:
    check.transport_socket_match_criteria.update({_MATCH: True})
    match = cluster.transport_socket_matches.add()
    match.name = _MATCH
    match.match.update({_MATCH: True})
    match.transport_socket.name = "envoy.transport_sockets.tls"
    context = tls_pb2.UpstreamTlsContext(sni=secured.name)
    context.common_tls_context.alpn_protocols.extend(secured.alpn)
    match.transport_socket.typed_config.Pack(context)
