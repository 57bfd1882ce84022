"""The line list as clients get it, with what they judge by themselves: their own breaker, limits, and terms of the formulas.

Standard library only, no waiting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NotRequired, TypedDict

from reachline.core.rules import Rules
from reachline.model import LineId
from reachline.wire.planned import PlanRow
from reachline.wire.view import LineRow

__all__ = ["ClusterDocument", "FormulaDocument", "FormulaRow", "LocalRulesRow", "local_rules"]


class FormulaRow(TypedDict):
    """What a client needs of one line to redo the group formulas (`core.tiers`) with its own breakers.

    Health and roles stand in the line's row. `faults` is in millionths of a fault, `share` what the center's breaker
    admits, 0…1.
    """

    base: int
    faults: int
    share: float


class FormulaDocument(TypedDict):
    """The terms of all lines, and `cost`: factors of exp(-lambda x) for x = 2**k millionths of a fault, in units of 1e-12."""

    cost: list[int]
    lines: dict[str, FormulaRow]


class LocalRulesRow(TypedDict):
    """The SDK's own breaker, and limits that all clients keep alike; durations in seconds (`docs/reference/http.md` tells each)."""

    failures: int
    open: float
    open_cap: float
    max_open: float
    fail_share: float
    slow: float | None
    crawl: float | None
    trial_calls: int
    trial_calls_share: float
    ramp_connects: int
    formula: FormulaDocument


class ClusterDocument(TypedDict):
    """`GET /api/v1/clusters/{cluster}/lines`: the plain JSON door. `lines` are sorted as published."""

    cluster: str
    version: str
    epoch: int
    issued: float
    ttl: float
    policy: list[str]
    panic: str
    lines: list[LineRow]
    local_rules: LocalRulesRow
    plan: NotRequired[PlanRow]
    """Only while there is a plan across regions, and it says something of this cluster."""


def local_rules(rules: Rules, rows: Sequence[LineRow], faults: Mapping[LineId, int]) -> LocalRulesRow:
    """The clients' own breaker, and the formula's terms of each line; `faults` names the lines that have any."""
    local = rules.local
    terms: dict[str, FormulaRow] = {
        row["line"]: {"base": row["base"], "faults": faults.get(LineId(row["line"]), 0), "share": _share(row, rules)}
        for row in rows
    }
    return {
        "failures": local.failures,
        "open": local.open_ms / 1000,
        "open_cap": local.open_cap_ms / 1000,
        "max_open": local.max_open_milli / 1000,
        "fail_share": local.share_milli / 1000,
        "trial_calls": local.trial_calls,
        "trial_calls_share": local.trial_calls_milli / 1000,
        "ramp_connects": local.ramp_connects,
        "slow": _limit(rules, "degraded_enter"),
        "crawl": _limit(rules, "failed_enter"),
        "formula": {"cost": list(rules.faults.cost), "lines": terms},
    }


def _limit(rules: Rules, level: str) -> float | None:
    """A limit of the P95, in seconds; None where this cluster's lines have none."""
    found = next((getattr(one, level) for one in rules.limits if one.metric == "p95"), None)
    return None if found is None else found / 1e6


def _share(row: LineRow, rules: Rules) -> float:
    """What the center's breaker admits to the line."""
    match row["breaker"]:
        case "open":
            return 0.0
        case "half_open" | "ramp":
            return rules.breaker.steps_milli[row["step"]] / 1000
        case _:
            return 0.0 if row["drained"] else 1.0
