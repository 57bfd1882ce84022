"""xDS messages ⇄ values. The only module that knows protobuf; needs the extra `xds`, and is imported only where it is used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

try:
    from envoy.config.core.v3 import base_pb2, health_check_pb2
    from envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2
    from envoy.service.discovery.v3 import discovery_pb2
    from envoy.type.v3 import percent_pb2
    from google.protobuf import json_format
    from google.protobuf.message import DecodeError
except ImportError as missing:
    raise ImportError(
        f"xDS needs the extra `xds`: pip install 'reachline[xds]' (no module {missing.name})"
    ) from missing

from reachline.errors import RemoteProtocolError
from reachline.members import Address, CheckAt, Drop, Member, Membership, Place, distinct, faults_of
from reachline.model import Health, Locality, Seconds
from reachline.wire.ads import EDS, DeltaRequest, Parcel, Parsed, Request, Response

__all__ = [
    "FEATURES", "PARSERS", "Assignment", "Node", "assignment", "decode", "decode_delta", "encode", "from_document",
]  # fmt: skip

FEATURES: Final = (
    "xds.config.supports-resource-ttl",
    # Envoy's name for the next one, and the one that gRPC's control planes look for.
    "xds.config.supports-resource-in-sotw",
    "xds.config.resource-in-sotw",
)
"""What control planes may do with us."""
_ENVELOPE: Final = "type.googleapis.com/envoy.service.discovery.v3.Resource"
_INVALID_ARGUMENT: Final = 3
_SUM_MOST: Final = 2**32 - 1
_PERCENT: Final = {percent_pb2.FractionalPercent.HUNDRED: 100, percent_pb2.FractionalPercent.TEN_THOUSAND: 10_000}
_MILLION: Final = 1_000_000
_HEALTH: Final = {number: Health[name] for name, number in health_check_pb2.HealthStatus.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Who asks, as control planes choose their answer by it."""

    id: str
    cluster: str = ""
    locality: Locality = Locality()
    metadata: Mapping[str, object] | None = None
    user_agent: str = "reachline"
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One cluster's endpoints as a control plane names them."""

    name: str
    membership: Membership
    notices: tuple[str, ...] = ()


# Requests out, responses in.


def encode(request: Request | DeltaRequest, node: Node) -> bytes:
    """A request's message, of the variant it is of."""
    match request:
        case Request():
            message = discovery_pb2.DiscoveryRequest(
                type_url=request.type_url,
                resource_names=request.names,
                version_info=request.version,
                response_nonce=request.nonce,
            )
            return _finished(message, request, node)
        case DeltaRequest():
            message = discovery_pb2.DeltaDiscoveryRequest(
                type_url=request.type_url,
                resource_names_subscribe=request.subscribe,
                resource_names_unsubscribe=request.unsubscribe,
                initial_resource_versions=request.versions,
                response_nonce=request.nonce,
            )
            return _finished(message, request, node)


def _finished(message: Any, request: Request | DeltaRequest, node: Node) -> bytes:
    if request.error:
        message.error_detail.code, message.error_detail.message = _INVALID_ARGUMENT, request.error
    if request.is_first:
        said = message.node
        said.id, said.cluster = node.id, node.cluster
        said.locality.CopyFrom(_locality_of(node.locality))
        said.user_agent_name, said.user_agent_version = node.user_agent, node.version
        said.client_features.extend(FEATURES)
        if node.metadata:
            said.metadata.update(node.metadata)
    return bytes(message.SerializeToString())


def _locality_of(locality: Locality) -> Any:
    return base_pb2.Locality(region=locality.region, zone=locality.zone, sub_zone=locality.sub_zone)


def decode(data: bytes) -> Response:
    """A SotW response; RemoteProtocolError where it is none."""
    message = _read(discovery_pb2.DiscoveryResponse, data)
    return Response(
        message.type_url, message.version_info, message.nonce, tuple(_unwrapped(each) for each in message.resources)
    )


def decode_delta(data: bytes) -> Response:
    """A delta response; RemoteProtocolError where it is none."""
    message = _read(discovery_pb2.DeltaDiscoveryResponse, data)
    parcels = tuple(_parcel(each, message.type_url) for each in message.resources)
    return Response(
        message.type_url, message.system_version_info, message.nonce, parcels, tuple(message.removed_resources)
    )


def _read(kind: Any, data: bytes) -> Any:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise RemoteProtocolError(f"{kind.DESCRIPTOR.name} cannot be read: {error}") from error


def _unwrapped(any_: Any) -> Parcel:
    """A resource of a SotW answer, which stands in an envelope where it has a time to live."""
    if any_.type_url != _ENVELOPE:
        return Parcel(any_.type_url, any_.value)
    try:
        return _parcel(discovery_pb2.Resource.FromString(any_.value), "")
    except DecodeError:
        return Parcel(any_.type_url, any_.value)


def _parcel(resource: Any, type_url: str) -> Parcel:
    is_heartbeat = not resource.HasField("resource")
    return Parcel(
        type_url if is_heartbeat else resource.resource.type_url,
        resource.resource.value,
        resource.name,
        resource.version,
        _seconds(resource.ttl) if resource.HasField("ttl") else None,
        is_heartbeat,
    )


def _seconds(duration: Any) -> Seconds:
    return float(duration.seconds) + float(duration.nanos) / 1e9


# Endpoints.


def assignment(parcel: Parcel) -> Parsed:
    """A ClusterLoadAssignment as an `Assignment`, or every reason why it cannot be one."""
    try:
        message = endpoint_pb2.ClusterLoadAssignment.FromString(parcel.body)
    except DecodeError as error:
        return Parsed(parcel.name, error=f"cannot be read: {error}")
    return _assigned(message)


