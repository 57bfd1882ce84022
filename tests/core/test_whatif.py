"""Two courses held against each other: numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reachline.core.hindsight import Fault
from reachline.core.whatif import Course, Sum, acted_ms, is_false, moved_ms, summed, trips
from reachline.model import Change, Gate, Health, LineId, Standing
from reachline.testing.builders import standing

A, B = LineId("payments/a"), LineId("payments/b")
OPEN = standing("a", health=Health.UNHEALTHY, gate=Gate.OPEN, weight=0)


def change(before: Standing, after: Standing, at_ms: int, rule: str = "rule") -> Change:
    return Change(line=after.line, at_ms=at_ms, before=before, after=after, rule=rule)


def course(*steps: tuple[int, Standing]) -> Course:
    """Two lines of equal weight, and what became of one of them."""
    found = Course([standing("a"), standing("b")], 0)
    last = standing("a")
    for at_ms, after in steps:
        found.changed([change(last, after, at_ms)])
        last = after
    return found


def test_a_line_carries_its_share_and_what_a_cut_moves_is_counted() -> None:
    """Half of it for 10 s, a third for 10 s, none for 20 s, half for 20 s."""
    one = course((10_000, standing("a", weight=50)), (20_000, OPEN), (40_000, standing("a")))

    found = summed(one, 60_000, ())

    assert found[A].traffic_ms == pytest.approx(5_000 + 10_000 / 3 + 0 + 10_000, abs=2)
    assert found[A].traffic_ms + found[B].traffic_ms == pytest.approx(60_000, abs=3)
    assert moved_ms(course(), one, 60_000) == pytest.approx(10_000 / 6 + 20_000 / 2, abs=2)
    assert moved_ms(one, one, 60_000) == 0


def test_opens_are_counted_once_a_trip_and_held_against_the_faults() -> None:
    trial = replace(OPEN, gate=Gate.HALF_OPEN, weight=5)
    one = course((10_000, OPEN), (70_000, trial), (80_000, OPEN), (200_000, standing("a")), (300_000, OPEN))

    found = summed(one, 310_000, [Fault(A, 5_000, 90_000), Fault(B, 290_000, 310_000)])

    assert [at_ms for at_ms, _, _ in trips(one)] == [10_000, 300_000]
    assert found[A] == Sum(
        opens=2,
        false_opens=1,
        degrades=0,
        open_ms=60_000 + 120_000 + 10_000,
        degraded_ms=0,
        traffic_ms=found[A].traffic_ms,
        first_ms=10_000,
    )


@pytest.mark.parametrize(("at_ms", "false"), [(69_999, True), (70_000, False), (260_000, False), (260_001, True)])
def test_a_trip_is_false_away_from_every_fault(at_ms: int, false: bool) -> None:
    assert is_false(A, at_ms, [Fault(A, 100_000, 200_000)]) is false


def test_acting_is_having_at_most_half_of_the_weight_it_had() -> None:
    fault = Fault(A, 10_000, 60_000)
    degraded = standing("a", health=Health.DEGRADED, weight=51)

    assert acted_ms(course((20_000, degraded), (30_000, replace(degraded, weight=50))), fault) == 20_000
    assert acted_ms(course((20_000, degraded)), fault) is None
    assert acted_ms(course((60_001, OPEN)), fault) is None
    assert acted_ms(course((5_000, OPEN)), fault) == 0


def test_a_line_that_left_the_document_carries_nothing_from_then_on() -> None:
    one = course()

    one.begin([standing("b")], 30_000)

    assert summed(one, 60_000, ())[A].traffic_ms == 15_000
