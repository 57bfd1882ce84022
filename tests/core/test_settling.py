"""Calm figures are held still, nothing that decides is touched."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.core.settling import Settling, held
from reachline.core.zone import Calm, calm_of, is_calm, verdict
from reachline.doors import reach
from reachline.model import CENSORED_US, Counts, Kind, LineId, Reading, VantageId, Zone
from reachline.testing.builders import reading

RULES = reach.rules(reach.read("clusters: {payments: {lines: ['tcp://a.test:443']}}", name="test"), "payments")
CALM = calm_of(RULES.limits)
LINE, VANTAGE = LineId("payments/a"), VantageId("v1")


def test_a_figure_near_the_last_one_is_taken_to_be_it_and_another_is_exact() -> None:
    last = reading(p50_us=60_000, p95_us=100_000, ewma_us=60_000)

    near = held(reading(p50_us=75_000, p95_us=125_000, ewma_us=90_000), last, CALM)
    far = held(reading(p50_us=75_001, p95_us=125_001, ewma_us=90_001), last, CALM)

    assert near is last
    assert (far.p50_us, far.p95_us, far.ewma_us) == (75_001, 125_001, 90_001)


def test_a_figure_at_a_limit_is_exact_and_so_is_what_comes_after_it() -> None:
    limit = CALM.p95_us
    below, at = reading(p50_us=60_000, p95_us=limit - 1), reading(p50_us=60_000, p95_us=limit)

    assert held(at, below, CALM) == at
    assert held(below, at, CALM) == below


def test_a_window_is_never_said_to_be_larger_than_it_is() -> None:
    larger, smaller = reading(ok=100), reading(ok=90)

    assert held(larger, smaller, CALM).counts == smaller.counts
    assert held(smaller, larger, CALM).counts == smaller.counts


@pytest.mark.parametrize("sizes", [{"counts": Counts(ok=90)}, {"sent": 90}, {"answered": 90}])
def test_a_window_that_shrank_in_any_respect_is_taken_as_it_is(sizes: dict[str, object]) -> None:
    now = reading(ok=100)._replace(**sizes)  # type: ignore[arg-type]

    assert held(now, reading(ok=100), CALM)[1:3] == now[1:3]


def test_a_jitter_below_its_limit_is_not_held_at_one_above() -> None:
    """P95 - P50 of what is held may be more than the jitter of what was answered."""
    last = reading(p50_us=20_000, p95_us=150_000, ewma_us=20_000)._replace(jitter_us=100_000)
    now = last._replace(ewma_us=21_000)

    assert CALM.jitter_us <= 130_000
    assert held(now, last, CALM).jitter_us == 100_000


def test_where_something_failed_or_was_lost_sizes_are_exact() -> None:
    clean = reading(ok=100)
    for one in (reading(ok=101, late=1), reading(ok=101, lost=1), reading(ok=101, refused=1)):
        found = held(one, clean, CALM)
        assert (found.counts, found.sent, found.lost) == (one.counts, one.sent, one.lost)


def test_void_readings_are_left_alone() -> None:
    void = reading(p50_us=61_000, void=True)

    assert held(void, reading(), CALM) is void
    assert held(reading(p50_us=61_000), void, CALM).p50_us == 61_000


@pytest.mark.parametrize(("lines", "vantages"), [((), (VANTAGE,)), ((LINE,), ())])
def test_each_vantage_line_and_kind_is_held_by_itself_and_forgotten_with_its_line_or_vantage(
    lines: Sequence[LineId], vantages: Sequence[VantageId]
) -> None:
    settling = Settling()
    slower = reading(p50_us=61_000)
    settling.settled(VANTAGE, [(LINE, reading())], CALM)

    same = settling.settled(VANTAGE, [(LINE, slower)], CALM)
    others = [
        settling.settled(VantageId("v2"), [(LINE, slower)], CALM),
        settling.settled(VANTAGE, [(LineId("payments/b"), slower)], CALM),
        settling.settled(VANTAGE, [(LINE, slower._replace(kind=Kind.HTTP))], CALM),
    ]
    settling.keep(lines, vantages)
    anew = settling.settled(VANTAGE, [(LINE, slower)], CALM)

    assert same[0][1].p50_us == reading().p50_us
    assert [found[0][1].p50_us for found in (*others, anew)] == [61_000] * 4


RTT = st.one_of(st.none(), st.integers(1, 600_000), st.just(CENSORED_US))
FEW = st.one_of(st.just(0), st.integers(0, 12))


@st.composite
def readings(draw: st.DrawFn) -> Reading:
    ok, late, refused = draw(st.integers(0, 200)), draw(FEW), draw(FEW)
    sent = ok + late + refused
    return Reading(
        kind=Kind.TCP,
        counts=Counts(ok=ok, late=late, refused=refused),
        sent=sent,
        lost=min(sent, draw(FEW)),
        rounds=3,
        rounds_ok=draw(st.integers(0, 3)),
        recent=5,
        recent_bad=draw(st.integers(0, 5)),
        answered=ok + refused,
        ewma_us=draw(RTT),
        p50_us=draw(RTT),
        p95_us=draw(RTT),
        jitter_us=draw(RTT),
        fresh_ok=draw(st.integers(0, 20)),
        fresh_failed=draw(FEW),
        covered_ms=draw(st.integers(0, 180_000)),
        void=draw(st.sampled_from([False, False, False, True])),
        fresh_marred=draw(FEW),
        fresh_slow=draw(FEW),
        fresh_crawl=draw(FEW),
    )


@given(st.lists(readings(), min_size=2, max_size=8))
def test_every_verdict_is_that_of_the_exact_readings(said: list[Reading]) -> None:
    settling = Settling()
    exactly: dict[str, int] = {}
    stilly: dict[str, int] = {}

    for one in said:
        (_, now), *_ = settling.settled(VANTAGE, [(LINE, one)], CALM)
        exact, still = verdict(VANTAGE, [one], exactly, RULES), verdict(VANTAGE, [now], stilly, RULES)
        exactly, stilly = dict(exact.held), dict(still.held)

        assert (still.zone is Zone.N) <= (exact.zone in (Zone.N, Zone.H))
        assert exact.zone is still.zone or still.zone is Zone.N
        assert exactly == stilly
        assert is_calm(one, CALM) is is_calm(now, CALM)


@given(readings(), readings())
def test_what_is_fresh_failed_or_lost_is_exact_and_figures_are_near(now: Reading, last: Reading) -> None:
    found = held(now, last, CALM)

    loose = {"counts", "sent", "answered", "ewma_us", "p50_us", "p95_us", "jitter_us", "covered_ms"}
    for name in set(Reading._fields) - loose:
        assert getattr(found, name) == getattr(now, name)
    assert found.counts[1:] == now.counts[1:]
    for name in ("p50_us", "p95_us", "covered_ms", "sent", "answered"):
        was, said = getattr(now, name), getattr(found, name)
        assert was == said or 4 * abs(was - said) <= said
    assert found.sent <= now.sent


def test_limits_that_a_class_leaves_out_hold_everything_still() -> None:
    """`bulk` has no round-trip limits: its figures are for people only."""
    none = Calm(2**31, 2**31, 2**31)

    assert held(reading(p95_us=2_100_000), reading(p95_us=2_000_000), none).p95_us == 2_000_000
