"""States of endpoints as Envoy's admin shows them: `/clusters?format=json`, key by key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from reachline.members import Address
from reachline.model import Health, Locality

__all__ = ["Flag", "Host", "show"]


class Flag(Enum):
    """Why an endpoint gets no traffic, or less; the value is Envoy's key."""

    FAILED_CHECK = "failed_active_health_check"
    EJECTED = "failed_outlier_check"
    DEGRADED = "failed_active_degraded_check"
    REMOVED = "pending_dynamic_removal"
    PENDING = "pending_active_hc"
    EXCLUDED = "excluded_via_immediate_hc_fail"
    TIMED_OUT = "active_hc_timeout"


_SHOWN: Final = {Health.UNKNOWN: Health.HEALTHY, Health.TIMEOUT: Health.UNHEALTHY}
"""Discovery's words that Envoy does not repeat: what they amount to stands in their place."""


class Host(NamedTuple):
    """One endpoint at a moment. `health` is what discovery says of it, `rate` its success rate in percent at the last sweep."""

    address: Address
    flags: frozenset[Flag] = frozenset()
    health: Health = Health.HEALTHY
    weight: int = 1
    priority: int = 0
    locality: Locality = Locality()
    hostname: str = ""
    rate: float | None = None


def show(clusters: Mapping[str, Iterable[Host]]) -> dict[str, object]:
    """The document, ready for a JSON encoder; what is false, zero or empty is left out, as Envoy does."""
    return {
        "cluster_statuses": [
            {"name": name, "host_statuses": [_host(each) for each in hosts]} for name, hosts in clusters.items()
        ]
    }


def _host(host: Host) -> dict[str, object]:
    status: dict[str, object] = {flag.value: True for flag in Flag if flag in host.flags}
    status["eds_health_status"] = _SHOWN.get(host.health, host.health).name
    shown: dict[str, object] = {
        "address": {"socket_address": {"address": host.address.host, "port_value": host.address.port}},
        "health_status": status,
        "weight": host.weight,
    }
    if host.hostname:
        shown["hostname"] = host.hostname
    if host.priority:
        shown["priority"] = host.priority
    if host.rate is not None:
        shown["success_rate"] = {"value": host.rate}
    where = {"region": host.locality.region, "zone": host.locality.zone, "sub_zone": host.locality.sub_zone}
    shown["locality"] = {key: value for key, value in where.items() if value}
    return shown
