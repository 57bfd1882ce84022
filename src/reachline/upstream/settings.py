"""How one cluster is kept in process, as checked values: who its endpoints are, who is asked, and the rules. Refuses to know documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from reachline.core.outlier_rules import OutlierRules
from reachline.core.pick import Policy
from reachline.core.pick.policy import Subsets, Zoning
from reachline.discovery.naming import DnsSettings
from reachline.doors.envoy.values import CheckSettings, Thresholds
from reachline.errors import Problem
from reachline.members import Address, Membership
from reachline.model import Locality, Seconds

__all__ = ["ClusterSettings", "ControlPlane", "Kind", "policy_of"]

Kind = Literal["static", "strict_dns", "logical_dns", "file", "eds"]
"""A key of `discovery.TABLE`."""


class ControlPlane(NamedTuple):
    """Who assigns endpoints. Clusters that name the same one share its stream."""

    address: str
    delta: bool = False
    node: str = ""
    """Who asks: empty, the machine's name."""
    node_cluster: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """One cluster. Of names the members' addresses are yet to be resolved; by file and EDS there are none yet."""

    name: str
    type: Kind = "static"
    membership: Membership = Membership()
    scheme: str = ""
    """Before host and port in a call's `url`; empty: the pick's address stands for itself."""
    dns: DnsSettings = DnsSettings()
    resolvers: tuple[Address, ...] = ()
    """Name servers to ask; empty: this machine's."""
    path: str = ""
    """The file to watch."""
    service: str = ""
    """The assignment's name; empty: the cluster's."""
    initial_fetch_timeout: Seconds = 15.0
    control_plane: ControlPlane | None = None
    policy: Policy = Policy()
    """Without what its endpoints say of it: `policy_of`."""
    by_locality: bool = False
    """Whether localities' weights count."""
    home: Locality | None = None
    """Where this process is…"""
    callers: Mapping[Locality, int] = field(default_factory=dict)
    """…and how many like it there are in each locality: both given, calls stay at home as far as that is fair."""
    zone_least: int | None = 6
    """Fewest healthy endpoints for that; None: never."""
    subsets: Subsets | None = None
    hash_hostnames: bool = False
    """Whether consistent hashing hashes an endpoint's hostname, where it has one of its own, in place of its address."""
    check: CheckSettings | None = None
    waits_for_check: bool = False
    """Whether a new endpoint is left out of all sums until its first check is over."""
    stays_while_healthy: bool = False
    """Whether an endpoint that discovery no longer names serves on until a check fails, as in Envoy."""
    thresholds: tuple[Thresholds, Thresholds] | None = None
    """What may be under way at once, of usual and of high priority; None: as much as callers like."""
    merge_window: Seconds = 0.0
    """How long ejections, returns and checks' verdicts wait for one another after a picker was made; what discovery says does not."""
    outliers: OutlierRules | None = None
    outlier_log: str = ""
    """A file for outlier events; empty: none."""
    warm: Seconds = 5.0
    """How long the first checks may keep `connect` waiting."""
    notices: tuple[Problem, ...] = ()
    """What is odd about the document, but not wrong."""


def policy_of(settings: ClusterSettings, membership: Membership) -> Policy:
    """The policy with what the endpoints of now say of their cluster as a whole."""
    policy = replace(
        settings.policy,
        overprovision=max(1, round(100 * membership.overprovisioning)),
        health_by_weight=membership.weighted_priorities,
    )
    if settings.by_locality:
        weights = {place.locality: weight for place, weight in membership.locality_weights.items()}
        return replace(policy, localities=weights)
    if settings.zone_least is None or settings.home is None or not settings.callers:
        return policy
    return replace(
        policy, zoning=Zoning(home=settings.home, callers=settings.callers, cluster_least=settings.zone_least)
    )
