"""What becomes of a drill: the rule by which it must not go on, when traffic has moved, and whether capacity held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from reachline.core.drilled import WATCH, Counted, Drilled, has_tripped, is_risen
from reachline.core.orders import Action, Order
from reachline.core.watching import Abort, Watch
from reachline.model import Change, Gate, Health, LineId, Standing
from reachline.testing import builders

SCOPE = builders.scope()
A, B, C = (LineId(f"payments/{name}") for name in "abc")
LINES = (builders.line("a"), replace(builders.line("b"), capacity=100), replace(builders.line("c"), capacity=50))
TICK_MS = 2_000
BEGIN_MS = 120_000
Calls = Mapping[LineId, tuple[int, int]]
"""By line: all, and those that failed."""


@pytest.mark.parametrize(
    ("before", "seen", "margin", "risen"),
    [
        (Counted(calls=10_000, bad=40), Counted(calls=1_000, bad=4), 10, False),
        (Counted(calls=10_000, bad=40), Counted(calls=1_000, bad=14), 10, False),  # 1.4 %: as the limit, not surely above
        (Counted(calls=10_000, bad=40), Counted(calls=1_000, bad=23), 10, False),
        (Counted(calls=10_000, bad=40), Counted(calls=1_000, bad=26), 10, True),
        (Counted(calls=10_000, bad=40), Counted(calls=1_000, bad=26), 50, False),
        (Counted(calls=10_000, bad=400), Counted(calls=1_000, bad=48), 10, False),  # its own before-rate, not zero
        (Counted(), Counted(calls=1_000, bad=26), 10, True),
        (Counted(), Counted(calls=49, bad=49), 10, False),
        (Counted(), Counted(calls=50, bad=50), 10, True),
        (Counted(calls=10, bad=10), Counted(calls=1_000, bad=1_000), 10, False),  # nothing is worse than all
        (Counted(), Counted(), 10, False),
    ],
)  # fmt: skip
def test_errors_have_risen_once_the_bound_of_their_rate_is_beyond_what_is_allowed(
    before: Counted, seen: Counted, margin: int, risen: bool
) -> None:
    assert is_risen(before, seen, margin) is risen


def standing(line: LineId, health: Health, gate: Gate = Gate.CLOSED) -> Standing:
    return replace(builders.standing(line.partition("/")[2]), line=line, health=health, gate=gate)


def turned(line: LineId, health: Health, gate: Gate, rule: str, was: Health = Health.HEALTHY) -> Change:
    return Change(line=line, at_ms=0, before=standing(line, was), after=standing(line, health, gate), rule=rule)


FAILED = turned(B, Health.UNHEALTHY, Gate.OPEN, "vote.timeout.failed")


@pytest.mark.parametrize(
    ("change", "tripped"),
    [
        (FAILED, True),
        (turned(B, Health.UNHEALTHY, Gate.CLOSED, "vote.timeout.failed"), True),  # the guard holds it
        (turned(B, Health.UNHEALTHY, Gate.OPEN, "business.errors.failed", Health.DEGRADED), True),
        (turned(B, Health.DEGRADED, Gate.CLOSED, "vote.loss.degraded"), False),
        (turned(B, Health.UNHEALTHY, Gate.CLOSED, "policy.weighted", Health.UNHEALTHY), False),
        (turned(B, Health.UNHEALTHY, Gate.OPEN, "operator.open"), False),
        (turned(B, Health.UNHEALTHY, Gate.OPEN, "drill.failed"), False),
        (turned(B, Health.HEALTHY, Gate.CLOSED, "judge.recovered", Health.UNHEALTHY), False),
    ],
)
def test_a_line_has_tripped_by_its_own_fault_only(change: Change, tripped: bool) -> None:
    assert has_tripped(change) is tripped


class Played:
    """A watch that is told of calls, tick after tick."""

    def __init__(self, *, lasts_ms: int | None = 60_000, target: str = A) -> None:
        self.watch, self.now_ms = Watch(), BEGIN_MS - 80_000
        self.order = Order(
            3, Action.DRILL, target, "kim", "practice", BEGIN_MS,
            None if lasts_ms is None else BEGIN_MS + lasts_ms, margin_milli=10,
        )  # fmt: skip

    def ticks(self, count: int, calls: Calls, *changes: Change) -> tuple[Abort, ...]:
        """These calls in each tick; what the last one said."""
        said: tuple[Abort, ...] = ()
        for _ in range(count):
            rows = [
                builders.outcome(ok=all_ - bad, failed=bad)._replace(line=line) for line, (all_, bad) in calls.items()
            ]
            self.watch.outcomes(SCOPE, rows)
            self.now_ms += TICK_MS
            said = self.watch.ticked(SCOPE, self.now_ms, changes)
        return said

    def begun(self, before: Calls) -> Played:
        """After 80 s of these calls the drill begins."""
        self.ticks(40, before)
        self.watch.ordered(SCOPE, self.order, LINES, self.now_ms)
        return self

    @property
    def found(self) -> Drilled:
        (one,) = self.watch.all()
        return one


USUAL: Calls = {A: (100, 0), B: (100, 1), C: (50, 0)}
OFF: Calls = {A: (0, 0), B: (170, 1), C: (80, 0)}


def test_the_minute_before_is_what_a_drill_is_held_against() -> None:
    found = Played().begun(USUAL).found

    assert found.before == Counted(ms=60_000, calls=7_500, bad=30, on=3_000)
    assert found.lines == {A}


def test_traffic_has_moved_once_a_hundredth_is_left_and_its_share_counts_from_then_on() -> None:
    played = Played().begun(USUAL)
    played.ticks(2, USUAL)
    played.ticks(1, {A: (3, 0), B: (160, 0), C: (87, 0)})  # 1.2 %
    still = played.found.moved_ms
    played.ticks(5, {**OFF, A: (2, 0)})

    assert still is None
    assert played.found.moved_ms == 8_000
    assert played.found.moved == Counted(ms=10_000, calls=1_260, bad=5, on=10)
    assert played.found.during.calls == 750 + 1_260


def test_no_traffic_at_all_has_not_moved() -> None:
    played = Played().begun({})
    said = played.ticks(10, {})

    assert (played.found.moved_ms, said) == (None, ())


def test_it_must_not_go_on_where_calls_fail_more_often() -> None:
    played = Played().begun(USUAL)
    calm = played.ticks(3, OFF)
    ((number, why),) = played.ticks(1, {**OFF, B: (170, 30)})

    assert calm == ()
    assert number == 3
    assert why == "33 of 1000 calls failed of late (3.3 %), 0.4 % before it; at most 1 % more is allowed"


def test_a_fault_late_in_a_long_drill_is_not_lost_in_what_went_well() -> None:
    played = Played(lasts_ms=3_600_000).begun(USUAL)
    assert played.ticks(1_000, OFF) == ()

    said = played.ticks(2, {**OFF, B: (170, 30)})

    assert "of late" in said[0][1]
    assert not is_risen(played.found.before, played.found.during, 10)


def test_a_slow_rise_is_seen_over_the_whole_time_though_no_ten_seconds_are_sure_of_it() -> None:
    played = Played(lasts_ms=3_600_000).begun({B: (50, 0)})

    said = next(found for _ in range(500) if (found := played.ticks(1, {B: (20, 0)}) or played.ticks(1, {B: (20, 1)})))

    assert "since it began" in said[0][1]


def test_it_must_not_go_on_where_another_line_fails_and_one_of_its_own_is_no_reason() -> None:
    played = Played().begun(USUAL)

    own = played.ticks(1, OFF, turned(A, Health.UNHEALTHY, Gate.OPEN, "vote.timeout.failed"))
    said = played.ticks(1, OFF, FAILED)

    assert own == ()
    assert said == ((3, "payments/b failed during it (vote.timeout.failed)"),)
    assert played.found.tripped == ((B, "vote.timeout.failed"),)


def test_ended_by_its_rule_it_is_aborted_and_what_follows_is_counted_for_a_minute() -> None:
    played = Played().begun(USUAL)
    played.ticks(3, OFF)
    played.watch.undone(SCOPE, 3, played.now_ms, by=WATCH, why="errors")
    said = played.ticks(40, USUAL, FAILED)

    found = played.found
    assert said == ()
    assert (found.is_aborted, found.why, found.ended_ms) == (True, "errors", BEGIN_MS + 6_000)
    assert found.after == Counted(ms=60_000, calls=7_500, bad=30, on=3_000)
    assert found.during.calls == 750


def test_its_time_over_it_is_not_aborted_and_nobody_ended_it() -> None:
    played = Played(lasts_ms=10_000).begun(USUAL)
    played.ticks(6, OFF)
    said = played.ticks(1, OFF, FAILED)

    assert (played.found.ended_ms, played.found.ended_by, said) == (BEGIN_MS + 10_000, "", ())
    assert not played.found.is_aborted


def test_the_fullest_other_line_is_kept_by_its_capacity() -> None:
    played = Played().begun(USUAL)
    played.ticks(5, OFF)
    played.ticks(5, USUAL)

    peak = played.found.peak
    assert peak is not None
    assert (peak.line, peak.rate_milli, peak.capacity) == (B, 85_000, 100)


def test_a_drilled_line_is_never_the_fullest_and_without_capacities_none_is() -> None:
    both = Played(target="payments").begun(USUAL)
    both.ticks(5, USUAL)

    assert both.found.peak is None


def test_an_order_that_is_no_drill_is_not_watched() -> None:
    played = Played()
    played.order = played.order._replace(action=Action.DRAIN)

    assert played.begun(USUAL).watch.all() == ()
