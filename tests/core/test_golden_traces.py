"""The document's own traces, cell by cell: 100, 87, 55, 0, and 22.31 raw against 23 on the wire."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from reachline.core.ledger import Ledger
from reachline.core.rules import FAULT, BreakerRules, FaultRules, Limit, Rules, with_tables
from reachline.core.tiers import Share, full_milli, spread
from reachline.model import (
    Counts,
    Endpoint,
    Gate,
    Health,
    Kind,
    Line,
    LineId,
    Outcome,
    Reading,
    Role,
    Scope,
    VantageId,
    Version,
)

GOLDEN: dict[str, Any] = yaml.safe_load((Path(__file__).parents[1] / "data/golden_traces.yaml").read_text())[
    "golden_traces"
]
TRACES = {name: trace for name, trace in GOLDEN.items() if name != "policy_vectors"}
TICK_MS = 10_000
VANTAGES = tuple(map(VantageId, ("a1", "a2", "a3")))
SCOPE = Scope(cluster="payments")
LINE, OTHER = LineId("payments/l1"), LineId("payments/l2")
RULES = Rules(
    limits=(Limit("loss", 10, 5, 50, 30, 25), Limit("connect", None, None, 0, 3, 3)),
    faults=with_tables(FaultRules(), decay=0.15, half_life_ms=30_000),
    breaker=BreakerRules(jitter_milli=0),
    # The traces name the common zone: their calls are there for trial windows, and contradict nobody.
    shadowed=("business",),
)
WELL = Reading(Kind.TCP, Counts(ok=200), sent=1_000, lost=4, rounds=3, rounds_ok=3)
READINGS = {
    "H": WELL,
    "D": WELL._replace(lost=32),
    "F": WELL._replace(counts=Counts(refused=200), rounds_ok=0),
}
JUDGE = {Health.UNKNOWN: "HEAL", Health.HEALTHY: "HEAL", Health.DEGRADED: "DEGR", Health.UNHEALTHY: "DOWN"}


def new_ledger() -> Ledger:
    lines = [
        Line(id=line, scope=SCOPE, endpoint=Endpoint(scheme="tcp", host=line[-2:], port=1)) for line in (LINE, OTHER)
    ]
    return Ledger(SCOPE, lines, RULES, vantages=frozenset(VANTAGES), version=Version(1, 0), now_ms=0)


def play(trace: dict[str, Any]) -> list[tuple[Any, ...]]:
    """One row a tick: wire, raw, faults, judge, breaker."""
    ledger, seen = new_ledger(), []
    for tick, letter in enumerate(trace["zones"]):
        now_ms = (tick + 1) * TICK_MS
        for vantage in VANTAGES:
            ledger.report(vantage, [(LINE, READINGS[letter]), (OTHER, WELL)], now_ms=now_ms - 500)
        ok, failed = trace.get("requests_ok_bad", [[0, 0]] * (tick + 1))[tick]
        window = ledger.rows[LINE].breaker.window
        ledger.outcomes("app", [Outcome(LINE, window=window, ok=ok, failed=failed)], now_ms=now_ms - 100)
        ledger.close(now_ms)
        row, standing = ledger.rows[LINE], ledger.board.standings[LINE]
        gate = row.breaker.gate.name
        if row.breaker.gate in (Gate.HALF_OPEN, Gate.RAMP):
            gate += str(row.breaker.step)
        faults = row.judgement.faults
        seen.append((standing.weight, standing.raw_milli, faults, JUDGE[row.judgement.health], gate))
    return seen


@pytest.mark.parametrize("name", TRACES)
def test_golden_trace_holds_in_every_cell(name: str) -> None:
    trace = TRACES[name]

    seen = play(trace)

    assert [row[0] for row in seen] == trace["wire"]
    assert [(row[1] + 5) // 10 for row in seen] == [round(100 * raw) for raw in trace["raw"]]
    assert [round(row[2] / FAULT, 3) for row in seen] == trace["f"]
    assert [row[3] for row in seen] == trace["judge"]
    assert [row[4] for row in seen] == trace["breaker"]


def share(
    role: Role, *, health: Health = Health.HEALTHY, gate: Gate = Gate.CLOSED, faults: int = 0, step: int = 1_000
) -> Share:
    return Share(100, frozenset({role}), health, gate, faults * FAULT, step)


def shares_of(lines: list[Share], policy: tuple[str, ...]) -> list[float]:
    raw = spread(lines, policy, full_milli(lines, policy), RULES.faults)
    return [round(one / sum(raw), 4) for one in raw]


@pytest.mark.parametrize("vector", GOLDEN["policy_vectors"]["primary_backup"], ids=str)
def test_primary_and_backup_share_as_the_document_says(vector: dict[str, Any]) -> None:
    step = {"OPEN": 0, "HALF_OPEN": 50}.get(vector["primary"], round(1_000 * vector.get("r", 1)))
    gate = Gate[vector["primary"]] if vector["primary"] in Gate.__members__ else Gate.CLOSED
    health = Health.UNHEALTHY if gate is not Gate.CLOSED else Health[vector["primary"]]
    primary = share(Role.PRIMARY, health=health, gate=gate, faults=vector.get("f", 0), step=step)

    assert shares_of([primary, share(Role.BACKUP)], ("primary_backup",)) == vector["shares"]


@pytest.mark.parametrize("vector", GOLDEN["policy_vectors"]["ab_groups"], ids=str)
def test_reserve_group_takes_what_the_traffic_group_lacks(vector: dict[str, Any]) -> None:
    step = round(1_000 * vector["hA"])
    traffic = share(Role.TRAFFIC, gate=Gate.RAMP if step else Gate.OPEN, step=step)

    assert shares_of([traffic, share(Role.RESERVE)], ("ab_groups",)) == vector["shares"]
