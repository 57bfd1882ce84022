"""A cluster's rules as the engines read them: the policy with what its endpoints say of the cluster as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from reachline.core.checking_rules import CheckRules
from reachline.core.outlier_rules import OutlierRules
from reachline.core.pick.policy import Policy, Zoning
from reachline.doors.envoy.values import Settings
from reachline.errors import ConfigError, Problem
from reachline.members import Membership
from reachline.model import Locality

__all__ = ["Rules", "rules"]


class Rules(NamedTuple):
    """What balances, ejects and checks a cluster; None: nothing does."""

    policy: Policy
    outliers: OutlierRules | None
    checks: CheckRules | None


def rules(
    settings: Settings,
    cluster: str,
    *,
    membership: Membership | None = None,
    home: Locality | None = None,
    callers: Mapping[Locality, int] | None = None,
) -> Rules:
    """The rules of a cluster with these endpoints (None: those of the document). ConfigError where there is no such cluster.

    `home` and `callers` (how many processes like this one there are in each locality) turn on zone aware routing.
    """
    found = settings.clusters.get(cluster)
    if found is None:
        known = ", ".join(settings.clusters) or "none"
        rule, hint = "names no cluster of the document", f"known: {known}"
        raise ConfigError(Problem(place="envoy", path="cluster", value=cluster, rule=rule, hint=hint))
    now = found.membership if membership is None else membership
    policy = replace(
        found.policy, overprovision=round(100 * now.overprovisioning), health_by_weight=now.weighted_priorities
    )
    if found.by_locality:
        policy = replace(policy, localities={place.locality: weight for place, weight in now.locality_weights.items()})
    elif found.zone_least is not None and home is not None and callers:
        policy = replace(policy, zoning=Zoning(home=home, callers=callers, cluster_least=found.zone_least))
    return Rules(policy, found.outliers, None if found.check is None else found.check.rules)
