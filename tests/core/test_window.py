import math
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.core import histogram
from reachline.core.ring import Columns
from reachline.core.rounds import Rounds
from reachline.core.window import Figures, Window, max_age, nearest_rank
from reachline.model import CENSORED_US, Clock, Counts, Failure, Kind, Reading

MS = 1_000
FAILURES = st.sampled_from([None, *Failure])
ATTEMPTS = st.lists(
    st.tuples(
        st.floats(0, 20),  # seconds since the attempt before
        FAILURES,
        st.one_of(st.none(), st.integers(1, 9_000_000)),
        st.booleans(),
        st.integers(1, 5),
    ),
    max_size=300,
)


def window(**options: float) -> Window:
    return Window(Columns(), Kind.TCP, **options)  # type: ignore[arg-type]


def filled(*rtts: int | None, kind: Kind = Kind.TCP) -> Window:
    """A round a second from second 0 on; None: never answered."""
    probed = Window(Columns(), kind)
    for second, rtt in enumerate(rtts):
        failure = Failure.TIMEOUT if rtt is None else None
        probed.record(second, failure, rtt, late=rtt is None, sent=1, lost=int(rtt is None), number=second)
    return probed


def read(probed: Window, now: float = 0.0) -> Reading:
    return probed.summary(now)[0]


def figures(probed: Window, now: float = 0.0) -> Figures:
    return probed.summary(now)[1]


@given(attempts=ATTEMPTS, size=st.integers(1, 40), age=st.floats(10, 200))
def test_a_window_is_what_its_newest_and_youngest_attempts_say(attempts: list, size: int, age: float) -> None:
    probed, now, kept = window(size=size, age=age), 0.0, []
    tick = age / 400
    for gap, failure, rtt, late, sent in attempts:
        now += gap
        probed.record(now, failure, rtt, late=late, sent=sent, lost=sent - 1)
        if failure is not Failure.AGENT:
            kept.append((now, failure, rtt, late, sent))
    reading = read(probed, now)

    # A silence of 0.64 ages drops what is before it; ages count to a tick.
    sure = [each for each in kept if each[0] > now - age + 2 * tick][-size:]
    for index in range(len(kept) - 1, 0, -1):
        if kept[index][0] - kept[index - 1][0] > 0.63 * age:
            sure = [each for each in sure if each[0] >= kept[index][0]]
            break
    possible = [each for each in kept if each[0] >= now - age - 2 * tick][-size:]
    assert len(sure) <= reading.counts.attempts <= len(possible)
    held = kept[len(kept) - reading.counts.attempts :]
    assert reading.counts.ok == sum(not late and failure is None for _, failure, _, late, _ in held)
    assert reading.counts.late == sum(late or failure is Failure.TIMEOUT for _, failure, _, late, _ in held)
    assert reading.sent == sum(sent for *_, sent in held)
    assert reading.lost == sum(sent - 1 for *_, sent in held)
    assert reading.answered == sum(rtt is not None for _, _, rtt, _, _ in held)


@given(attempts=ATTEMPTS)
def test_every_attempt_is_in_exactly_one_column_and_an_agents_fault_in_none(attempts: list) -> None:
    probed = window(size=1_000, age=1e6)
    for number, (_, failure, rtt, late, _) in enumerate(attempts):
        probed.record(float(number), failure, rtt, late=late)

    faults = sum(failure is Failure.AGENT for _, failure, *_ in attempts)
    assert read(probed, len(attempts)).counts.attempts == len(attempts) - faults
    assert probed.agent_faults == faults


