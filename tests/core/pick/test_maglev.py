from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reachline.core.pick import Member, Memory, Policy, build
from reachline.core.pick.filling import filled
from reachline.core.pick.maglev import is_prime
from reachline.model import Locality

CHANCE = random.Random(1)


def table(policy: Policy, *members: Member[int]) -> list[int | None]:
    picker = build(members, policy, Memory(), CHANCE)
    return [picker.pick(CHANCE, key) for key in range(3 * policy.table_size)]


def member(place: int, weight: int = 1, *, key: str = "", at: str = "") -> Member[int]:
    return Member(place, key or f"127.0.0.1:{90 + place}", weight, locality=Locality(zone=at))


def small(size: int, **more: object) -> Policy:
    return Policy(name="maglev", table_size=size, **more)  # type: ignore[arg-type]


def test_a_table_is_envoys() -> None:
    assert table(small(7), *map(member, range(6))) == [2, 4, 0, 1, 5, 0, 3] * 3


def test_a_table_is_envoys_where_something_else_than_the_address_is_hashed() -> None:
    named = [member(place, key=str(90 + place)) for place in range(6)]

    assert table(small(7), *named) == [2, 5, 0, 3, 4, 1, 0] * 3


def test_the_order_of_the_list_does_not_matter() -> None:
    some = [member(place, 1 + place % 3) for place in range(40)]

    assert table(small(101), *reversed(some)) == table(small(101), *some)


def test_a_weighted_table_is_envoys() -> None:
    assert table(small(17), member(0, 1), member(1, 2)) == [1, 0, 0, 1, 0, 1, 1, 0, 1, 1, 1, 1, 1, 0, 1, 0, 1] * 3


@pytest.mark.parametrize(
    ("weights", "ats", "owners"),
    [
        ({"x": 1, "y": 1}, "xy", [1, 0, 0, 1, 0, 1, 1, 0, 0, 1, 0, 1, 0, 0, 1, 0, 1]),
        ({"x": 8, "z": 0, "y": 2}, "xyz", [1, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0]),
    ],
)
def test_a_table_by_weights_of_localities_is_envoys(weights: dict[str, int], ats: str, owners: list[int]) -> None:
    policy = small(17, localities={Locality(zone=at): weight for at, weight in weights.items()})

    assert table(policy, *(member(place, place + 1, at=at) for place, at in enumerate(ats))) == owners * 3


def test_localities_without_any_weight_serve_nobody() -> None:
    assert set(table(small(17, localities={}), member(0), member(1))) == {None}


def test_the_lightest_of_a_table_too_small_appear_once() -> None:
    heavy, light = Locality(zone="heavy"), Locality(zone="light")
    members = [Member(each, f"127.0.0.1:{each}", locality=light if each else heavy) for each in range(1_024)]
    policy = Policy(name="maglev", localities={heavy: 127, light: 1})

    picker = build(members, policy, Memory(), CHANCE)

    seen = Counter(picker.pick(CHANCE, key) for key in range(65_537))
    assert {seen[each] for each in range(1, 1_024)} == {1}
    assert seen[0] == 65_537 - 1_023


def test_a_further_attempt_turns_most_of_the_keys_bits() -> None:
    picker = build([member(place) for place in range(6)], small(7), Memory(), CHANCE)

    assert [picker.pick(CHANCE, 10, attempt) for attempt in range(3)] == [1, 0, 5]


def slot_by_slot(starts: Sequence[tuple[int, int]], shares: Sequence[float], size: int) -> list[int]:
    """The paper's loop with Envoy's weights, as it stands."""
    owners, numbers, targets = [-1] * size, [0] * len(starts), [0.0] * len(starts)
    left, turn = size, 0
    while left:
        turn += 1
        for place, (offset, skip) in enumerate(starts):
            if turn * shares[place] < targets[place] or not left:
                continue
            targets[place] += max(shares)
            while owners[(offset + skip * numbers[place]) % size] >= 0:
                numbers[place] += 1
            owners[(offset + skip * numbers[place]) % size] = place
            left -= 1
    return owners


@given(st.data(), st.sampled_from([2, 3, 7, 101, 251]))
@settings(max_examples=60)
def test_every_table_is_filled_as_slot_by_slot(data: st.DataObject, size: int) -> None:
    start = st.tuples(st.integers(0, size - 1), st.integers(1, size - 1))
    starts = data.draw(st.lists(start, min_size=1, max_size=8))
    weights = data.draw(st.lists(st.integers(1, 20), min_size=len(starts), max_size=len(starts)))
    shares = [weight / sum(weights) for weight in weights]

    assert filled(starts, shares, size) == slot_by_slot(starts, shares, size)


@pytest.mark.parametrize("shares", [64, 65], ids=["few_shares", "many_shares"])
def test_a_table_of_many_endpoints_is_filled_as_slot_by_slot(shares: int) -> None:
    chance, size = random.Random(shares), 1_009
    starts = [(chance.randrange(size), chance.randrange(1, size)) for _ in range(130)]
    weights = [1 + place % shares for place in range(130)]

    own = [weight / sum(weights) for weight in weights]

    assert filled(starts, own, size) == slot_by_slot(starts, own, size)


@pytest.mark.parametrize("size", [0, 1, 8, 65_536, 5_000_077])
def test_a_size_that_is_no_prime_or_too_large_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"prime number of slots, at most 5000011, not {size}"):
        build([member(0)], small(size), Memory(), CHANCE)


def test_primes_are_known() -> None:
    assert [number for number in range(30) if is_prime(number)] == [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]


@given(
    st.lists(st.dictionaries(st.integers(0, 6), st.integers(1, 4), min_size=1), min_size=2, max_size=6),
    st.sampled_from([7, 17, 101]),
)
def test_a_table_does_not_depend_on_those_before(steps: list[dict[int, int]], size: int) -> None:
    memory = Memory()
    for weights in steps:
        members = [member(place, weight) for place, weight in weights.items()]

        picker = build(members, small(size), memory, CHANCE)

        assert [picker.pick(CHANCE, key) for key in range(size)] == table(small(size), *members)[:size]


def test_a_weight_that_moves_no_turn_leaves_the_table_as_it_is() -> None:
    memory, kept = Memory(), "maglev table 0"
    build([member(place, 100) for place in range(9)], small(101), memory, CHANCE)
    before = memory.hashed(kept)["owners"]

    build([member(place, 101 if place == 8 else 100) for place in range(9)], small(101), memory, CHANCE)
    assert memory.hashed(kept)["owners"] is before

    build([member(place, 200 if place == 8 else 100) for place in range(9)], small(101), memory, CHANCE)
    assert memory.hashed(kept)["owners"] is not before
