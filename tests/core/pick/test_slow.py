from __future__ import annotations

import random
from collections import Counter

import pytest
from tests.wanted import shows

from reachline.core.pick import Member, Memory, Policy, build
from reachline.core.pick.policy import SlowStart
from reachline.core.pick.slow import due_ms, share, weights
from reachline.model import Health

MINUTE = SlowStart(window_ms=60_000)


@pytest.mark.parametrize(
    ("age", "weight"), [(0, 1), (6_000, 1), (12_000, 2), (30_000, 5), (59_999, 9.9998), (60_000, 10), (90_000, 10)]
)
def test_a_weight_rises_over_the_window(age: int, weight: float) -> None:
    fresh = Member("a", "a", 10, healthy_since_ms=1_000)

    assert weights([fresh], MINUTE, 1_000 + age) == [pytest.approx(weight, abs=1e-3)]


@pytest.mark.parametrize(("aggression", "expected"), [(1.0, 0.25), (2.0, 0.5), (0.5, 0.1)])
def test_aggression_bends_the_rise(aggression: float, expected: float) -> None:
    assert share(SlowStart(window_ms=4_000, aggression=aggression), 1_000) == pytest.approx(expected)


def test_only_those_that_have_just_become_healthy_start_slowly() -> None:
    some = [
        Member("long", "long", 4, healthy_since_ms=0),
        Member("unknown", "unknown", 4),
        Member("down", "down", 4, Health.UNHEALTHY, healthy_since_ms=99_000),
        Member("out", "out", 4, excluded=True, healthy_since_ms=99_000),
    ]

    assert weights(some, MINUTE, 100_000) == [4, 4, 4, 4]
    assert due_ms(some, MINUTE, 100_000) is None


@shows("slow start")
@pytest.mark.parametrize("policy", ["weighted_random", "round_robin", "least_request", "ring_hash", "maglev"])
def test_every_policy_that_reads_weights_starts_slowly(policy: str) -> None:
    members = [Member("old", "old", 4), Member("new", "new", 4, healthy_since_ms=0)]
    chance = random.Random(3)

    def seen(now_ms: int) -> int:
        how = Policy(name=policy, slow_start=MINUTE, ring_least=4_096, table_size=4_001)
        picker = build(members, how, Memory(), chance, now_ms=now_ms)
        return Counter(picker.pick(chance) for _ in range(2_200))["new"]

    assert abs(seen(3_000) - 200) < 60
    assert abs(seen(30_000) - 733) < 100
    assert abs(seen(60_000) - 1_100) < 120


def test_a_new_picker_is_due_until_the_last_has_started() -> None:
    some = [Member("a", "a", healthy_since_ms=0), Member("b", "b", healthy_since_ms=30_000)]

    assert due_ms(some, MINUTE, 1_000) == 2_200
    assert due_ms(some, MINUTE, 59_900) == 60_000
    assert due_ms(some, MINUTE, 89_500) == 90_000
    assert due_ms(some, MINUTE, 90_000) is None
    assert due_ms(some, None, 1_000) is None


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"window_ms": 0}, "window is above 0 ms"),
        ({"window_ms": 1, "aggression": 0.0}, "aggression is above 0"),
        ({"window_ms": 1, "aggression": float("nan")}, "aggression is above 0"),
        ({"window_ms": 1, "least": 1.1}, "least share is 0…1"),
    ],
)
def test_a_slow_start_that_cannot_be_is_refused(fields: dict[str, float], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        SlowStart(**fields)  # type: ignore[arg-type]
