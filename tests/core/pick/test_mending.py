from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import chain, islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reachline.core.pick import Member, Memory, Policy, build
from reachline.core.pick.apart import apart, differing
from reachline.core.pick.filling import filled, recordable, recorded
from reachline.core.pick.mending import Mending
from reachline.core.pick.ranks import Ranks
from reachline.core.pick.turns import rounds_of, takers

CHANCE = random.Random(1)
ANY = 10**9


class Given:
    """Endpoints by name with weights, as a table wants them."""

    def __init__(self, weights: Mapping[str, int], size: int) -> None:
        self.keys = sorted(weights)
        self.starts = [start(key, size) for key in self.keys]
        self.shares = [weights[key] / sum(weights.values()) for key in self.keys]
        self.rounds = recordable(self.shares, size)
        self.size = size

    def filled(self) -> list[str]:
        return [self.keys[place] for place in filled(self.starts, self.shares, self.size)]

    def mending(self) -> Mending:
        assert self.rounds is not None
        return Mending(self.keys, self.starts, self.rounds, recorded(self.starts, self.shares, self.size))

    def moves(self, table: Mending, most: int = ANY) -> bool:
        assert self.rounds is not None
        return table.moved(self.keys, self.starts, self.rounds, most)

    def read(self, table: Mending) -> list[str]:
        names = dict(zip(table.order, self.keys, strict=True))
        return [names[who] for who in table.owners]


def start(key: str, size: int) -> tuple[int, int]:
    chance = random.Random(key)
    return chance.randrange(size), chance.randrange(1, size)


def alike(count: int, size: int, *, without: int | None = None) -> Given:
    return Given({f"n{number:04}": 1 for number in range(count) if number != without}, size)


@given(
    st.sampled_from([2, 7, 101, 251, 1_009]),
    st.lists(st.dictionaries(st.integers(0, 25), st.integers(1, 4), min_size=1), min_size=2, max_size=5),
)
@settings(max_examples=50)
def test_a_mended_table_is_the_one_filled_anew(size: int, steps: list[dict[int, int]]) -> None:
    table = None
    for weights in steps:
        now = Given({f"n{name}": weight for name, weight in weights.items()}, size)
        if now.rounds is None:
            table = None  # too many rounds for its bytes
        elif table is None or not now.moves(table):
            table = now.mending()

        assert table is None or now.read(table) == now.filled()


@pytest.mark.parametrize(
    ("seed", "size", "heaviest"),
    # The first four are chosen: somebody asks for a slot of whom it is not written down, which a few changes in a row do not show.
    [(7, 251, 1), (18, 251, 1), (24, 251, 1), (2, 1_009, 1), (1, 1_009, 2), (2, 1_009, 3)],
)
def test_many_changes_in_a_row_leave_the_table_of_the_last(seed: int, size: int, heaviest: int) -> None:
    chance, count = random.Random(seed), 40 if size == 251 else 100
    weights, mended = {f"n{number}": 1 + number % heaviest for number in range(count)}, 0
    table = Given(weights, size).mending()
    for step in range(38 if size == 251 else 18):
        gone = chance.choice(sorted(weights))
        if step % 3:
            del weights[gone]
        if step % 3 != 1:
            weights[f"new{step}"] = 1 + step % heaviest
        now = Given(weights, size)
        if now.moves(table):
            mended += 1
        else:
            table = now.mending()

        assert now.read(table) == now.filled()
    assert mended > 8


def test_one_that_goes_and_comes_back_has_its_slots_again() -> None:
    before, after = alike(90, 1_009), alike(90, 1_009, without=17)
    table = before.mending()

    assert after.moves(table)
    assert before.moves(table)
    assert before.read(table) == before.filled()


def test_more_changes_than_asked_for_are_left_to_a_filling() -> None:
    before, after = alike(100, 1_009), alike(100, 1_009, without=17)
    # Eleven takes are gone, or ten; as many come to others.
    assert not after.moves(before.mending(), 19)
    assert after.moves(before.mending(), 22)


