"""The plan across regions as the HTTP contract writes it: for clients in their lists, for people as a table. No waiting.

Rates are calls a second, shares 0…1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from reachline.core.regions import Outlook, Seen
from reachline.core.steer import WHOLE, Steer

__all__ = ["ApartRow", "ClusterPlanRow", "PlanDocument", "PlanRow", "RegionPlanRow", "document", "part"]


class PlanRow(TypedDict):
    """`plan` of a line list: the share of its calls that a client lets through, and of those each region's share."""

    admit: float
    regions: dict[str, float]
    priority: int
    reason: str


class ClusterPlanRow(TypedDict):
    """One cluster. `before` and `after` are calls a second by region; `reason` is empty where it has all, where it has it anyway.

    `enforced` false: clients are not told and go on by weights; this is what would be.
    """

    cluster: str
    priority: int
    calls: int
    carried: int
    shed: int
    admit: float
    reason: str
    enforced: bool
    before: dict[str, int]
    after: dict[str, int]


class RegionPlanRow(TypedDict):
    """One region: what it carries in all, what the document says of that (null: nothing), and what it has and would have."""

    region: str
    room: int
    limit: int | None
    before: int
    after: int


class ApartRow(TypedDict):
    """A cluster that takes no part, and why."""

    cluster: str
    why: str


class PlanDocument(TypedDict):
    """`GET /api/v1/plan`. Without `without`: before is what weights alone would do, after is what the plan makes of it. With a
    region there: before is now, after is without it. `scarce` false: all is carried by weights, and there is no plan.
    """

    without: str
    scarce: bool
    clusters: list[ClusterPlanRow]
    regions: list[RegionPlanRow]
    apart: list[ApartRow]


def part(steer: Steer) -> PlanRow:
    """What a cluster's clients are told."""
    return {
        "admit": steer.admitted / WHOLE,
        "regions": {region: share / WHOLE for region, share in steer.shares.items()},
        "priority": steer.priority,
        "reason": steer.reason,
    }


def document(
    now: Outlook,
    then: Outlook,
    *,
    gone: str,
    limits: Mapping[str, int],
    apart: Mapping[str, str],
) -> PlanDocument:
    """Before and after, highest priority first; `now` and `then` are of the same clusters."""
    pairs = sorted(zip(now.seen, then.seen, strict=True), key=lambda pair: (-pair[0].priority, pair[0].cluster))
    rows = [_cluster(now, then, was, will) for was, will in pairs]
    regions = sorted(now.rooms.keys() | then.rooms.keys() | ({gone} if gone else set()))
    return {
        "without": gone,
        "scarce": then.is_scarce,
        "clusters": rows,
        "regions": [
            {
                "region": region,
                "room": then.rooms.get(region, 0),
                "limit": limits.get(region),
                "before": sum(row["before"].get(region, 0) for row in rows),
                "after": sum(row["after"].get(region, 0) for row in rows),
            }
            for region in regions
        ],
        "apart": [{"cluster": cluster, "why": why} for cluster, why in sorted(apart.items())],
    }


def _cluster(now: Outlook, then: Outlook, was: Seen, will: Seen) -> ClusterPlanRow:
    steer = then.steers.get(was.cluster)
    carried = was.calls if steer is None else steer.carried
    return {
        "cluster": was.cluster,
        "priority": was.priority,
        "calls": was.calls,
        "carried": carried,
        "shed": was.calls - carried,
        "admit": 1.0 if steer is None else steer.admitted / WHOLE,
        "reason": "" if steer is None else steer.reason,
        "enforced": was.obeys,
        "before": dict(now.where(was)),
        "after": dict(then.where(will)),
    }
