from __future__ import annotations

import pytest

from reachline.core.breaker import CLOSED, Breaker, advance, cooldown_ms, count, count_synthetic, deadline, told, trip
from reachline.core.rules import BreakerRules
from reachline.model import Gate, Zone

RULES = BreakerRules(jitter_milli=0)


def in_trial(**known: int) -> Breaker:
    return Breaker(Gate.HALF_OPEN, window=1)._replace(**known)  # type: ignore[arg-type]


def moved(row: Breaker, now_ms: int, zone: Zone = Zone.H, rules: BreakerRules = RULES) -> tuple[Breaker, str]:
    return advance(row, zone, now_ms, jitter=0, rules=rules)


@pytest.mark.parametrize(("reopens", "wait"), [(0, 60_000), (1, 120_000), (2, 240_000), (4, 960_000), (40, 960_000)])
def test_cooldown_doubles_per_failed_return_up_to_the_cap(reopens: int, wait: int) -> None:
    assert cooldown_ms(reopens, 0, RULES) == wait


def test_cooldown_jitter_is_a_tenth_either_way() -> None:
    rules = BreakerRules()

    assert [cooldown_ms(0, jitter, rules) for jitter in (-1_000, 0, 1_000)] == [54_000, 60_000, 66_000]


def test_cooldown_over_leads_to_a_trial_unless_the_vote_still_says_failed() -> None:
    row = trip(CLOSED, 0, jitter=0, rules=RULES)

    assert moved(row, 59_999)[0] is row
    assert moved(row, 60_000, Zone.F)[0] is row
    assert moved(row, 60_000, Zone.D)[0].gate is Gate.HALF_OPEN
    assert moved(row, 60_000, Zone.N)[0] is row, "nobody sees it: no traffic is risked"


@pytest.mark.parametrize(
    ("now_ms", "ok", "gate"),
    [(29_999, 1_000, Gate.HALF_OPEN), (30_000, 199, Gate.HALF_OPEN), (30_000, 200, Gate.RAMP)],
)
def test_a_trial_needs_its_time_and_its_successes(now_ms: int, ok: int, gate: Gate) -> None:
    assert moved(in_trial(ok=ok), now_ms)[0].gate is gate


def test_three_failures_end_a_trial_and_lengthen_the_wait() -> None:
    row, rule = moved(in_trial(ok=500, failed=3), 30_000)

    assert rule == "breaker.trial_failed"
    assert (row.gate, row.reopens, row.until_ms) == (Gate.OPEN, 1, 150_000)
    assert moved(in_trial(ok=500, failed=2), 30_000)[0].gate is Gate.RAMP


def test_failed_probes_end_a_ramp_and_degraded_ones_hold_it() -> None:
    ramping = Breaker(Gate.RAMP, step=3, window=4, ok=500)

    assert moved(ramping, 40_000, Zone.F)[0].gate is Gate.OPEN
    assert moved(ramping, 40_000, Zone.D)[0] is ramping


def test_the_ramp_climbs_every_step_and_ends_closed() -> None:
    row, shares = in_trial(ok=200), []
    for _ in range(5):
        row = moved(row._replace(ok=200), row.since_ms + 30_000)[0]
        shares.append((row.gate, row.step))

    assert shares == [(Gate.RAMP, 1), (Gate.RAMP, 2), (Gate.RAMP, 3), (Gate.RAMP, 4), (Gate.CLOSED, 0)]


def test_outcomes_of_an_older_window_are_dropped() -> None:
    assert count(in_trial(), window=0, ok=50, failed=3, rules=RULES) == in_trial()
    assert count(in_trial(), window=1, ok=50, failed=1, rules=RULES) == in_trial(ok=50, failed=1)


def test_counting_stops_where_evidence_is_enough() -> None:
    full = told(count(in_trial(), window=1, ok=5_000, failed=0, rules=RULES), RULES)

    assert full.ok == 1_000
    assert count(full, window=1, ok=0, failed=9, rules=RULES) == full


def test_a_starved_window_passes_on_probes_after_a_long_wait_only() -> None:
    early = count_synthetic(in_trial(ok=10), 500, 0, now_ms=299_999, rules=RULES)
    starved = count_synthetic(early, 500, 0, now_ms=300_000, rules=RULES)

    assert early == in_trial(ok=10)
    assert moved(starved, 300_000) == (Breaker(Gate.RAMP, 1, since_ms=300_000, window=2), "breaker.window_starved")


@pytest.mark.parametrize("row", [in_trial(), in_trial(ok=10, synthetic=39), in_trial(ok=60, synthetic=90, failed=1)])
def test_a_starved_window_never_passes_on_nothing_or_on_failures(row: Breaker) -> None:
    assert moved(row, 10**9)[0] is row


def test_reopenings_are_forgiven_by_time_with_real_traffic_only() -> None:
    closed = Breaker(reopens=3)
    seen = count(closed, window=0, ok=5, failed=0, rules=RULES)

    assert moved(closed, 10**9)[0].reopens == 3
    assert moved(seen, 599_999)[0].reopens == 3
    assert moved(seen, 600_000)[0].reopens == 0


