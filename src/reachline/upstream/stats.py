"""One cluster in figures, for people and metrics. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from reachline.model import LineId, Ratio, Seconds
from reachline.upstream.tally import Totals

__all__ = ["ClusterStats", "Source"]

Source = Literal["none", "static", "cache", "center", "discovery"]
"""Where the present lines come from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStats:
    """One cluster at a moment, for people and metrics. `silence` is None where no center was ever heard."""

    source: Source
    version: str
    lines: int
    silence: Seconds | None
    is_stale: bool
    trouble: str
    open: tuple[LineId, ...]
    trips: int
    refused_versions: int
    misuses: int
    """Arguments of `report`, `fail` and `status` that are none, and were ignored."""
    calls: Totals
    admitted: Ratio = 1.0
    """The share of calls that the plan across regions lets through; the others are refused by `Shed`."""
    healthy: int | None = None
    """Of a cluster kept in process, endpoints that are well…"""
    degraded: int | None = None
    """…and those that are used once the former do not carry all; None: a center judges them."""
