from __future__ import annotations

import random
from collections import Counter

import pytest

from reachline.core.pick import Member, Memory, Policy, build
from reachline.core.pick.peak_ewma import PATIENCE_US, began, ended, settle

CHANCE = random.Random(1)


def members(**weights: int) -> list[Member[str]]:
    return [Member(name, name, weight) for name, weight in weights.items()]


def test_of_two_drawn_the_one_with_fewer_calls_is_picked() -> None:
    memory, chance = Memory(), random.Random(2)
    picker = build(members(a=1, b=1, c=1, d=1), Policy(name="least_request"), memory, CHANCE)
    memory.load("a").active = 3

    seen = Counter(picker.pick(chance) for _ in range(8_000))

    # Only where both draws are it: one in sixteen.
    assert abs(seen["a"] - 500) < 100


def test_more_choices_avoid_the_busy_one_more() -> None:
    memory, chance = Memory(), random.Random(2)
    picker = build(members(a=1, b=1), Policy(name="least_request", choices=4), memory, CHANCE)
    memory.load("a").active = 1

    seen = Counter(picker.pick(chance) for _ in range(8_000))

    assert abs(seen["a"] - 500) < 100


def test_a_full_scan_never_misses_the_fewest_and_draws_among_equals() -> None:
    memory, chance = Memory(), random.Random(2)
    picker = build(members(a=1, b=1, c=1), Policy(name="least_request", full_scan=True), memory, CHANCE)
    memory.load("b").active = 1

    seen = Counter(picker.pick(chance) for _ in range(2_000))

    assert set(seen) == {"a", "c"}
    assert abs(seen["a"] - 1_000) < 100


@pytest.mark.parametrize(("bias", "share"), [(1.0, 0.4 / 1.4), (0.0, 2 / 3), (2.0, 0.08 / 1.08)])
def test_with_weights_calls_under_way_divide_a_weight_by_the_bias(bias: float, share: float) -> None:
    memory = Memory()
    picker = build(members(a=2, b=1), Policy(name="least_request", bias=bias), memory, random.Random(5))
    memory.load("a").active = 4

    seen = Counter(picker.pick(CHANCE) for _ in range(2_000))

    assert abs(seen["a"] - 2_000 * share) <= 3


def test_idle_and_weighted_it_is_weighted_round_robin() -> None:
    picker = build(members(a=1, b=3), Policy(name="least_request"), Memory(), random.Random(3))

    seen = "".join(str(picker.pick(CHANCE)) for _ in range(40))

    assert "bbab" * 4 in seen


def test_counts_of_calls_stay_over_snapshots_and_go_with_their_endpoint() -> None:
    memory = Memory()
    memory.load("a").active = 2
    memory.load("gone").active = 1
    memory.load("done")

    memory.keep(["a"])

    assert {key: load.active for key, load in memory.loads.items()} == {"a": 2, "gone": 1}


def test_the_faster_of_two_is_picked() -> None:
    memory = Memory()
    picker = build(members(a=1, b=1, c=1), Policy(name="peak_ewma"), memory, CHANCE)
    for name, latency in (("a", 50_000), ("b", 5_000), ("c", 20_000)):
        began(memory.load(name))
        ended(memory.load(name), latency, 0)

    seen = Counter(picker.pick(CHANCE) for _ in range(3_000))

    assert seen["a"] == 0
    assert abs(seen["b"] - 2_000) < 150


def test_a_fast_failure_never_looks_like_low_latency() -> None:
    memory = Memory()
    picker = build(members(good=1, refusing=1), Policy(name="peak_ewma"), memory, CHANCE)
    for number in range(50):
        for name in ("good", "refusing"):
            began(memory.load(name))
        ended(memory.load("good"), 80_000, number * 100)
        ended(memory.load("refusing"), 300, number * 100, failed=True)

    assert {picker.pick(CHANCE) for _ in range(100)} == {"good"}
    assert memory.load("refusing").latency_us >= PATIENCE_US


def test_a_slower_answer_is_believed_at_once_and_a_faster_one_slowly() -> None:
    load = Memory().load("a")
    ended(load, 10_000, 0)
    ended(load, 90_000, 1)
    assert load.latency_us == 90_000

    ended(load, 10_000, 2)
    assert 89_000 < load.latency_us < 90_000
    ended(load, 10_000, 60_000)
    assert 10_000 < load.latency_us < 10_500


def test_an_endpoint_that_nobody_calls_is_tried_again_some_time() -> None:
    memory = Memory()
    picker = build(members(slow=1, good=1), Policy(name="peak_ewma"), memory, CHANCE)
    for name, latency in (("slow", 400_000), ("good", 20_000)):
        began(memory.load(name))
        ended(memory.load(name), latency, 0)
    began(memory.load("good"))
    assert picker.pick(CHANCE) == "good"

    settle(memory.loads.values(), 40_000)

    assert picker.pick(CHANCE) == "slow"


def test_of_an_endpoint_never_tried_one_call_must_end_first() -> None:
    memory = Memory()
    picker = build(members(new=1, good=1), Policy(name="peak_ewma"), memory, CHANCE)
    began(memory.load("good"))
    ended(memory.load("good"), 20_000, 0)
    assert picker.pick(CHANCE) == "new"

    began(memory.load("new"))

    assert {picker.pick(CHANCE) for _ in range(50)} == {"good"}


def test_a_weight_divides_the_expected_wait() -> None:
    memory = Memory()
    picker = build(members(a=1, b=10), Policy(name="peak_ewma"), memory, CHANCE)
    for name, latency in (("a", 20_000), ("b", 100_000)):
        began(memory.load(name))
        ended(memory.load(name), latency, 0)

    assert picker.pick(CHANCE) == "b"
