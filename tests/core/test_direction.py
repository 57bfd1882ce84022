"""Direction without synchronised clocks: by simulation through the real protocol, by properties, and at the limits."""

from __future__ import annotations

import random
from collections import deque
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.core.direction import INTERVALS, LIMIT_US, Finding, Interval, Way, find
from reachline.wire.mesh import Reply, identity
from reachline.wire.mesh_sides import Answering, Asking

SECOND = 1_000_000
EVERY = 200_000
OFFSET = 120 * SECOND
"""The other agent's clock is two minutes ahead."""


class Fault(NamedTuple):
    """What happens to a path, from `QUIET` on."""

    forward_loss: float = 0.0
    reverse_loss: float = 0.0
    forward_rise: int = 0
    reverse_rise: int = 0
    drift_ppb: int = 0
    """All the time."""
    step: int = 0
    """Of the other clock, 12 s after the fault began: in the middle of an interval."""
    jitter: int = 2_000


QUIET = 80 * SECOND
"""Time for a baseline of 12 intervals of 5 s."""


def told(fault: Fault, seed: int, *, seconds: int) -> list[tuple[int, Finding]]:
    """What is found every 5 s, by seconds since the fault began."""
    rng, asking, answering = random.Random(seed), Asking(identity("a"), 1), Answering()
    intervals: deque[Interval] = deque(maxlen=INTERVALS)
    found: list[tuple[int, Finding]] = []
    for now in range(0, QUIET + seconds * SECOND, EVERY):
        is_on = now >= QUIET
        step = fault.step if now >= QUIET + 12 * SECOND else 0
        probe = asking.probe(now)
        if not (is_on and rng.random() < fault.forward_loss):
            there = now + 20_000 + rng.randrange(fault.jitter) + fault.forward_rise * is_on
            other = there + OFFSET + step + fault.drift_ppb * there // 10**9
            reply = answering.answer(probe, other, other)
            assert isinstance(reply, Reply)
            if not (is_on and rng.random() < fault.reverse_loss):
                back = there + 30_000 + rng.randrange(fault.jitter) + fault.reverse_rise * is_on
                asking.heard(reply._replace(replied_us=other + 50), back)
        if now % (5 * SECOND) == 0 and now:
            intervals.append(asking.close(now // 1_000))
            held = found[-1][1].loss if found else Way.NEITHER
            found.append(((now - QUIET) // SECOND, find(intervals, now // 1_000, held=held)))
    return found


FAULTS = {
    "2 % forward": (Fault(forward_loss=0.02), (Way.FORWARD, Way.NEITHER), 240),
    "2 % reverse": (Fault(reverse_loss=0.02), (Way.REVERSE, Way.NEITHER), 240),
    "90 ms forward": (Fault(forward_rise=90_000), (Way.NEITHER, Way.FORWARD), 40),
    "90 ms reverse": (Fault(reverse_rise=90_000), (Way.NEITHER, Way.REVERSE), 40),
    "90 ms both ways": (Fault(forward_rise=90_000, reverse_rise=90_000), (Way.NEITHER, Way.BOTH), 40),
    "90 ms forward, clock drifting": (Fault(forward_rise=90_000, drift_ppb=-200_000), (Way.NEITHER, Way.FORWARD), 40),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_way_is_named_right_in_20_of_20_runs_with_clocks_two_minutes_apart(name: str) -> None:
    fault, wanted, seconds = FAULTS[name]

    runs = [told(fault, seed, seconds=seconds) for seed in range(20)]

    said = [[(found.loss, found.delay) for _, found in run] for run in runs]
    assert [run[-1] for run in said] == [wanted] * 20
    assert {each for run in said for each in run} == {wanted, (Way.NEITHER, Way.NEITHER)}


def test_loss_both_ways_is_never_called_loss_of_one() -> None:
    runs = [told(Fault(forward_loss=0.03, reverse_loss=0.03), seed, seconds=240) for seed in range(5)]

    assert [run[-1][1].loss for run in runs] == [Way.BOTH] * 5
    assert {found.loss for run in runs for _, found in run} == {Way.NEITHER, Way.BOTH}


@pytest.mark.parametrize(
    "fault",
    [
        Fault(),
        Fault(drift_ppb=300_000),
        Fault(step=3_600 * SECOND),
        Fault(step=-95_000),
        Fault(step=40_000, drift_ppb=50_000),
        Fault(forward_loss=0.001, reverse_loss=0.001),
        Fault(jitter=30_000),
    ],
    ids=["calm", "drift", "an-hour-ahead", "a-step-back", "step-and-drift", "strays", "jitter"],
)
def test_clocks_and_strays_are_no_fault_of_a_way(fault: Fault) -> None:
    found = told(fault, 3, seconds=200)

    assert {(each.loss, each.delay) for _, each in found} == {(Way.NEITHER, Way.NEITHER)}
    assert found[-1][1].stepped == bool(fault.step)


def test_a_rise_is_named_within_15_seconds_and_is_the_normal_after_a_quarter_of_an_hour() -> None:
    found = dict(told(Fault(forward_rise=90_000), 1, seconds=1_000))

    assert found[10].delay is Way.NEITHER
    assert found[15].delay is Way.FORWARD
    assert 88_000 < (found[15].forward_rise_us or 0) < 92_000
    assert found[700].delay is Way.FORWARD
    assert found[995].delay is Way.NEITHER


def at(number: int, *, forward: int = 20_000, reverse: int = 20_000, **more) -> Interval:
    return Interval(5_000 * number, 25, 0, 25, 0, forward, reverse, 40_000)._replace(**more)


def after(*newest: dict[str, int], base: int = 20) -> Finding:
    """What is found after a calm baseline and these newest intervals."""
    intervals = [at(number) for number in range(base)] + [at(base + place, **each) for place, each in enumerate(newest)]
    return find(intervals, intervals[-1].at_ms)


LIMIT = max(LIMIT_US, 40_000 // 10)


@pytest.mark.parametrize(
    ("forward", "reverse", "way"),
    [
        (LIMIT - 1, 0, Way.NEITHER),
        (LIMIT, 0, Way.FORWARD),
        (0, LIMIT, Way.REVERSE),
        (LIMIT, LIMIT // 2, Way.FORWARD),
        (LIMIT, LIMIT // 2 + 1, Way.NEITHER),
        (LIMIT, LIMIT, Way.BOTH),
        (90_000, -(LIMIT // 2), Way.FORWARD),
        (90_000, -(LIMIT // 2) - 1, Way.NEITHER),
    ],
)
def test_a_rise_counts_from_the_limit_on_and_a_gap_keeps_the_ways_apart(forward: int, reverse: int, way: Way) -> None:
    risen = {"forward": 20_000 + forward, "reverse": 20_000 + reverse}

    assert after(risen, risen, risen).delay is way


@pytest.mark.parametrize("seed", range(5))
def test_a_path_that_is_always_restless_is_no_fault_and_a_rise_beyond_that_is_one(seed: int) -> None:
    rng = random.Random(seed)

    def restless(number: int, more: int = 0) -> Interval:
        return at(
            number, forward=20_000 + int(rng.expovariate(1e-4)) + more, reverse=20_000 + int(rng.expovariate(1e-3))
        )

    intervals = [restless(number) for number in range(160)]
    risen = [restless(160 + number, 150_000) for number in range(3)]

    assert {find(intervals[: number + 1], 5_000 * number).delay for number in range(160)} == {Way.NEITHER}
    assert find([*intervals, *risen], risen[-1].at_ms).delay is Way.FORWARD


def test_one_calm_interval_among_the_newest_three_is_enough_to_say_nothing() -> None:
    risen = {"forward": 110_000}

    assert after(risen, {}, risen).delay is Way.NEITHER


def test_a_short_baseline_says_nothing() -> None:
    risen = {"forward": 110_000}

    assert after(risen, risen, risen, base=11).forward_rise_us is None
    assert after(risen, risen, risen, base=12).delay is Way.FORWARD


@pytest.mark.parametrize("every", [1, 10, 60])
def test_a_slow_pace_takes_longer_and_finds_the_same(every: int) -> None:
    length = 25_000 * every
    calm = [at(number)._replace(at_ms=length * number) for number in range(40)]
    risen = [at(40 + number, forward=110_000, forward_lost=1, at_ms=length * (40 + number)) for number in range(15)]

    found = find([*calm, *risen], risen[-1].at_ms, length_ms=length)

    assert (found.sent, found.forward_lost, found.loss, found.delay) == (1_000, 15, Way.FORWARD, Way.FORWARD)


def test_void_intervals_are_no_evidence() -> None:
    risen = {"forward": 110_000, "forward_lost": 20, "void": True}

    found = after(risen, risen, risen)

    assert (found.delay, found.loss, found.forward_lost) == (Way.NEITHER, Way.NEITHER, 0)


def test_what_was_heard_long_ago_says_nothing_of_now() -> None:
    risen = [at(20 + number, forward=110_000) for number in range(3)]
    intervals = [at(number) for number in range(20)] + risen

    assert find(intervals, risen[-1].at_ms + 19_000).delay is Way.FORWARD
    assert find(intervals, risen[-1].at_ms + 21_000).delay is Way.NEITHER


@pytest.mark.parametrize(
    ("lost", "of", "held", "way"),
    [
        (8, 200, Way.NEITHER, Way.NEITHER),  # eight to none may still be a path that loses both ways
        (9, 200, Way.NEITHER, Way.FORWARD),
        (9, 99, Way.NEITHER, Way.NEITHER),  # too few probes
        (9, 901, Way.NEITHER, Way.NEITHER),  # below 1 %
        (9, 901, Way.FORWARD, Way.FORWARD),
        (5, 1_000, Way.FORWARD, Way.FORWARD),
        (4, 1_000, Way.FORWARD, Way.NEITHER),  # below 0.5 %
    ],
)
def test_loss_is_named_by_the_judges_limits_and_held_to_its_exit(lost: int, of: int, held: Way, way: Way) -> None:
    interval = Interval(5_000, of, lost, of - lost, 0)

    assert find([interval], 5_000, held=held).loss is way


micros = st.integers(-(2**53), 2**53)


@given(
    st.lists(
        st.tuples(st.integers(0, 200), st.integers(-3, 200), st.integers(0, 200), st.integers(-3, 200),
                  st.none() | micros, st.none() | micros, st.booleans()),
        max_size=25,
    ),
    st.sampled_from(Way),
)  # fmt: skip
def test_whatever_a_peer_makes_us_see_is_a_finding_with_true_counts(rows, held: Way) -> None:
    intervals = [Interval(5_000 * place, *row[:6])._replace(void=row[6]) for place, row in enumerate(rows)]

    found = find(intervals, 5_000 * len(rows), held=held)

    assert 0 <= found.forward_lost <= found.sent
    assert 0 <= found.reverse_lost <= found.replied


@given(st.integers(-(2**50), 2**50), st.integers(-300_000, 300_000), st.integers(0, 200_000), st.integers(0, 200_000))
def test_no_offset_and_no_drift_changes_what_is_found(offset: int, drift: int, forward: int, reverse: int) -> None:
    def intervals(offset: int, drift: int) -> list[Interval]:
        rows = []
        for number in range(40):
            moved, risen = offset + drift * number // 200, number >= 35
            rows.append(at(number, forward=20_000 + forward * risen + moved, reverse=20_000 + reverse * risen - moved))
        return rows

    plain, moved = (find(rows, rows[-1].at_ms) for rows in (intervals(0, 0), intervals(offset, drift)))

    assert abs((plain.forward_rise_us or 0) - (moved.forward_rise_us or 0)) <= 100
    assert (
        plain.delay is moved.delay
        or min(abs(rise - edge) for rise in (forward, reverse) for edge in (LIMIT, LIMIT // 2)) <= 100
    )
