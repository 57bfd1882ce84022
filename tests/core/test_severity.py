"""How far a line is from degraded to failed, by what was seen of late."""

from __future__ import annotations

from struct import pack

import pytest

from reachline.core.cusum import NOTHING, QUESTIONS, Evidence, Said
from reachline.core.severity import remembered, severity_milli


def seen(*ticks: Evidence, calls: Evidence = NOTHING, trust: int = 1_000) -> int:
    """The severity after ticks in which one vantage saw so much, and clients so much."""
    recent: tuple[int, ...] = ()
    for tick in ticks:
        recent = remembered(recent, [Said(trust, tick)], calls)
    return severity_milli(recent, (), QUESTIONS)


@pytest.mark.parametrize(
    ("failed", "expected"),
    [(0, 0), (20, 0), (35, 480), (41, 670), (51, 1_000), (500, 1_000)],
)
def test_a_rate_between_degraded_and_failed_is_so_far_on_its_way(failed: int, expected: int) -> None:
    assert seen(Evidence(1_000, failed)) == pytest.approx(expected, abs=20)


def test_a_rate_of_fewer_attempts_than_a_limit_asks_for_says_nothing() -> None:
    assert seen(Evidence(24, 24)) == 0
    assert seen(Evidence(25, 25)) == 1_000


def test_calls_that_end_well_do_not_hide_what_probes_see() -> None:
    assert seen(Evidence(100, 5), calls=Evidence(10_000, 0)) == seen(Evidence(100, 5)) > 900


def test_probes_that_end_well_do_not_hide_what_calls_see() -> None:
    assert seen(Evidence(100, 0), calls=Evidence(1_000, 60)) == 1_000


@pytest.mark.parametrize(
    ("slow", "crawl", "expected"),
    [
        (50, 0, 0),
        (290, 10, 520),  # lognormal, median 150 ms, P95 350 ms: half way between 200 and 500
        (60, 20, 160),
        (400, 49, 990),
        (400, 50, 1_000),
    ],
)
def test_a_p95_between_its_two_limits_is_so_far_on_its_way(slow: int, crawl: int, expected: int) -> None:
    assert seen(Evidence(1_000, 0, slow, crawl)) == pytest.approx(expected, abs=30)


def test_server_errors_of_calls_count() -> None:
    assert seen(NOTHING, calls=Evidence(1_000, 0, errors=200)) == 1_000


def test_a_vantage_counts_by_its_trust() -> None:
    recent = remembered((), [Said(50, Evidence(100, 100)), Said(1_000, Evidence(1_000, 10))], NOTHING)

    assert severity_milli(recent, (), QUESTIONS) < 100


def test_what_was_seen_fades() -> None:
    assert seen(Evidence(100, 10), *[Evidence(100, 0)] * 15) == 0


def test_a_full_sum_of_the_failed_zone_is_the_far_end() -> None:
    sums = tuple(question.height for question in QUESTIONS)

    assert severity_milli((), sums, QUESTIONS) == 1_000


def test_nothing_remembered_of_nothing() -> None:
    assert remembered((), [Said(1_000, NOTHING)], NOTHING) == ()


def test_figures_beyond_all_reason_never_outgrow_the_64_bits_of_a_seal() -> None:
    absurd = Evidence(10**18, 10**18, 10**18, 10**18)
    recent: tuple[int, ...] = ()
    for _ in range(3):
        recent = remembered(recent, [Said(1_000, absurd)], absurd)

    assert pack(f"<{len(recent)}q", *recent)
    assert severity_milli(recent, (), QUESTIONS) == 1_000
