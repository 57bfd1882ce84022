from __future__ import annotations

from itertools import permutations

from reachline.core.usual import NEVER, Usual, forgotten, learnt, rate_milli


def after(*spans: tuple[int, int]) -> Usual:
    """What is known after spans of 30 s with so many calls and failures each; the last one still runs."""
    row = NEVER
    for number, (calls, failed) in enumerate(spans, 1):
        row = learnt(row, calls=calls, failed=failed, now_ms=30_000 * number)
    return row


def test_a_rate_is_known_once_a_thousand_calls_have_gone_by() -> None:
    assert rate_milli(after((999, 4), (0, 0))) == 0
    assert rate_milli(after((1_000, 4), (0, 0))) == 4


def test_the_running_span_teaches_nothing_and_is_dropped_with_the_health() -> None:
    row = after((1_000, 4), (1_000, 900))

    assert rate_milli(row) == 4
    assert rate_milli(learnt(forgotten(row), calls=1, failed=0, now_ms=90_000)) == 4


def test_what_is_usual_never_excuses_a_line_that_fails() -> None:
    assert rate_milli(after((10_000, 5_000), (0, 0))) == 25


def test_memory_is_bounded_and_follows_newer_traffic() -> None:
    row = after(*[(90_000, 360)] * 20, *[(90_000, 1_080)] * 20)

    assert row.calls <= 100_000
    assert rate_milli(row) == 12


def test_inside_a_span_order_does_not_matter() -> None:
    reports = [(300, 1), (5, 5), (1_000, 0)]
    found = set()
    for order in permutations(reports):
        row = NEVER
        for calls, failed in order:
            row = learnt(row, calls=calls, failed=failed, now_ms=31_000)
        found.add(row)

    assert len(found) == 1