@pytest.mark.parametrize(
    ("failure", "column"),
    [
        (None, Counts(ok=1)),
        (Failure.TIMEOUT, Counts(late=1)),
        (Failure.REFUSED, Counts(refused=1)),
        (Failure.RESET, Counts(reset=1)),
        (Failure.UNREACHABLE, Counts(unreachable=1)),
        (Failure.RESOLVE, Counts(unresolved=1)),
        (Failure.TLS, Counts(broken=1)),
        (Failure.PROXY, Counts(broken=1)),
        (Failure.PROTOCOL, Counts(broken=1)),
        (Failure.STATUS, Counts(errors=1)),
        (Failure.AGENT, Counts()),
    ],
)
def test_an_attempt_stands_in_the_column_of_its_end(failure: Failure | None, column: Counts) -> None:
    probed = window()

    probed.record(0.0, failure, None)

    assert read(probed).counts == column


def test_late_outranks_every_other_end_and_counts_once() -> None:
    probed = window()

    probed.record(0.0, Failure.STATUS, 1_200 * MS, late=True, status=503)

    assert read(probed).counts == Counts(late=1)


@given(
    values=st.lists(st.integers(1, 9_000_000), min_size=1, max_size=200), share=st.sampled_from([0.5, 0.9, 0.95, 0.99])
)
def test_a_percentile_is_the_nearest_rank_and_none_where_that_is_the_largest(values: list[int], share: float) -> None:
    ordered = sorted(map(float, values))
    rank = -(-round(share * 100) * len(ordered) // 100)

    assert nearest_rank(ordered, share) == (ordered[rank - 1] if rank < len(ordered) else None)


def test_p95_needs_twenty_answers() -> None:
    assert read(filled(*[5 * MS] * 19), 19).p95_us is None
    assert read(filled(*[5 * MS] * 20), 20).p95_us == 5 * MS


def test_unanswered_attempts_count_as_slower_than_anything_in_the_judged_p95_alone() -> None:
    probed = filled(*[20 * MS] * 38, None, None, None)

    reading, shown = probed.summary(41)

    assert reading.p95_us == CENSORED_US
    assert shown.p95_us == 20 * MS
    assert reading.answered == 38
    assert reading.jitter_us == 0


def test_up_to_five_percent_unanswered_the_judged_p95_is_a_measured_one() -> None:
    reading = read(filled(*[20 * MS] * 38, None, None), 40)

    assert reading.p95_us == 20 * MS


def test_jitter_is_p95_minus_p50_of_answered_attempts() -> None:
    reading = read(filled(*(number * MS for number in range(1, 21))), 20)

    assert (reading.p50_us, reading.p95_us, reading.jitter_us) == (10 * MS, 19 * MS, 9 * MS)


def test_a_retransmitted_handshake_counts_lost_packets_and_gives_no_rtt() -> None:
    probed = filled(*[10 * MS] * 20)

    probed.record(20.0, None, None, sent=2, lost=1, number=20)

    reading, shown = probed.summary(20)
    assert (reading.sent, reading.lost, reading.answered, reading.counts.ok) == (22, 1, 20, 21)
    assert reading.p95_us == 10 * MS
    assert shown.handshake_lost == 1


def test_a_refused_connection_has_an_rtt_and_is_neither_loss_nor_ok() -> None:
    probed = window()

    probed.record(0.0, Failure.REFUSED, 3 * MS, sent=1)

    reading = read(probed)
    assert (reading.counts, reading.answered, reading.lost, reading.rounds_ok) == (Counts(refused=1), 1, 0, 0)
    assert reading.ewma_us is None


@given(rtts=st.lists(st.one_of(st.none(), st.integers(1, 1_000_000)), max_size=60), alpha=st.floats(0.05, 1))
def test_the_ewma_begins_with_the_first_ok_sample_and_knows_no_failed_one(rtts: list[int | None], alpha: float) -> None:
    probed = window(alpha=alpha)
    expected: float | None = None
    for number, rtt in enumerate(rtts):
        probed.record(number, Failure.TIMEOUT if rtt is None else None, rtt, late=rtt is None)
        probed.record(number, Failure.REFUSED, 7_000_000)
        probed.record(number, None, 8_000_000, late=True)
        if rtt is not None:
            expected = rtt if expected is None else expected * (1 - alpha) + rtt * alpha

    assert read(probed, 60).ewma_us == (None if expected is None else pytest.approx(expected, abs=1))


def test_recent_looks_at_the_newest_five_for_server_errors_and_resets() -> None:
    probed = window()
    for failure in (Failure.RESET, None, Failure.STATUS, Failure.REFUSED, Failure.RESET, None):
        probed.record(0.0, failure, 5 * MS)

    assert (read(probed).recent, read(probed).recent_bad) == (5, 2)


@pytest.mark.parametrize(("every", "age"), [(5.0, 120.0), (20.0, 120.0), (30.0, 180.0), (60.0, 360.0)])
def test_a_slow_probe_gets_a_window_long_enough_for_its_minimum(every: float, age: float) -> None:
    assert max_age(every) == age


def test_a_half_minute_probe_reaches_five_attempts() -> None:
    probed = window(age=max_age(30.0))
    for number in range(20):
        probed.record(30.0 * number * 1.04, None, 5 * MS)

    assert read(probed, 30.0 * 19 * 1.04 + 29).counts.attempts >= 5


def test_fresh_counts_are_those_since_the_last_settling() -> None:
    probed = filled(5 * MS, None)
    probed.settle()
    probed.record(2.0, None, 6 * MS)

    reading, shown = probed.summary(2)

    assert (reading.fresh_ok, reading.fresh_failed) == (1, 0)
    assert histogram.decode(shown.histogram) == histogram.of([6 * MS])
    assert reading.counts == Counts(ok=2, late=1)


def limited(slow_us: int = 200 * MS, crawl_us: int = 500 * MS) -> Window:
    probed = window()
    probed.slow_us, probed.crawl_us = slow_us, crawl_us
    return probed


def fresh(probed: Window) -> tuple[int, int, int, int, int]:
    found = read(probed)
    return found.fresh_ok, found.fresh_failed, found.fresh_marred, found.fresh_slow, found.fresh_crawl


@pytest.mark.parametrize(
    ("rtt", "slow", "crawl"), [(200 * MS, 0, 0), (200 * MS + 1, 1, 0), (500 * MS, 1, 0), (500 * MS + 1, 1, 1)]
)
def test_an_answer_above_a_limit_counts_as_slow_and_above_the_failed_one_as_crawling(
    rtt: int, slow: int, crawl: int
) -> None:
    probed = limited()
    probed.record(0.0, None, rtt)

    assert fresh(probed) == (1, 0, 0, slow, crawl)


def test_an_answer_that_lost_a_packet_is_marred_and_a_failed_attempt_is_not_also_slow() -> None:
    probed = limited()
    probed.record(0.0, None, None, sent=2, lost=1)
    probed.record(0.0, None, 900 * MS, late=True, sent=2, lost=1)
    probed.record(0.0, Failure.REFUSED, 900 * MS)

    assert fresh(probed) == (1, 2, 1, 0, 0)


def test_without_limits_nothing_is_slow() -> None:
    probed = limited(0, 0)
    probed.record(0.0, None, 9_000 * MS)

    assert fresh(probed) == (1, 0, 0, 0, 0)


@pytest.mark.parametrize("end", [Window.settle, lambda probed: probed.revoke(0.0)])
def test_what_was_reported_or_taken_back_is_not_counted_again(end: Callable[[Window], None]) -> None:
    probed = limited()
    probed.record(1.0, None, 600 * MS, sent=2, lost=1)
    probed.record(1.0, Failure.RESET, None)

    end(probed)

    assert fresh(probed) == (0, 0, 0, 0, 0)


def test_histograms_of_successive_reports_add_up_to_all_answered_attempts() -> None:
    probed, parts = window(), []
    for number in range(60):
        failed = number % 7 == 0
        probed.record(
            number / 10, Failure.TIMEOUT if failed else None, None if failed else (number + 1) * MS, late=failed
        )
        if number % 9 == 8:
            parts.append(histogram.decode(figures(probed, number / 10).histogram))
            probed.settle()

    answered = [(number + 1) * MS for number in range(54) if number % 7]
    assert histogram.merged(*parts) == histogram.of(answered)


def test_classes_of_status_codes_are_counted() -> None:
    probed = window()
    for status in (200, 204, 301, 404, 503, 500, 0):
        probed.record(0.0, Failure.STATUS if status >= 400 else None, 5 * MS, status=status)

    assert figures(probed).codes == (0, 2, 1, 1, 2)


def test_a_reading_made_while_the_agent_distrusts_itself_says_so() -> None:
    assert filled(5 * MS).summary(1, void=True)[0].void


def test_revoked_attempts_are_gone_and_the_rounds_have_no_opinion() -> None:
    probed = filled(*[5 * MS] * 10, None, None, None)

    probed.revoke(9.5)

    reading = read(probed, 13)
    assert reading.counts == Counts(ok=10)
    assert (reading.rounds, reading.fresh_ok, reading.fresh_failed) == (0, 0, 0)
    assert reading.ewma_us == 5 * MS


def test_a_closed_windows_room_is_used_again() -> None:
    columns = Columns()
    first = Window(columns, Kind.TCP, size=10)
    for number in range(25):
        first.record(number, None, 5 * MS)
    first.close()

    second = Window(columns, Kind.TCP, size=10)

    assert read(second, 30).counts.attempts == 0
    second.record(30.0, None, 7 * MS)
    assert read(second, 30).answered == 1


def test_the_last_rtt_and_its_clock_are_the_newest_measured_ones() -> None:
    probed = window()
    probed.record(0.0, None, 5 * MS, clock=Clock.TCP_INFO)
    probed.record(1.0, Failure.TIMEOUT, None, late=True)

    assert figures(probed, 1)[1:3] == (5 * MS, Clock.TCP_INFO)


def test_a_line_costs_at_most_two_kilobytes() -> None:
    columns, lines = Columns(), 256
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    windows = [Window(columns, Kind.TCP) for _ in range(lines)]
    for number in range(1_000, 1_210):
        for probed in windows:
            probed.record(number / 2, None, number * 977, sent=1, number=number)
    spent = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()

    assert spent / lines <= 2_048


# -- rounds --------------------------------------------------------------------------------------------------------------------


def test_a_round_is_ok_with_its_first_ok_attempt_and_failed_with_its_last() -> None:
    rounds = Rounds()

    for _ in range(4):
        rounds.ended(1, 5, False)
    assert rounds.known == 0
    rounds.ended(1, 5, False)
    rounds.ended(2, 5, False)
    rounds.ended(2, 5, True)

    assert (rounds.known, rounds.ok, rounds.last_ok) == (2, 1, True)


def test_a_round_that_our_own_fault_kept_from_being_is_unknown() -> None:
    rounds = Rounds()

    rounds.ended(1, 2, None)
    rounds.ended(1, 2, None)
    rounds.ended(2, 2, None)
    rounds.ended(2, 2, False)

    assert (rounds.known, rounds.ok) == (1, 0)


def test_rounds_in_flight_do_not_hide_the_known_ones() -> None:
    rounds = Rounds()
    for number in (1, 2, 3):
        rounds.ended(number, 1, False)

    rounds.ended(4, 5, False)
    rounds.ended(5, 5, False)

    assert (rounds.known, rounds.ok) == (3, 0)


@given(
    order=st.permutations([(number, attempt) for number in range(1, 6) for attempt in range(3)]),
    good=st.sets(st.integers(1, 5)),
)
def test_the_newest_three_rounds_count_in_whatever_order_their_attempts_end(order: list, good: set[int]) -> None:
    rounds = Rounds()

    for number, attempt in order:
        rounds.ended(number, 3, number in good and attempt == 1)

    assert rounds.known == 3
    assert rounds.ok == len(good & {3, 4, 5})
    assert rounds.last_ok == (5 in good)


@given(ends=st.lists(st.tuples(st.integers(0, 400), st.sampled_from([True, False, None])), max_size=200))
def test_any_order_of_ends_keeps_at_most_three_known_and_little_in_flight(ends: list) -> None:
    rounds = Rounds()

    for number, ok in ends:
        rounds.ended(number, 2, ok)

        assert 0 <= rounds.ok <= rounds.known <= 3
        assert (rounds.last_ok is None) == (rounds.known == 0)


def test_nothing_is_known_after_forgetting() -> None:
    rounds = Rounds()
    rounds.ended(1, 1, True)

    rounds.forget()

    assert (rounds.known, rounds.last_ok) == (0, None)
    rounds.ended(2, 1, False)
    assert (rounds.known, rounds.ok) == (1, 0)


def test_an_infinite_rtt_is_never_shown() -> None:
    shown = figures(filled(*[None] * 30), 30)

    assert (shown.p95_us, shown.histogram) == (None, b"")
    assert not any(isinstance(value, float) and math.isinf(value) for value in shown)


def test_a_dead_line_that_is_out_begins_a_new_window_once_three_rounds_got_through() -> None:
    window = Window(Columns(), Kind.TCP)
    window.is_out = True
    for number in range(10):
        window.record(number, Failure.REFUSED, 100, number=number)
    for number in range(10, 12):
        window.record(number, None, 100, number=number, sent=1)
    still = window.summary(11.0)[0]

    window.record(12.0, None, 100, number=12, sent=1)
    anew = window.summary(12.0)[0]

    assert (still.counts.refused, still.counts.ok) == (10, 2)
    assert (anew.counts.refused, anew.counts.ok, anew.sent) == (0, 3, 3)


def test_a_flapping_line_in_traffic_keeps_its_failures() -> None:
    window = Window(Columns(), Kind.TCP)
    for number in range(12):
        window.record(number, Failure.REFUSED if number // 3 % 2 == 0 else None, 100, number=number)

    assert window.summary(11.0)[0].counts.refused == 6


def test_a_line_that_only_stumbled_keeps_its_window() -> None:
    window = Window(Columns(), Kind.TCP)
    for number in range(10):
        window.record(number, Failure.REFUSED if number % 3 == 0 else None, 100, number=number)

    assert window.summary(9.0)[0].counts.refused == 4


@pytest.mark.parametrize(
    ("slow_us", "out", "rtts", "telling"),
    [
        (200 * MS, False, (None, 50 * MS), True),
        (200 * MS, False, (300 * MS, 300 * MS), True),
        (200 * MS, False, (300 * MS, 50 * MS), False),
        (200 * MS, True, (None, None), False),
        (0, False, (None, None), False),
    ],
)
def test_a_center_that_adds_up_is_told_at_once_of_a_failure_or_two_slow_answers(
    slow_us: int, out: bool, rtts: tuple[int | None, ...], telling: bool
) -> None:
    probed = limited(slow_us)
    probed.is_out = out
    for rtt in rtts:
        probed.record(0.0, None if rtt else Failure.TIMEOUT, rtt)

    assert probed.is_telling is telling


@given(attempts=ATTEMPTS, waits=st.lists(st.floats(0, 90), min_size=1, max_size=5), size=st.integers(1, 40))
def test_a_reading_that_goes_on_from_the_last_one_is_the_one_made_anew(
    attempts: list, waits: list[float], size: int
) -> None:
    probed, now, last = window(size=size, age=60.0), 0.0, None
    for number, (gap, failure, rtt, late, sent) in enumerate(attempts[:30]):
        now += gap
        probed.record(now, failure, rtt, late=late, sent=sent, lost=sent - 1, number=number)
        for wait in waits if number % 3 == 0 else ():
            now += wait
            assert probed.reading(now, last) == read(probed, now)
            last = probed.reading(now, last)
            probed.settle()
