"""A cluster kept current: line list, picker, attempts, outcomes. Shared by the client and the proxy; knows no transport."""

from __future__ import annotations

from reachline.upstream.attempt import Attempt
from reachline.upstream.cluster import Cluster
from reachline.upstream.listing import LineList, Listed, Pick
from reachline.upstream.outcome import Column, FailureName
from reachline.upstream.stats import ClusterStats

__all__ = ["Attempt", "Cluster", "ClusterStats", "Column", "FailureName", "LineList", "Listed", "Pick"]
