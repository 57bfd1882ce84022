"""`load_assignment`, DNS and EDS of a cluster: who its endpoints are, or where that is to be asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from reachline.doors.envoy.fields import UINT32, Block
from reachline.doors.envoy.values import Dns, Eds, Type
from reachline.members import Address, CheckAt, Drop, Member, Membership, Place, distinct, is_numeric
from reachline.model import Health, Locality

__all__ = ["assignment", "dns", "eds"]

_HEALTHS: Final = tuple(health.name for health in Health)
_FAMILIES: Final = ("AUTO", "V4_ONLY", "V6_ONLY", "V4_PREFERRED", "ALL")
_PROTOCOLS: Final = ("TCP", "UDP")
_DENOMINATORS: Final = {"HUNDRED": 100, "TEN_THOUSAND": 10_000, "MILLION": 1_000_000}
_NAMED: Final = (Type.STRICT_DNS, Type.LOGICAL_DNS)
_RESOLVERS: Final = "type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig"
_PORT_MOST: Final = 65_535
_REFRESH_LEAST: Final = 1_000_001
"""Nanoseconds: more than a millisecond."""


def assignment(block: Block | None, kind: Type) -> Membership:
    """The endpoints that are written down; of names, they are yet to be resolved."""
    if block is None:
        return Membership()
    block.text("cluster_name", needed=True)
    weights: dict[Place, int] = {}
    members: list[Member] = []
    for group in block.blocks("endpoints"):
        members += _group(group, kind, weights)
    block.unsupported({"named_endpoints": "write the endpoints themselves"})
    base = _policy(block.block("policy"))
    block.done()
    _check_sums(block, weights, members)
    if kind is Type.LOGICAL_DNS and len(members) != 1:
        block.found.refuse(block.path, "must have exactly one endpoint: the cluster is LOGICAL_DNS", about_key=True)
    kept, notices = (tuple(members), ()) if kind in _NAMED else distinct(members)
    for each in notices:
        block.found.notice(block.path, f"names an endpoint twice: {each}")
    return replace(base, members=kept, locality_weights=weights)


def _check_sums(block: Block, weights: Mapping[Place, int], members: list[Member]) -> None:
    for level in {place.priority for place in weights}:
        total = sum(weight for place, weight in weights.items() if place.priority == level)
        if total > UINT32:
            rule = f"weights of the localities of priority {level} sum to {total}, at most {UINT32}"
            block.found.refuse(block.path, rule, about_key=True)
    for level in {each.priority for each in members}:
        total = sum(each.weight for each in members if each.priority == level)
        if total > UINT32:
            rule = f"weights of the endpoints of priority {level} sum to {total}, at most {UINT32}"
            block.found.refuse(block.path, rule, about_key=True)


def _group(block: Block, kind: Type, weights: dict[Place, int]) -> Iterator[Member]:
    place = Place(block.whole("priority", most=128), _locality(block.block("locality")))
    weight = block.maybe("load_balancing_weight", least=1)
    if weight is not None:
        if place in weights:
            block.found.notice(block.path, "is the same locality and priority again: its last weight counts")
        weights[place] = weight
    for each in block.blocks("lb_endpoints"):
        member = _endpoint(each, place, kind)
        if member is not None:
            yield member
    block.aside("metadata", "proximity")
    block.unsupported(
        {"load_balancer_endpoints": "use lb_endpoints", "leds_cluster_locality_config": "use lb_endpoints"}
    )
    block.done()


def _locality(block: Block | None) -> Locality:
    if block is None:
        return Locality()
    found = Locality(region=block.text("region"), zone=block.text("zone"), sub_zone=block.text("sub_zone"))
    block.done()
    return found


def _endpoint(block: Block, place: Place, kind: Type) -> Member | None:
    endpoint = block.block("endpoint")
    weight = block.whole("load_balancing_weight", 1, least=1)
    health = Health[block.word("health_status", _HEALTHS, "UNKNOWN")]
    metadata = _metadata(block.block("metadata"))
    block.unsupported({"endpoint_name": "write the endpoint itself"})
    block.done()
    if endpoint is None:
        block.found.refuse(block.path, "must have an endpoint", about_key=True)
        return None
    where = endpoint.block("address")
    address = None if where is None else _address(where, by_name=kind in _NAMED)
    hostname = endpoint.text("hostname")
    check = _check_at(endpoint.block("health_check_config"))
    endpoint.unsupported({"additional_addresses": "write one endpoint for each address"})
    endpoint.done()
    if where is None:
        endpoint.found.refuse(endpoint.path, "must have an address", about_key=True)
    if address is None:
        return None
    return Member(
        address=address,
        hostname=hostname,
        weight=weight,
        priority=place.priority,
        locality=place.locality,
        health=health,
        metadata=metadata,
        check=check,
    )


def _address(block: Block, *, by_name: bool) -> Address | None:
    socket, is_other = block.block("socket_address"), block.has("pipe") or block.has("envoy_internal_address")
    block.unsupported(
        {"pipe": "endpoints are addresses with ports", "envoy_internal_address": "there are no listeners"}
    )
    block.done()
    if socket is None:
        if not is_other:
            block.found.refuse(block.path, "must have a socket_address", about_key=True)
        return None
    host, port = socket.text("address", needed=True), socket.maybe("port_value", least=1, most=_PORT_MOST)
    if socket.word("protocol", _PROTOCOLS, "TCP") != "TCP":
        socket.refuse("protocol", "only TCP is supported here")
    socket.unsupported({"named_port": "write port_value", "resolver_name": "", "network_namespace_filepath": ""})
    socket.aside("ipv4_compat")
    socket.done()
    if not socket.has("port_value"):
        socket.found.refuse(socket.at("port_value"), "is needed", about_key=True)
    if host and not by_name and not is_numeric(host):
        socket.refuse("address", "must be a numeric address", "a name needs type: STRICT_DNS or LOGICAL_DNS")
        return None
    return Address(host, port) if host and port else None


def _check_at(block: Block | None) -> CheckAt:
    if block is None:
        return CheckAt()
    where = block.block("address")
    port, hostname = block.whole("port_value", most=_PORT_MOST), block.text("hostname")
    is_off = block.flag("disable_active_health_check")
    block.done()
    address = None if where is None else _address(where, by_name=False)
    host, own = address or ("", 0)
    return CheckAt(host, port or own, hostname, is_off)


def _metadata(block: Block | None) -> Mapping[str, object]:
    if block is None:
        return {}
    found = block.raw("filter_metadata")
    block.unsupported({"typed_filter_metadata": "use filter_metadata"})
    block.done()
    if found is None:
        return {}
    if not isinstance(found, Mapping) or not all(isinstance(each, Mapping) for each in found.values()):
        block.refuse("filter_metadata", "must be blocks by a filter's name")
        return {}
    return {str(name): each for name, each in found.items()}


def _policy(block: Block | None) -> Membership:
    if block is None:
        return Membership()
    drops = tuple(_drop(each) for each in block.blocks("drop_overloads"))
    if len(drops) > 1:
        block.refuse("drop_overloads", "must be one: Envoy takes one category")
    factor = block.whole("overprovisioning_factor", 140, least=1)
    stale = block.ms("endpoint_stale_after")
    weighted = block.flag("weighted_priority_health")
    block.unsupported({"disable_overprovisioning": "write overprovisioning_factor: 100"})
    block.done()
    return Membership(
        drops=drops,
        overprovisioning=factor / 100,
        weighted_priorities=weighted,
        stale_after=None if stale is None else stale / 1_000,
    )


def _drop(block: Block) -> Drop:
    category = block.text("category", needed=True)
    share = block.block("drop_percentage")
    block.done()
    if share is None:
        return Drop(category, 0.0)
    parts = _DENOMINATORS[share.word("denominator", tuple(_DENOMINATORS), "HUNDRED")]
    numerator = share.whole("numerator", most=parts)
    share.done()
    return Drop(category, numerator / parts)


def dns(cluster: Block, own: Block | None, kind: Type) -> Dns:
    """How the cluster's names are followed: by its own fields, or by the block of `envoy.cluster.dns` in place of them."""
    found = _dns(cluster, kind, _FAMILIES)
    cluster.unsupported({"use_tcp_for_dns_lookups": "name servers are asked by UDP, and by TCP where an answer is cut"})
    if own is None:
        return found
    found = _dns(own, kind, ("UNSPECIFIED", *_FAMILIES))
    own.done()
    return replace(found, family="AUTO") if found.family == "UNSPECIFIED" else found


