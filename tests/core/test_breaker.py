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
