"""What the world draws has the statistics that the scenario says."""

from __future__ import annotations

import math
from random import Random

import pytest
from tests.simulate.short import hard_down, scenario

from reachline.model import Failure, Kind
from reachline.simulate.chance import binomial, poisson
from reachline.simulate.paths import EXCHANGES, State, Way, attempt, odds, overs, tail
from reachline.simulate.timeline import BUSINESS, ICMP, PROBE, Timeline

HEALTHY = State(60.0, 110.0)
RTO = (1_000, 3_000, 7_000)
MANY = 20_000


def ranked(values: list[float], share: float) -> float:
    return sorted(values)[math.ceil(share * len(values)) - 1]


def test_round_trips_go_through_median_and_p95() -> None:
    rng, way = Random(1), Way(HEALTHY)
    drawn = [way.round_trip_ms(rng) for _ in range(MANY)]

    assert ranked(drawn, 0.5) == pytest.approx(60, rel=0.02)
    assert ranked(drawn, 0.95) == pytest.approx(110, rel=0.02)
    assert tail(HEALTHY, 110) == pytest.approx(0.05)


def test_a_p99_bends_the_tail_and_a_maximum_cuts_it() -> None:
    rng, bent = Random(1), State(160.0, 440.0, p99=2_000.0)
    drawn = [Way(bent).round_trip_ms(rng) for _ in range(MANY)]

    assert ranked(drawn, 0.99) == pytest.approx(2_000, rel=0.1)
    assert tail(bent, 2_000) == pytest.approx(0.01, rel=0.01)
    assert max(Way(State(160.0, 440.0, most=800.0)).round_trip_ms(rng) for _ in range(MANY)) == 800


def test_a_lost_syn_costs_its_retransmission_and_is_counted() -> None:
    rng, lossy = Random(1), State(60.0, 110.0, loss_there=0.1)
    drawn = [attempt(Way(lossy), Kind.TCP, rng, give_up_ms=4_000, rto_ms=RTO) for _ in range(MANY)]

    assert sum(each.lost > 0 for each in drawn) / MANY == pytest.approx(0.1, rel=0.1)
    assert all((each.rtt_us or 0) > 1_000_000 and each.kernel_us is None for each in drawn if each.lost == 1)
    assert all(each.failure is Failure.TIMEOUT for each in drawn if each.lost > 2)


def test_calls_end_as_single_draws_would() -> None:
    state = State(200.0, 600.0, loss_there=0.15, timeout=0.03, connect_fail=0.02, errors=0.1, reset=0.01)
    rng = Random(1)

    found = odds(state, 1_000)

    assert sum(found[:5]) == pytest.approx(1.0)
    late = 0
    for _ in range(MANY):
        took = Way(state).round_trip_ms(rng)
        for _exchange in range(EXCHANGES):
            wait = 200.0
            while rng.random() < state.loss:
                took, wait = took + wait, 2 * wait
        late += took > 1_000 or rng.random() < state.timeout
    assert found.late / (1 - 0.02) / (1 - 0.01) == pytest.approx(late / MANY, rel=0.1)
    assert overs(state, 1_000, (200_000, 500_000))[0] == pytest.approx(0.7, abs=0.1)


@pytest.mark.parametrize("mean", [0.3, 7.0, 300.0])
def test_counts_have_their_mean_and_spread(mean: float) -> None:
    rng = Random(1)
    drawn = [poisson(rng, mean) for _ in range(MANY)]
    average = sum(drawn) / MANY

    assert average == pytest.approx(mean, rel=0.03)
    assert sum((each - average) ** 2 for each in drawn) / MANY == pytest.approx(mean, rel=0.05)


@pytest.mark.parametrize(("trials", "share"), [(15, 0.05), (15, 0.97), (2_000, 0.3)])
def test_parts_of_a_count_have_their_mean_and_spread(trials: int, share: float) -> None:
    rng = Random(1)
    drawn = [binomial(rng, trials, share) for _ in range(MANY)]
    average = sum(drawn) / MANY

    assert average == pytest.approx(trials * share, rel=0.02)
    assert sum((each - average) ** 2 for each in drawn) / MANY == pytest.approx(trials * share * (1 - share), rel=0.05)


def test_a_phase_touches_what_it_names_while_it_holds() -> None:
    timeline = Timeline(
        scenario(
            phases=[
                {"from": 10, "to": 20, "line": "L1", "applies_to": "business", "set": {"http_5xx": 0.3}},
                {"from": 10, "to": 20, "line": "L2", "dir": "rev", "set": {"loss": 0.2, "rtt_add": 90}},
                {"from": 20, "to": 40, "line": "L3", "ramp": "linear", "set": {"rtt_p95": 310}},
                {"from": 10, "to": 50, "line": "L2", "every_s": 10, "for_s": 2, "set": {"connect_fail": 1.0}},
                {"from": 10, "to": 20, "line": "L3", "applies_to": "icmp", "set": {"loss": 1.0}},
            ]
        )
    )

    assert timeline.state("L1", BUSINESS, 15_000).errors == 0.3
    assert timeline.state("L1", PROBE, 15_000).errors == 0.001
    assert timeline.state("L1", BUSINESS, 20_000).errors == 0.001
    reverse = timeline.state("L2", PROBE, 15_000)
    assert (reverse.loss_back, reverse.add, reverse.connect_fail) == (0.2, 90.0, 0.0)
    assert reverse.loss_there < 0.01
    assert timeline.state("L3", PROBE, 30_000).p95 == pytest.approx(210)
    assert timeline.state("L3", ICMP, 15_000).loss == pytest.approx(1.0)
    assert [timeline.state("L2", PROBE, at).connect_fail for at in (31_000, 33_000)] == [1.0, 0.0]


def test_the_loss_of_a_round_trip_is_what_the_file_says() -> None:
    timeline = Timeline(scenario(phases=[{"from": 10, "to": 20, "line": "L1", "set": {"loss": 0.032}}]))

    assert timeline.state("L1", PROBE, 15_000).loss == pytest.approx(0.032)
    assert timeline.state("L1", PROBE, 5_000).loss == pytest.approx(0.004)


@pytest.mark.parametrize("at_ms", [30_000, 50_000])
def test_in_the_moment_of_a_change_no_decision_is_false(at_ms: int) -> None:
    timeline = Timeline(hard_down())

    assert not timeline.is_truth("L1", at_ms, "healthy")
    assert not timeline.is_truth("L1", at_ms, "down")


@pytest.mark.parametrize(
    ("at_ms", "said"), [(29_999, "healthy"), (30_001, "down"), (49_999, "down"), (50_001, "healthy")]
)
def test_at_any_other_time_the_truth_is_one(at_ms: int, said: str) -> None:
    assert Timeline(hard_down()).is_truth("L1", at_ms, said)