def _dns(cluster: Block, kind: Type, families: tuple[str, ...]) -> Dns:
    usual = Dns()
    base, most = _failures(cluster.block("dns_failure_refresh_rate"), is_used=kind in _NAMED)
    return Dns(
        refresh=(cluster.ms("dns_refresh_rate", 5_000, least=_REFRESH_LEAST) or 5_000) / 1_000,
        respect_ttl=cluster.flag("respect_dns_ttl", usual.respect_ttl),
        jitter=cluster.seconds("dns_jitter", 0.0, least=0),
        failure_base=base,
        failure_max=most,
        family=cluster.word("dns_lookup_family", families, families[0]),
        resolvers=_resolvers(cluster, is_own=families is not _FAMILIES),
    )


def _failures(block: Block | None, *, is_used: bool) -> tuple[float | None, float | None]:
    if block is None:
        return None, None
    base, most = (block.ms(name, least=_REFRESH_LEAST) for name in ("base_interval", "max_interval"))
    if not block.has("base_interval"):
        block.found.refuse(block.at("base_interval"), "is needed", about_key=True)
    block.done()
    if is_used and base is not None and most is not None and most < base:
        block.refuse("max_interval", "must not be below base_interval")
    return None if base is None else base / 1_000, None if most is None else most / 1_000