PARSERS: Final = {EDS: assignment}
"""By type URL."""


def from_document(document: object) -> tuple[Parsed, ...]:
    """Every assignment of a DiscoveryResponse written as JSON or YAML; RemoteProtocolError where it is none."""
    if not isinstance(document, dict):
        raise RemoteProtocolError("must be a DiscoveryResponse: {version_info: …, resources: […]}")
    message = discovery_pb2.DiscoveryResponse()
    try:
        json_format.ParseDict(document, message)
    except (json_format.ParseError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise RemoteProtocolError(" ".join(str(error).split())) from error
    return tuple(_of_document(at, each) for at, each in enumerate(message.resources))


def _of_document(at: int, any_: Any) -> Parsed:
    if any_.type_url != EDS:
        return Parsed("", error=f"resources[{at}] is a {any_.type_url}, only {EDS} are read")
    return assignment(Parcel(any_.type_url, any_.value))


def _assigned(message: Any) -> Parsed:
    errors = [*_faults(message)]
    members, notices = distinct(_members(message, errors))
    if errors:
        return Parsed(message.cluster_name, error="; ".join(errors))
    policy = message.policy
    weights = {place: group.load_balancing_weight for _, place, group in _groups(message)}
    membership = Membership(
        members=members,
        locality_weights={place: weight.value for place, weight in weights.items() if weight.value},
        drops=tuple(Drop(each.category, _share(each.drop_percentage)) for each in policy.drop_overloads),
        weighted_priorities=policy.weighted_priority_health,
        stale_after=_seconds(policy.endpoint_stale_after) if policy.HasField("endpoint_stale_after") else None,
    )
    if policy.HasField("overprovisioning_factor"):
        membership = replace(membership, overprovisioning=policy.overprovisioning_factor.value / 100)
    found = Assignment(name=message.cluster_name, membership=membership, notices=notices)
    return Parsed(message.cluster_name, found)


def _groups(message: Any) -> Iterator[tuple[str, Place, Any]]:
    for at, group in enumerate(message.endpoints):
        said = group.locality
        locality = Locality(region=said.region, zone=said.zone, sub_zone=said.sub_zone)
        yield f"endpoints[{at}]", Place(group.priority, locality), group


def _members(message: Any, errors: list[str]) -> Iterator[Member]:
    """The endpoints in order; what is wrong with them goes to `errors`, each with its place."""
    for where, place, group in _groups(message):
        total = 0
        for at, each in enumerate(group.lb_endpoints):
            if not _has_socket(each):
                errors.append(f"{where}.lb_endpoints[{at}]: must have an endpoint.address.socket_address")
                continue
            try:
                member = _member(each, place)
            except (ValueError, json_format.Error) as error:
                errors.append(f"{where}.lb_endpoints[{at}].metadata: {error}")
                continue
            total += member.weight
            faults = faults_of(member)
            errors += [f"{where}.lb_endpoints[{at}].{key} {rule} (got {value})" for key, value, rule in faults]
            yield member
        if total > _SUM_MOST:
            errors.append(f"{where}: weights sum to {total}, at most {_SUM_MOST}")


def _member(said: Any, place: Place) -> Member:
    endpoint, socket = said.endpoint, said.endpoint.address.socket_address
    return Member(
        address=Address(socket.address, socket.port_value),
        hostname=endpoint.hostname,
        weight=said.load_balancing_weight.value if said.HasField("load_balancing_weight") else 1,
        priority=place.priority,
        locality=place.locality,
        health=_HEALTH.get(said.health_status, Health.UNKNOWN),
        metadata=_metadata(said.metadata) if said.HasField("metadata") else {},
        check=_check(endpoint.health_check_config) if endpoint.HasField("health_check_config") else CheckAt(),
    )


def _metadata(message: Any) -> dict[str, object]:
    return {name: json_format.MessageToDict(struct) for name, struct in message.filter_metadata.items()}


def _check(config: Any) -> CheckAt:
    said = config.address.socket_address
    return CheckAt(
        said.address, config.port_value or said.port_value, config.hostname, config.disable_active_health_check
    )


def _share(percent: Any) -> float:
    return min(float(percent.numerator) / _PERCENT.get(percent.denominator, _MILLION), 1.0)


def _faults(message: Any) -> Iterator[str]:
    """Why the assignment cannot be, each with its place."""
    if not message.cluster_name:
        yield "cluster_name must not be empty"
    if message.policy.HasField("endpoint_stale_after") and _seconds(message.policy.endpoint_stale_after) <= 0:
        yield "policy.endpoint_stale_after must be above 0"
    if message.policy.HasField("overprovisioning_factor") and not message.policy.overprovisioning_factor.value:
        yield "policy.overprovisioning_factor must be above 0"
    for at, each in enumerate(message.policy.drop_overloads):
        if not each.category:
            yield f"policy.drop_overloads[{at}].category must not be empty"
    sums: dict[int, int] = {}
    for where, place, group in _groups(message):
        if group.WhichOneof("lb_config"):
            yield f"{where}: endpoints by LEDS are not read"
        sums[place.priority] = sums.get(place.priority, 0) + group.load_balancing_weight.value
    for priority, total in sums.items():
        if total > _SUM_MOST:
            yield f"weights of the localities of priority {priority} sum to {total}, at most {_SUM_MOST}"


def _has_socket(endpoint: endpoint_components_pb2.LbEndpoint) -> bool:
    if endpoint.WhichOneof("host_identifier") != "endpoint":
        return False
    return bool(endpoint.endpoint.address.HasField("socket_address"))
