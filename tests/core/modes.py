"""The rules of `mode: fast`, as its ledgers are tried with; tests replace what they are about."""

from __future__ import annotations

from typing import Final

from reachline.core.cusum import QUESTIONS
from reachline.core.rules import FaultRules, Patience, QuorumRules, Rules, with_tables

FAULTS: Final = with_tables(FaultRules(), decay=0.15, half_life_ms=30_000)
TICK_MS: Final = 2_000
FAST: Final = Rules(
    mode="fast",
    tick_ms=TICK_MS,
    questions=QUESTIONS,
    patience=Patience(degraded=1, failed=1, recover=3, lone_failed=1),
    quorum=QuorumRules(fresh_ms=5_000),
    faults=FAULTS,
)
