"""Rules that judge and record without acting: which of them still change what is published, and what a change says of it."""

from __future__ import annotations

import pytest

from reachline.core.ledger import Ledger
from reachline.core.rules import SHADOWS, FaultRules, Limit, Rules, with_tables
from reachline.model import Change, Gate, Health, LineId, Reading, Standing, Version
from reachline.testing import builders

LIMITS = (
    Limit("p95", 200_000, 160_000, 500_000, 400_000, 20),
    Limit("connect", None, None, 0, 3, 3),
)
FAULTS = with_tables(FaultRules(), decay=0.15, half_life_ms=30_000)
A = LineId("payments/a")
THREE = builders.vantages(3)


def rules(*shadowed: str) -> Rules:
    return Rules(limits=LIMITS, faults=FAULTS, shadowed=shadowed, enforce=len(shadowed) < len(SHADOWS))


def judged(given: Rules, of_a: Reading) -> tuple[Standing, list[Change]]:
    """Where A stands after ten ticks, five of them like this, among two others that are well; and its changes."""
    lines = builders.lines("a", "b", "c")
    ledger = Ledger(builders.scope(), lines, given, vantages=frozenset(THREE), version=Version(1, 0), now_ms=0)
    changes: list[Change] = []
    for tick in range(1, 11):
        said = builders.healthy() if tick <= 5 else of_a
        for vantage in THREE:
            rows = [(line.id, said if line.id == A else builders.healthy()) for line in lines]
            ledger.report(vantage, rows, now_ms=10_000 * tick)
        changes += ledger.close(10_000 * tick).changes
    found = next(one for one in ledger.snapshot().standings if one.line == A)
    return found, [change for change in changes if change.line == A]


def idle(changes: list[Change]) -> set[str]:
    return {fact.name for change in changes for fact in change.facts if fact.name.startswith("unenforced.")}


@pytest.mark.parametrize(
    ("shadowed", "weight", "says"),
    [
        ((), 0, set()),
        (("breaker",), 75, {"unenforced.breaker"}),
        (("breaker", "faults"), 100, {"unenforced.breaker", "unenforced.faults"}),
        (("faults",), 0, {"unenforced.faults"}),
        (SHADOWS, 100, {"unenforced.breaker", "unenforced.faults"}),
    ],
)
def test_a_dead_line_is_recorded_as_open_and_loses_what_the_rules_that_act_take(
    shadowed: tuple[str, ...], weight: int, says: set[str]
) -> None:
    found, changes = judged(rules(*shadowed), builders.mute())

    assert (found.health, found.gate) == (Health.UNHEALTHY, Gate.OPEN), "it is judged either way"
    assert found.weight == weight
    assert idle(changes) == says


@pytest.mark.parametrize(
    ("shadowed", "weight", "says"),
    [((), 55, set()), (("breaker",), 55, set()), (("faults",), 100, {"unenforced.faults"})],
)
def test_a_degraded_line_keeps_its_weight_where_faults_do_not_act(
    shadowed: tuple[str, ...], weight: int, says: set[str]
) -> None:
    found, changes = judged(rules(*shadowed), builders.slow())

    assert (found.health, found.weight) == (Health.DEGRADED, weight)
    assert idle(changes) == says
