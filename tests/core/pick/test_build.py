from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reachline.core.pick import TABLE, Member, Memory, Policy, build, elsewhere
from reachline.core.pick.build import loads_of
from reachline.core.pick.member import WEIGHT_MOST, sound
from reachline.core.pick.table import HASHING
from reachline.errors import ConfigError
from reachline.model import Health

CHANCE = random.Random(1)
DOWN, HALF, OK = Health.UNHEALTHY, Health.DEGRADED, Health.HEALTHY
POLICIES = sorted(TABLE)


def member(
    name: str, weight: int = 1, health: Health = OK, priority: int = 0, *, excluded: bool = False
) -> Member[str]:
    return Member(name, name, weight, health, excluded, priority)


def shares(members: list[Member[str]], policy: Policy, picks: int = 2_000, seed: int = 1) -> Counter[str]:
    chance = random.Random(seed)
    picker = build(members, policy, Memory(), chance)
    return Counter(str(picker.pick(chance)) for _ in range(picks))


def near(count: int, expected: float, picks: int = 2_000) -> bool:
    part = expected / picks
    return abs(count - expected) <= 4.5 * (picks * part * (1 - part)) ** 0.5 + 1


@pytest.mark.parametrize("policy", POLICIES)
def test_healthy_endpoints_alone_are_picked_while_they_carry_all(policy: str) -> None:
    members = [member("a"), member("b"), member("c"), member("down", health=DOWN), member("half", health=HALF)]

    seen = shares([*members, member("late", priority=1), member("new", excluded=True)], Policy(name=policy), picks=600)

    # Three of five are 84 % with overprovisioning; one degraded takes the rest before the next priority.
    assert set(seen) == {"a", "b", "c", "late"} or set(seen) == {"a", "b", "c", "half", "late"}
    assert seen["a"] + seen["b"] + seen["c"] > 400


@pytest.mark.parametrize("policy", POLICIES)
def test_half_of_a_priority_carries_seventy_percent(policy: str) -> None:
    seen = shares([member("a"), member("b", health=DOWN), member("c", priority=1)], Policy(name=policy, panic=0))

    assert set(seen) == {"a", "c"}
    assert near(seen["a"], 1_400)


@pytest.mark.parametrize("policy", POLICIES)
def test_degraded_ones_carry_what_healthy_ones_leave(policy: str) -> None:
    seen = shares([member("a"), member("b", health=HALF), member("c", health=DOWN)], Policy(name=policy))

    assert set(seen) == {"a", "b"}
    assert near(seen["a"], 1_000)


def test_hash_policies_as_envoys_know_no_degraded_ones() -> None:
    members = [member("a"), member("b", health=HALF), member("c", health=DOWN)]

    assert set(shares(members, Policy(name="maglev", hash_health=False))) == {"a"}


@pytest.mark.parametrize("policy", POLICIES)
def test_in_panic_all_are_picked_alike_or_nobody(policy: str) -> None:
    members = [member("a"), member("b", health=DOWN), member("c", health=DOWN, excluded=True), member("d", health=DOWN)]

    seen = shares(members, Policy(name=policy, ring_least=4_096))

    assert set(seen) == {"a", "b", "c", "d"}
    assert all(abs(count - 500) < 130 for count in seen.values())
    assert set(shares(members, Policy(name=policy, fail_in_panic=True), picks=9)) == {"None"}
    assert set(shares(members, Policy(name=policy, panic=0), picks=300)) == {"a"}


@pytest.mark.parametrize("policy", POLICIES)
def test_nobody_is_none(policy: str) -> None:
    assert set(shares([], Policy(name=policy), picks=3)) == {"None"}
    assert set(shares([member("a", health=DOWN)], Policy(name=policy, panic=0), picks=3)) == {"None"}


@pytest.mark.parametrize("policy", sorted(HASHING))
def test_one_key_stays_in_one_priority_and_at_one_endpoint(policy: str) -> None:
    members = [member("a"), member("b", health=DOWN), *(member(name, priority=1) for name in "cdef")]
    picker = build(members, Policy(name=policy, panic=0), Memory(), CHANCE)

    for key in range(0, 200, 7):
        assert len({picker.pick(CHANCE, key) for _ in range(4)}) == 1
        assert (picker.pick(CHANCE, key) == "a") == (key % 100 < 70)


def test_an_unweighted_policy_says_so_and_others_follow_weights() -> None:
    members = [member("a", 1), member("b", 3)]

    for policy in POLICIES:
        seen = shares(members, Policy(name=policy, ring_least=8_192))
        expected = {"random": 1_000}.get(policy, 500)
        if policy != "peak_ewma":  # nobody ever called: it knows no costs
            assert abs(seen["a"] - expected) < 90, policy


CHI_SQUARE_999 = 16.27
"""The 99.9 % point of three degrees of freedom."""


