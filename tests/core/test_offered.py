from __future__ import annotations

from reachline.core.offered import NOTHING, Offered, counted, told

TICK_MS = 2_000


def after(*ticks: int, row: Offered = NOTHING) -> Offered:
    """The rate after ticks of 2 s with so many calls each."""
    now_ms = max(row.since_ms, row.quiet_ms) or 1_000
    row = told(row, now_ms, TICK_MS)
    for calls in ticks:
        now_ms += TICK_MS
        row = told(counted(row, calls), now_ms, TICK_MS)
    return row


def test_a_rate_is_calls_a_second() -> None:
    assert after(1_800).rate == 900_000
    assert after(1_800).level == 900_000


def test_a_surge_is_followed_within_seconds_and_noise_is_not() -> None:
    steady = after(*[1_800] * 20)

    assert after(*[1_860, 1_700, 1_900, 1_800], row=steady).level == steady.level
    assert after(*[3_600] * 10, row=steady).level > 1_500_000


def test_silence_keeps_the_rate() -> None:
    silent = after(*[1_800] * 5, *[0] * 300)

    assert (silent.rate, silent.level) == (900_000, 900_000)


def test_calls_after_a_silence_are_not_held_to_be_all_of_its_calls() -> None:
    silent = after(*[1_800] * 5, *[0] * 300)

    assert after(1_800, row=silent).rate == 900_000
    assert 800_000 < after(900, row=silent).rate < 900_000
    assert after(*[900] * 20, row=silent).level <= 500_000


def test_calls_of_a_silence_that_are_reported_together_are_no_surge() -> None:
    silent = after(*[1_800] * 5, *[0] * 4)

    assert after(5 * 1_800, row=silent).level == 900_000


def test_a_call_now_and_then_is_no_silence() -> None:
    assert after(*[1_800] * 5, *[1, 0, 0, 0, 0] * 20).level < 50_000


def test_a_center_that_was_away_does_not_find_its_traffic_gone() -> None:
    steady = after(*[1_800] * 5)
    back_ms = steady.since_ms + 300_000

    first = told(counted(steady, 9_000), back_ms, TICK_MS)

    assert first.level == 900_000
    assert told(counted(first, 1_800), back_ms + TICK_MS, TICK_MS).level == 900_000


def test_clients_that_post_between_two_ticks_are_added_up() -> None:
    assert counted(counted(NOTHING, 5), 7).calls == 12


def test_what_the_first_look_misjudged_by_a_few_percent_is_right_after_a_minute() -> None:
    assert after(1_900, *[1_800] * 25).level == 950_000
    assert 890_000 <= after(1_900, *[1_800] * 35).level <= 905_000


def test_within_a_minute_a_few_percent_move_nothing() -> None:
    settled = after(1_900, *[1_800] * 35)

    assert after(*[1_860] * 20, row=settled).level == settled.level
