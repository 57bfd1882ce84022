"""A silent agent is a missing vote, never a line's fault (hole 16)."""

from __future__ import annotations

from reachline.core.ledger import Ledger
from reachline.core.rules import FaultRules, Limit, QuorumRules, Rules, with_tables
from reachline.core.silence import Beat, after, due_ms, is_silent, phi
from reachline.model import Gate, Health, LineId, Version
from reachline.testing import builders

EVERY_MS = 10_000


def beat_of(*gaps: int) -> Beat:
    now_ms = 0
    beat = after(None, now_ms, EVERY_MS)
    for gap in gaps:
        now_ms += gap
        beat = after(beat, now_ms, EVERY_MS)
    return beat


def test_a_regular_vantage_is_missed_before_two_heartbeats_are_over() -> None:
    beat = beat_of(*[EVERY_MS] * 10)

    late_ms = due_ms(beat, EVERY_MS) - beat.at_ms

    assert EVERY_MS < late_ms < 2 * EVERY_MS
    assert not is_silent(beat, beat.at_ms + late_ms, EVERY_MS)
    assert is_silent(beat, beat.at_ms + late_ms + 1, EVERY_MS)
    assert phi(beat, beat.at_ms + late_ms + 1, EVERY_MS) == 8


def test_an_irregular_vantage_is_given_more_time() -> None:
    regular, irregular = beat_of(*[EVERY_MS] * 20), beat_of(*[6_000, 14_000] * 10)

    assert due_ms(irregular, EVERY_MS) - irregular.at_ms > due_ms(regular, EVERY_MS) - regular.at_ms


def test_nobody_is_silent_whose_habit_is_not_known() -> None:
    assert not is_silent(beat_of(*[EVERY_MS] * 3), 10**9, EVERY_MS)
    assert not is_silent(None, 10**9, EVERY_MS)


def test_parts_and_urgent_heartbeats_tell_no_rhythm() -> None:
    beat = beat_of(*[EVERY_MS] * 8, 1, 1, 1, 900)

    assert beat._replace(at_ms=0) == beat_of(*[EVERY_MS] * 8)._replace(at_ms=0)
    assert beat.at_ms == 8 * EVERY_MS + 903


def test_an_absence_is_not_a_habit() -> None:
    away = beat_of(*[EVERY_MS] * 10, 3_600_000)

    assert away.mean_ms <= EVERY_MS + 15_000 // 8


def test_phi_rises_with_the_wait() -> None:
    beat = beat_of(*[EVERY_MS] * 10)
    found = [phi(beat, beat.at_ms + wait, EVERY_MS) for wait in range(0, 30_000, 500)]

    assert found == sorted(found)
    assert (found[0], found[-1]) == (0, 12)


def test_a_silent_vantages_last_word_does_not_count_and_harms_no_line() -> None:
    tick_ms, vantages = 10_000, builders.vantages(3)
    rules = Rules(
        limits=(Limit("connect", None, None, 0, 3, 3),),
        quorum=QuorumRules(fresh_ms=25_000),
        faults=with_tables(FaultRules(), decay=0.15, half_life_ms=30_000),
    )
    ledger = Ledger(
        builders.scope(), builders.lines("a", "b"), rules, vantages=frozenset(vantages), version=Version(1, 0), now_ms=0
    )
    line = LineId("payments/a")
    for number in range(1, 8):
        for vantage in vantages:
            said = builders.mute() if number == 7 and vantage == vantages[0] else builders.healthy()
            ledger.report(vantage, [(line, said)], now_ms=number * tick_ms - 500)
        ledger.close(number * tick_ms)
    # Two of three say so, but the first has not been heard for almost two heartbeats: its word of then is not its word of now.
    ledger.report(vantages[1], [(line, builders.mute())], now_ms=88_000)
    ledger.report(vantages[2], [(line, builders.healthy())], now_ms=88_000)
    view = ledger.view(line, 88_000)

    assert (view.tally.fresh, view.tally.failed) == (2, 1_000)
    assert ledger.rows[line].judgement.health is Health.HEALTHY
    assert ledger.rows[line].breaker.gate is Gate.CLOSED