def _resolvers(cluster: Block, *, is_own: bool) -> tuple[Address, ...]:
    """Name servers, by any of the three fields that were there for them over time."""
    found: list[Address | None] = []
    blocks: list[Block | None] = []
    if not is_own:
        found = [_address(each, by_name=False) for each in cluster.blocks("dns_resolvers")]
        blocks = [cluster.block("dns_resolution_config")]
    typed = cluster.block("typed_dns_resolver_config")
    if typed is not None:
        typed.text("name", needed=True)
        blocks.append(typed.block("typed_config"))
        typed.done()
    for block in blocks:
        if block is None:
            continue
        if block.has("@type") and block.text("@type") != _RESOLVERS:
            block.refuse("@type", "only name servers of the c-ares resolver are supported")
            block.aside("resolvers")
            continue
        found += [_address(each, by_name=False) for each in block.blocks("resolvers")]
        block.aside("dns_resolver_options", "query_timeout_seconds", "query_tries", "rotate_nameservers")
        block.aside(
            "use_resolvers_as_fallback", "filter_unroutable_families", "udp_max_queries", "edns0_max_payload_size"
        )
        block.done()
    return tuple(each for each in found if each is not None)


def eds(cluster: Block, name: str, kind: Type) -> Eds | None:
    """Where the assignment comes from; None of other types of clusters."""
    block = cluster.block("eds_cluster_config")
    if kind is not Type.EDS:
        if block is not None:
            cluster.found.refuse(block.path, f"goes with type: EDS, not with {kind.value}", about_key=True)
        return None
    if block is None:
        cluster.found.refuse(cluster.at("eds_cluster_config"), "is needed by type: EDS", about_key=True)
        return None
    service = block.text("service_name") or name
    source = block.block("eds_config")
    block.done()
    if source is None:
        block.found.refuse(block.at("eds_config"), "is needed", about_key=True)
        return None
    by = source.one_of(("path", "path_config_source", "ads", "api_config_source", "self"))
    path, by_path, ads = source.text("path"), source.block("path_config_source"), source.block("ads")
    if by_path is not None:
        path = by_path.text("path", needed=True)
        by_path.unsupported({"watched_directory": "the file's own directory is watched"})
        by_path.done()
    if ads is not None:
        ads.done()
    source.unsupported({"api_config_source": "use ads", "self": "use ads", "authorities": ""})
    timeout = source.seconds("initial_fetch_timeout", 15.0, least=0)
    source.word("resource_api_version", ("AUTO", "V2", "V3"), "AUTO")
    source.done()
    if by is None:
        source.found.refuse(source.path, "must have ads or path_config_source", about_key=True)
    return Eds(service=service, path=path, initial_fetch_timeout=timeout)
