from __future__ import annotations

import random
import threading
from collections import Counter
from heapq import heappop, heappush
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reachline.core.pick import Member, Memory, Policy, build
from reachline.core.pick.edf import Deadlines, turns
from reachline.core.pick.round_robin import CYCLE_MOST, Cycle, cycle_of

CHANCE = random.Random(1)


def from_nothing(weights: list[int], count: int) -> list[int]:
    """The schedule of an empty queue, filled one by one, in Envoy's order of operations."""
    heap: list[tuple[float, int, int]] = []
    for place, weight in enumerate(weights):
        heappush(heap, (0.0 + 1.0 / weight, place, place))
    found = []
    for order in range(len(weights), len(weights) + count):
        now, _, place = heappop(heap)
        heappush(heap, (now + 1.0 / weights[place], order, place))
        found.append(place)
    return found


@pytest.mark.parametrize(
    ("weights", "cycle"),
    [([1, 2, 3], "CBCABC"), ([5, 1, 1], "AAAABCA"), ([25, 75], "BBAB"), ([3, 3, 1], "ABABCAB"), ([1, 1, 1], "ABC")],
)
def test_a_cycle_is_envoys(weights: list[int], cycle: str) -> None:
    found = "".join("ABC"[place] for place in turns(weights, 0, len(cycle)))

    assert found == cycle == "".join("ABC"[place] for place in from_nothing(weights, len(cycle)))


@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(0, 200))
@settings(max_examples=40)
def test_starting_after_some_picks_is_the_same_cycle_later(weights: list[int], picks: int) -> None:
    cycle = sum(weights)

    found = turns(weights, picks, cycle)

    assert Counter(found) == Counter(dict(enumerate(weights)))


@given(st.lists(st.integers(1, 30), min_size=2, max_size=6))
@settings(max_examples=30)
def test_no_endpoint_is_ever_a_turn_away_from_its_part(weights: list[int]) -> None:
    total, seen = sum(weights), Counter[int]()

    for number, place in enumerate(turns(weights, 0, 2 * total), start=1):
        seen[place] += 1
        for each, weight in enumerate(weights):
            assert abs(seen[each] - number * weight / total) < len(weights)


@pytest.mark.parametrize("weights", [[1, 2, 3], [25, 75], [3, 3, 1], [5, 1, 1]])
def test_a_written_cycle_is_a_rotation_of_the_one_from_nothing(weights: list[int]) -> None:
    twice = "".join("ABCD"[place] for place in 2 * from_nothing(weights, sum(weights)))

    later = [cycle_of(weights, picks) for picks in range(sum(weights))]

    assert all("".join("ABCD"[place] for place in each or [3]) in twice for each in later)


@pytest.mark.parametrize("seed", range(5))
def test_a_start_after_picks_goes_on_as_if_they_had_been_made(seed: int) -> None:
    chance = random.Random(seed)
    # No multiples of one another, so that no two deadlines are equal and rounding decides nothing.
    weights = [chance.uniform(1, 50) for _ in range(20)]
    picks = chance.randrange(1_000)

    heap = turns(weights, 0, picks + 100)

    assert turns(weights, picks, 100) == heap[picks:]


def test_equal_weights_go_round_in_order_and_over_snapshots() -> None:
    memory = Memory(seed=1)
    members = [Member(name, name) for name in "abc"]
    first, second = (build(members, Policy(), memory, CHANCE) for _ in range(2))

    found = [first.pick(CHANCE) for _ in range(2)] + [second.pick(CHANCE) for _ in range(3)]

    assert found == ["b", "c", "a", "b", "c"]


def test_a_picker_built_for_every_pick_favours_nobody() -> None:
    chance, some = random.Random(6), [Member(name, name, weight) for name, weight in (("a", 1), ("b", 2), ("c", 3))]

    first = Counter(build(some, Policy(), Memory(), chance).pick(chance) for _ in range(600))

    assert all(abs(first[name] - expected) < 50 for name, expected in (("a", 100), ("b", 200), ("c", 300)))


@pytest.mark.parametrize("weights", [{"a": 1, "b": 2, "c": 3}, {"a": 100, "b": 87}, {"a": 9_999, "b": 3, "c": 7_001}])
def test_one_cycle_gives_each_its_weight_exactly(weights: dict[str, int]) -> None:
    picker = build(
        [Member(name, name, weight) for name, weight in weights.items()], Policy(), Memory(), random.Random(4)
    )
    total = sum(weights.values())

    seen = Counter(picker.pick(CHANCE) for _ in range(total))

    assert {name: abs(seen[name] - weight) <= 1 for name, weight in weights.items()} == dict.fromkeys(weights, True)


def test_long_cycles_are_run_and_short_ones_written_down() -> None:
    def of(weights: list[int]) -> object:
        return build(
            [Member(name, name, each) for name, each in zip("abc", weights, strict=True)], Policy(), Memory(), CHANCE
        )

    assert isinstance(of([100, 200, 300]), Cycle)
    assert isinstance(of([CYCLE_MOST, 1, 1]), Deadlines)


@pytest.mark.parametrize("size", [3, 128, 129, 1_000])
def test_a_schedule_that_runs_is_the_written_one_however_many_endpoints(size: int) -> None:
    weights = [1 + number * 37 % 101 for number in range(size)]
    picker = Deadlines(range(size), weights, picks=500)

    assert [picker.pick(CHANCE) for _ in range(3 * size)] == turns(weights, 500, 3 * size)


def test_while_another_thread_holds_the_schedule_a_pick_is_drawn_by_the_same_weights() -> None:
    picker, chance = Deadlines("ab", [3.0, 1.0]), random.Random(2)
    picker._box.clear()

    seen = Counter(picker.pick(chance) for _ in range(4_000))

    assert abs(seen["a"] - 3_000) < 4 * (4_000 * 0.75 * 0.25) ** 0.5


def test_threads_share_a_schedule_without_losing_an_endpoint() -> None:
    weights = [5_003, 1_009, 2_003]
    picker, seen = Deadlines("abc", weights), [Counter[str | None]() for _ in range(4)]

    def picking(mine: Counter[str | None]) -> None:
        chance = random.Random(1)
        for _ in range(3_000):
            mine[picker.pick(chance)] += 1

    threads = [threading.Thread(target=picking, args=(each,)) for each in seen]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    found = sum(seen, Counter[str | None]())
    assert sum(found.values()) == 12_000
    for name, weight in zip("abc", weights, strict=True):
        assert abs(found[name] - 12_000 * weight / sum(weights)) < 300


def test_a_weight_may_change_from_pick_to_pick() -> None:
    weights = [1.0, 1.0]
    picker = Deadlines("ab", weights, weigh=lambda place: weights[place])

    before = [picker.pick(CHANCE) for _ in range(4)]
    weights[0] = 4.0
    after = Counter(picker.pick(CHANCE) for _ in range(50))

    assert before == ["a", "b", "a", "b"]
    assert abs(after["a"] - 40) <= 1


def test_the_cursor_may_be_anothers() -> None:
    picker = Cycle("abc", cursor=iter([4, 0, 2]))

    assert [picker.pick(CHANCE) for _ in range(3)] == ["b", "a", "c"]
    assert list(islice(iter(lambda: Cycle("").pick(CHANCE), 1), 2)) == [None, None]