@pytest.mark.parametrize("policy", ["weighted_random", "round_robin", "least_request"])
@pytest.mark.parametrize("weights", [(1, 2, 3, 4), (97, 1, 1, 1), (4_001, 4_003, 4_007, 4_009)])
def test_picks_follow_the_weights_by_chi_square(policy: str, weights: tuple[int, ...]) -> None:
    seen = shares(
        [member(name, weight) for name, weight in zip("abcd", weights, strict=True)], Policy(name=policy), 10_000
    )

    expected = [10_000 * weight / sum(weights) for weight in weights]
    assert sum((seen[name] - each) ** 2 / each for name, each in zip("abcd", expected, strict=True)) < CHI_SQUARE_999


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (
            member("c", 0),
            "endpoints[2]: weight: a weight is 1…4294967295; leave the endpoint out to send it nothing (got 0)",
        ),
        (member("c", -5), "endpoints[2]: weight: a weight is 1…4294967295"),
        (member("c", 2**32), "(got 4294967296)"),
        (member("c", WEIGHT_MOST), "weights of one priority sum to 4294967295 at most (got 4294967297)"),
        (member("c", float("nan")), "endpoints[2]: weight: a weight is a whole number (got nan)"),  # type: ignore[arg-type]
        (member("c", 1.5), "a weight is a whole number (got 1.5)"),  # type: ignore[arg-type]
        (member("c", True), "a weight is a whole number (got True)"),
        (member("c", priority=-1), "endpoints[2]: priority: a priority is a whole number, 0…128 (got -1)"),
        (member("c", priority=129), "(got 129)"),
        (member(""), "endpoints[2]: key: an endpoint has a key"),
        (
            member("a"),
            "endpoints[2]: key: the endpoint stands at [0] already; name it once, with the sum of its weights (got a)",
        ),
    ],
)
def test_what_cannot_be_balanced_is_refused_with_its_position(wrong: Member[str], says: str) -> None:
    members = [member("a"), member("b"), wrong]

    kept, problems = sound(members)

    assert [each.item for each in kept] == ["a", "b"]
    assert says in str(problems[0])
    with pytest.raises(ConfigError) as caught:
        build(members, Policy(), Memory(), CHANCE)
    assert caught.value.problems == problems


def test_an_unknown_policy_is_refused_with_those_there_are() -> None:
    with pytest.raises(
        ConfigError, match=r"a policy is one of client_side_weighted_round_robin, least_request, maglev.*got fastest"
    ):
        build([], Policy(name="fastest"), Memory(), CHANCE)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"choices": 1}, "choices are 2 or more"),
        ({"bias": -1.0}, "a bias is 0 or more"),
        ({"bias": float("nan")}, "a bias is 0 or more"),
        ({"panic": 101}, "a panic threshold is 0…100 percent"),
        ({"ring_least": 20, "ring_most": 10}, r"a ring's least size \(20\).* not above its greatest \(10\)"),
        ({"balance_factor": 99}, "a balance factor is 0, or 100 percent or more"),
        ({"overprovision": 0}, "overprovision is 1 or more"),
    ],
)
def test_a_policy_that_cannot_be_is_refused(fields: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Policy(**fields)  # type: ignore[arg-type]


healths = st.sampled_from(list(Health))
some = st.lists(st.tuples(st.integers(1, 9), healths, st.booleans(), st.integers(0, 2)), min_size=1, max_size=8)


@given(some, st.sampled_from(POLICIES), st.integers(0, 2**64 - 1), st.sampled_from([0, 50]))
@settings(max_examples=60, deadline=None)
def test_nobody_who_is_not_well_is_picked_unless_in_panic(
    rows: list[tuple[int, Health, bool, int]], policy: str, key: int, panic: int
) -> None:
    members = [member(f"e{number}", *row[:2], row[3], excluded=row[2]) for number, row in enumerate(rows)]
    how = Policy(name=policy, panic=panic, table_size=251, ring_least=64)
    chance = random.Random(key)
    picker = build(members, how, Memory(), chance)

    picked = {picker.pick(chance, key), *(picker.pick(chance) for _ in range(10))}

    by_name = {each.item: each for each in members}
    usable = {name for name, each in by_name.items() if each.health not in {DOWN, Health.DRAINING, Health.TIMEOUT}}
    usable -= {name for name, each in by_name.items() if each.excluded}
    loads = loads_of(members, how)
    panicking = {each.item for each in members if loads.panic[each.priority]}
    assert picked <= usable | panicking | {None}
    assert (None not in picked) or not usable


@given(some, st.sampled_from(POLICIES), st.integers(0, 2**64 - 1), st.data())
@settings(max_examples=50, deadline=None)
def test_a_further_pick_is_never_one_tried_while_another_may_be_picked(
    rows: list[tuple[int, Health, bool, int]], policy: str, key: int, data: st.DataObject
) -> None:
    members = [member(f"e{number}", *row[:2], row[3], excluded=row[2]) for number, row in enumerate(rows)]
    chance = random.Random(key)
    picker = build(members, Policy(name=policy, table_size=251, ring_least=64), Memory(), chance)
    tried = data.draw(st.sets(st.sampled_from([each.item for each in members])))

    found = elsewhere(picker, chance, key, tried)

    assert found not in tried
    assert (found is None) is (set(picker.items) <= tried)