@pytest.mark.parametrize(
    "row",
    [
        trip(CLOSED, 0, jitter=0, rules=RULES),
        in_trial(ok=200),
        in_trial(ok=10, synthetic=100),
        Breaker(reopens=2, ok=1),
        Breaker(Gate.RAMP, step=2, window=3, ok=300),
    ],
)
def test_a_deadline_is_the_first_moment_that_moves_the_breaker(row: Breaker) -> None:
    due = deadline(row, RULES, zone=Zone.H)

    assert due is not None
    assert moved(row, due - 1)[0] is row
    assert moved(row, due)[0] is not row


RATIO = BreakerRules(jitter_milli=0, fail_milli=10)


def seen(row: Breaker, *reports: tuple[int, int], rules: BreakerRules = RATIO) -> Breaker:
    """The row after ticks that each brought so many calls ok and failed."""
    for ok, failed in reports:
        row = told(count(row, window=row.window, ok=ok, failed=failed, rules=rules), rules)
    return row


@pytest.mark.parametrize(
    ("ok", "failed", "gate"),
    [(997, 3, Gate.RAMP), (990, 10, Gate.RAMP), (970, 30, Gate.OPEN), (47, 3, Gate.OPEN), (2, 2, Gate.HALF_OPEN)],
    ids=["0.3 %", "1 % is not above 1 %", "3 %", "3 of 50", "two are never enough"],
)
def test_where_a_rate_is_asked_for_failures_must_show_one(ok: int, failed: int, gate: Gate) -> None:
    assert moved(seen(in_trial(), (ok, failed)), 30_000, rules=RATIO)[0].gate is gate


def test_the_plain_threshold_stands_where_no_rate_is_asked_for() -> None:
    assert moved(seen(in_trial(), (997, 3), rules=RULES), 30_000)[0].gate is Gate.OPEN


def test_a_line_is_held_against_twice_its_usual_failure_rate() -> None:
    row = seen(in_trial(), (970, 30))

    assert advance(row, Zone.H, 30_000, jitter=0, rules=RATIO, usual_milli=10)[0].gate is Gate.OPEN
    assert advance(row, Zone.H, 30_000, jitter=0, rules=RATIO, usual_milli=15)[0].gate is Gate.RAMP


def test_three_failures_in_a_row_fail_whatever_the_rate() -> None:
    row = seen(in_trial(), (900, 0), (0, 2))

    assert moved(row, 20_000, rules=RATIO)[0].gate is Gate.HALF_OPEN
    assert moved(seen(row, (0, 1)), 20_000, rules=RATIO)[0].gate is Gate.OPEN
    assert moved(seen(row, (50, 1)), 20_000, rules=RATIO)[0].gate is Gate.HALF_OPEN, "calls between them went well"


def test_a_busy_line_with_usual_failures_climbs_every_step() -> None:
    row = in_trial()
    for _ in range(5):
        for tick in range(15):
            row = seen(row, (13_745, 55))
            row, rule = moved(row, row.since_ms + 2_000 * (tick + 1), rules=RATIO)
        assert rule == "breaker.window_passed" or rule.startswith("breaker.window_passed")

    assert row.gate is Gate.CLOSED


def test_inside_a_tick_the_order_of_reports_cannot_matter() -> None:
    reports = [(1_500, 0), (0, 9), (10, 2)]

    results = set()
    for order in (reports, reports[::-1], [reports[1], reports[0], reports[2]]):
        row = in_trial()
        for ok, failed in order:
            row = count(row, window=1, ok=ok, failed=failed, rules=RULES)
        results.add(told(row, RULES))

    assert results == {in_trial(ok=1_000, failed=8, told_ok=1_000, told_failed=8)}


def test_probes_that_fail_fill_no_starved_window() -> None:
    fair = count_synthetic(in_trial(ok=10), 200, 2, now_ms=300_000, rules=RULES)
    poor = count_synthetic(in_trial(ok=10), 200, 12, now_ms=300_000, rules=RULES)

    assert moved(fair, 300_000)[0].gate is Gate.RAMP
    assert moved(poor, 300_000)[0] is poor
    assert advance(poor, Zone.H, 300_000, jitter=0, rules=RULES, usual_milli=25)[0].gate is Gate.RAMP


def test_a_first_opening_may_be_tried_early_once_the_line_is_seen_well() -> None:
    rules = BreakerRules(jitter_milli=0, early_ms=20_000)
    first, again = trip(CLOSED, 0, jitter=0, rules=rules), trip(Breaker(reopens=1), 0, jitter=0, rules=rules)

    def tried(row: Breaker, now_ms: int, zone: Zone = Zone.H, *, steady: bool = True, by: BreakerRules = rules) -> bool:
        return advance(row, zone, now_ms, jitter=0, rules=by, steady=steady)[0].gate is Gate.HALF_OPEN

    assert tried(first, 20_000)
    assert not tried(first, 19_999)
    assert not tried(first, 20_000, steady=False)
    assert not tried(first, 20_000, Zone.D)
    assert not tried(again, 20_000), "not after a failed return"
    assert not tried(first, 20_000, by=RULES), "only where it is asked for"
    assert deadline(first, rules, zone=Zone.H, steady=True) == 20_000


def test_a_line_that_waits_for_its_group_has_no_deadline() -> None:
    row = trip(CLOSED, 0, jitter=0, rules=RULES)

    assert deadline(row, RULES, zone=Zone.H) == 60_000
    assert deadline(row._replace(waits=True), RULES, zone=Zone.H) is None


def test_a_closed_breaker_remembers_traffic_only_where_it_has_something_to_forgive() -> None:
    assert count(CLOSED, window=0, ok=5, failed=0, rules=RULES) is CLOSED
