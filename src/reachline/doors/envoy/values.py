"""What an Envoy document says about upstreams, as plain values in our words. Refuses to know YAML, positions and addresses of peers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from reachline.core.checking_rules import CheckRules
from reachline.core.outlier_rules import OutlierRules
from reachline.core.pick.policy import Policy, Subsets
from reachline.errors import Problem
from reachline.members import Address, Membership
from reachline.model import Ratio, Seconds
from reachline.talk.asking import Asked

__all__ = ["Budget", "CheckSettings", "Cluster", "Dns", "Eds", "Settings", "Thresholds", "Type"]


class Type(Enum):
    """How a cluster's endpoints are found; the value is Envoy's word."""

    STATIC = "STATIC"
    STRICT_DNS = "STRICT_DNS"
    LOGICAL_DNS = "LOGICAL_DNS"
    EDS = "EDS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dns:
    """How names are followed. Envoy's defaults: no TTL, no jitter, failures wait as long as answers hold."""

    refresh: Seconds = 5.0
    respect_ttl: bool = False
    jitter: Seconds = 0.0
    failure_base: Seconds | None = None
    """None: `refresh`, and it never grows."""
    failure_max: Seconds | None = None
    family: str = "AUTO"
    """AUTO, V4_ONLY, V6_ONLY, V4_PREFERRED or ALL."""
    resolvers: tuple[Address, ...] = ()
    """Name servers to ask; empty: this machine's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Eds:
    """Where the assignment of a cluster comes from."""

    service: str
    """Its name: `service_name`, else the cluster's."""
    path: str = ""
    """A file to watch; empty: by ADS."""
    initial_fetch_timeout: Seconds = 15.0
    """0: as long as it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSettings:
    """The active check of a cluster: when, and what is asked."""

    rules: CheckRules
    asked: Asked
    event_log: str = ""
    """A file for its events; empty: none."""
    socket: Mapping[str, object] | None = None
    """What stands for an endpoint's metadata when its transport socket is chosen for checks; None: the endpoint's own."""
    alpn: tuple[str, ...] = ()
    """Protocols that checks offer by TLS; empty: those of the transport socket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How many retries may be under way."""

    share: Ratio = 0.2
    """Of the calls under way and waiting…"""
    least: int = 3
    """…but so many in any case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """What a cluster may have under way at once; None of a budget: `max_retries` counts."""

    max_connections: int = 1_024
    max_pending_requests: int = 1_024
    max_requests: int = 1_024
    max_retries: int = 3
    budget: Budget | None = None
    max_connections_per_endpoint: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """One cluster. Of names (DNS) the members' addresses are yet to be resolved; by EDS there are none yet."""

    name: str
    type: Type
    membership: Membership
    connect_timeout: Seconds = 5.0
    dns: Dns = Dns()
    eds: Eds | None = None
    check: CheckSettings | None = None
    outliers: OutlierRules | None = None
    policy: Policy = Policy()
    """Localities' weights and overprovisioning are the membership's: `rules` puts them in."""
    by_locality: bool = False
    """Whether localities' weights count."""
    zone_least: int | None = 6
    """Fewest endpoints for zone aware routing, where the callers' localities are known; None: never."""
    subsets: Subsets | None = None
    hash_hostnames: bool = False
    """Whether consistent hashing hashes an endpoint's hostname in place of its address."""
    thresholds: Thresholds = Thresholds()
    high_thresholds: Thresholds = Thresholds()
    """Of calls of high priority, which are counted apart."""
    update_merge_window: Seconds = 1.0
    ignore_new_hosts_until_first_hc: bool = False
    close_connections_on_host_set_change: bool = False
    close_connections_on_host_health_failure: bool = False
    ignore_health_on_host_removal: bool = False
    wait_for_warm_on_init: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything of a document that is about upstreams."""

    clusters: Mapping[str, Cluster] = field(default_factory=dict)
    """By name, in the document's order."""
    local_cluster: str = ""
    outlier_log: str = ""
    """A file for outlier events; empty: none."""
    notices: tuple[Problem, ...] = ()
    """What is left aside, and what is odd but not wrong."""