def test_a_table_is_filled_again_once_too_little_is_known_of_it() -> None:
    weights = {f"n{number}": 1 for number in range(150)}
    table, worn_at = Given(weights, 2_003).mending(), 0
    while worn_at < 500:
        del weights[min(weights)]
        weights[f"new{worn_at}"] = 1
        if not Given(weights, 2_003).moves(table):
            break
        worn_at += 1

    assert 3 < worn_at < 500


def test_rounds_are_those_in_which_places_take_slots() -> None:
    shares = [weight / 21 for weight in (1, 2, 3, 4, 5, 6)]
    rounds = rounds_of(shares, 101)

    assert rounds is not None
    order = sorted((turn, place) for place, turns in enumerate(rounds) for turn in turns)
    assert [place for _, place in order] == list(islice(chain.from_iterable(takers(shares)), 101))


def test_what_takes_more_rounds_than_a_byte_tells_apart_is_not_recorded() -> None:
    assert recordable([1 / 8] * 8, 2_003) is not None
    assert recordable([1 / 7] * 7, 2_003) is None
    assert recordable([number / 2_080 for number in range(1, 66)], 251) is None


@given(st.sets(st.integers(0, 400)), st.sets(st.integers(0, 400)))
def test_what_differs_between_two_lists_is_found(one: set[int], other: set[int]) -> None:
    def names(numbers: set[int]) -> list[str]:
        return sorted(map(str, numbers))

    assert differing(names(one), names(other), ANY) == (names(one - other), names(other - one))
    assert differing(names(one), names(other), len(one ^ other) - 1) is None or one == other


def test_numbers_are_apart_from_where_they_begin_to_differ() -> None:
    assert apart((1, 2, 3), (1, 2, 3)) == 0
    assert apart((1, 2, 3), (1, 2)) == 1
    assert apart((1, 2, 5), (1, 3, 5)) == 4
    assert apart((), (1, 2)) == 2


def test_ranks_count_along_each_order() -> None:
    starts, size = [(3, 5), (0, 1), (100, 100)], 101
    ranks = Ranks(starts, size)
    for who, (offset, skip) in enumerate(starts):
        assert [ranks.of(who, (offset + skip * number) % size) for number in range(size)] == list(range(size))
    ranks.add((7, 9))
    ranks.ends(3, (7 + 9 * 4) % size)

    assert ranks.of(3, 16) == 1
    assert ranks.wanting(16) == [3]
    assert ranks.wanting(16, [0, 1]) == []
    assert ranks.nearest(3, 16, [7, 25, 34]) == 25


def test_a_table_of_many_endpoints_is_mended_where_one_of_them_is_another() -> None:
    members = [Member(number, f"10.0.{number >> 8}.{number & 255}:443") for number in range(6_000)]
    policy, memory = Policy(name="maglev"), Memory()
    build(members, policy, memory, CHANCE)
    (table,) = memory.tables.values()
    members[4_711] = Member(6_001, "10.1.0.1:443")

    picker = build(members, policy, memory, CHANCE)

    fresh = build(members, policy, Memory(hashes=memory.hashes), CHANCE)
    assert [picker.pick(CHANCE, key) for key in range(65_537)] == [fresh.pick(CHANCE, key) for key in range(65_537)]
    assert set(picker.items) == {member.item for member in members}
    assert list(memory.tables.values()) == [table]


def test_a_picker_keeps_its_table_while_the_next_one_is_made_of_it() -> None:
    members = [Member(number, f"10.0.{number >> 8}.{number & 255}:443") for number in range(6_000)]
    policy, memory = Policy(name="maglev"), Memory()
    before = build(members, policy, memory, CHANCE)
    owners = [before.pick(CHANCE, key) for key in range(65_537)]

    build(members[1:], policy, memory, CHANCE)

    assert [before.pick(CHANCE, key) for key in range(65_537)] == owners


def test_a_table_of_which_little_is_left_is_filled_and_known_again_after_the_next() -> None:
    members = [Member(number, f"10.0.{number >> 8}.{number & 255}:443") for number in range(6_000)]
    policy, memory = Policy(name="maglev"), Memory()
    build(members, policy, memory, CHANCE)

    build(members[900:], policy, memory, CHANCE)
    assert not memory.tables
    build(members[901:], policy, memory, CHANCE)
    assert len(memory.tables) == 1
