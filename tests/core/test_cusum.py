from __future__ import annotations

from collections.abc import Mapping
from random import Random
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.core.cusum import (
    NOTHING,
    QUESTIONS,
    Asked,
    Evidence,
    Said,
    asked,
    grown,
    suspicion,
    zone_of,
)
from reachline.model import Zone

CLEAN = Evidence(attempts=10)
BROKEN = Evidence(attempts=10, failed=10)
FIVE = ("v1", "v2", "v3", "v4", "v5")


def everyone(said: Evidence) -> dict[str, Evidence]:
    return dict.fromkeys(FIVE, said)


class Line:
    """One line's sums and how much each vantage complained."""

    def __init__(self) -> None:
        self.state = Asked()
        self.suspicions = dict.fromkeys(FIVE, 0)

    def hear(
        self,
        said: Mapping[str, Evidence],
        *,
        trust: Mapping[str, int] = MappingProxyType({}),
        calls: Evidence = NOTHING,
        patience: int = 1,
    ) -> Zone:
        heard = {name: Said(trust.get(name, 1_000), seen, self.suspicions[name]) for name, seen in said.items()}
        self.state = asked(self.state, heard, QUESTIONS, calls=calls, patience=patience)
        for name, seen in said.items():
            self.suspicions[name] = suspicion(self.suspicions[name], seen, QUESTIONS)
        return zone_of(self.state, QUESTIONS)


def after(*ticks: Mapping[str, Evidence], patience: int = 1) -> list[Zone]:
    line = Line()
    return [line.hear(said, patience=patience) for said in ticks]


evidence = st.builds(
    lambda ok, failed, slow: Evidence(ok + failed, failed, min(slow, ok), min(slow, ok) // 2),
    st.integers(0, 50),
    st.integers(0, 50),
    st.integers(0, 50),
)
ticks = st.lists(st.dictionaries(st.sampled_from(FIVE), evidence), max_size=30)
Script = list[dict[str, Evidence]]


def test_degraded_takes_two_ticks_and_failed_three_however_loud_the_evidence() -> None:
    assert after(*[everyone(BROKEN)] * 4) == [Zone.H, Zone.D, Zone.F, Zone.F]


def test_a_vantage_alone_is_waited_for_twice_as_long() -> None:
    assert after(*[{"v1": BROKEN}] * 6, patience=2) == [Zone.H] * 3 + [Zone.D] * 2 + [Zone.F]


def test_clean_evidence_brings_a_verdict_down_in_seconds() -> None:
    zones = after(*[everyone(BROKEN)] * 5, *[everyone(CLEAN)] * 8)

    assert zones[5] is Zone.F
    assert zones[-1] is Zone.H


def test_one_sick_vantage_of_five_says_nothing_alone() -> None:
    heard = everyone(CLEAN) | {"v3": BROKEN}

    assert set(after(*[heard] * 50)) == {Zone.H}


def test_whose_word_hardly_counts_leaves_the_trimming_to_another() -> None:
    line, heard = Line(), everyone(CLEAN) | {"v3": BROKEN, "v4": BROKEN}

    assert {line.hear(heard, trust={"v3": 50}) for _ in range(50)} == {Zone.H}


def test_two_of_five_that_see_it_fail_are_believed() -> None:
    heard = everyone(CLEAN) | {"v3": BROKEN, "v4": BROKEN}

    assert after(*[heard] * 10)[-1] is Zone.F


def test_a_vantage_without_trust_moves_little() -> None:
    line, heard = Line(), {"v1": CLEAN, "v2": CLEAN, "v3": BROKEN}

    assert {line.hear(heard, trust={"v3": 20}) for _ in range(20)} == {Zone.H}


@pytest.mark.parametrize(
    ("rate", "worst", "within"),
    [(0.004, Zone.H, 500), (0.008, Zone.H, 500), (0.032, Zone.D, 100), (0.12, Zone.F, 100), (0.5, Zone.F, 4)],
)
@pytest.mark.parametrize("seed", range(3))
def test_rates_end_in_their_zone(rate: float, worst: Zone, within: int, seed: int) -> None:
    rng, line = Random(seed), Line()
    zones = {
        line.hear({name: Evidence(5, sum(rng.random() < rate for _ in range(5))) for name in FIVE})
        for _ in range(within)
    }

    assert max(zones, key=lambda zone: zone.value) is worst


def test_slow_answers_degrade_and_crawling_ones_fail() -> None:
    slow, crawl = Evidence(10, 0, 6, 0), Evidence(10, 0, 9, 6)

    assert after(*[everyone(slow)] * 10)[-1] is Zone.D
    assert after(*[everyone(crawl)] * 10)[-1] is Zone.F


def test_calls_count_beside_probes() -> None:
    line = Line()
    for _ in range(3):
        line.hear(everyone(CLEAN), calls=Evidence(attempts=200, failed=60))

    assert zone_of(line.state, QUESTIONS) is Zone.F


def test_the_verdict_names_what_filled_its_sum() -> None:
    line = Line()
    for _ in range(4):
        line.hear(everyone(Evidence(10, 0, 10, 10)))

    assert grown(line.state, QUESTIONS) == ("crawl", 11_000_000, 11_000_000)


@given(script=ticks)
def test_sums_stay_within_their_bounds_and_move_no_faster_than_they_may(script: Script) -> None:
    line = Line()
    for said in script:
        before = line.state
        line.hear(said)
        for place, question in enumerate(QUESTIONS):
            was = before.sums[place] if before.sums else 0
            now = line.state.sums[place] if line.state.sums else 0

            assert 0 <= now <= question.height
            assert abs(now - was) <= -(-question.height // question.dwell)


@given(script=ticks)
def test_the_order_of_vantages_does_not_matter(script: Script) -> None:
    one, other = Line(), Line()
    for said in script:
        one.hear(said)
        other.hear(dict(reversed(said.items())))

    assert one.state == other.state


@given(script=ticks)
def test_silence_changes_nothing(script: Script) -> None:
    line = Line()
    for said in script:
        line.hear(said)

    assert asked(line.state, {}, QUESTIONS) == line.state
