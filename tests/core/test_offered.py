from __future__ import annotations

from reachline.core.offered import NOTHING, Offered, counted, told


def after(*ticks: int, row: Offered = NOTHING) -> Offered:
    """The rate after ticks of 2 s with so many calls each."""
    now_ms = row.since_ms or 1_000
    row = told(row, now_ms)
    for calls in ticks:
        now_ms += 2_000
        row = told(counted(row, calls), now_ms)
    return row


def test_a_rate_is_calls_a_second() -> None:
    assert after(1_800).rate == 900_000
    assert after(1_800).level == 900_000


def test_a_surge_is_followed_within_seconds_and_noise_is_not() -> None:
    steady = after(*[1_800] * 20)

    assert after(*[1_860, 1_700, 1_900, 1_800], row=steady).level == steady.level
    assert after(*[3_600] * 10, row=steady).level > 1_500_000


def test_silence_keeps_the_rate() -> None:
    steady = after(*[1_800] * 5)

    assert told(steady, steady.since_ms + 600_000) == steady


def test_clients_that_post_between_two_ticks_are_added_up() -> None:
    assert counted(counted(NOTHING, 5), 7).calls == 12


def test_what_the_first_look_misjudged_by_a_few_percent_is_right_after_a_minute() -> None:
    assert after(1_900, *[1_800] * 25).level == 950_000
    assert 890_000 <= after(1_900, *[1_800] * 35).level <= 905_000


def test_within_a_minute_a_few_percent_move_nothing() -> None:
    settled = after(1_900, *[1_800] * 35)

    assert after(*[1_860] * 20, row=settled).level == settled.level
