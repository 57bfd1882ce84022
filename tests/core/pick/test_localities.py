from __future__ import annotations

import random
from collections import Counter

import pytest

from reachline.core.pick import Member, Memory, Policy, build
from reachline.core.pick.localities import WHOLE, Zones, effective, zones
from reachline.core.pick.policy import Zoning
from reachline.core.pick.ring import Ring
from reachline.model import Health, Locality

A, B, C = (Locality(zone=name) for name in "abc")
DOWN = Health.UNHEALTHY


def members(*groups: tuple[Locality, int, int]) -> list[Member[str]]:
    """By locality: how many are healthy, how many are down."""
    return [
        Member(
            f"{at.zone}{number}", f"{at.zone}{number}", health=Health.HEALTHY if number < well else DOWN, locality=at
        )
        for at, well, down in groups
        for number in range(well + down)
    ]


def by_zone(some: list[Member[str]], policy: Policy, picks: int = 3_000) -> Counter[str]:
    chance = random.Random(2)
    picker = build(some, policy, Memory(), chance)
    return Counter(str(picker.pick(chance))[0] for _ in range(picks))


@pytest.mark.parametrize(
    ("eligible", "usable", "weight"),
    [(10, 10, 100), (8, 10, 100), (7, 10, 98), (5, 10, 70), (1, 10, 14), (0, 10, 0), (0, 0, 0)],
)
def test_a_localitys_weight_falls_once_health_does_not_make_up_for_it(
    eligible: int, usable: int, weight: float
) -> None:
    assert effective(100, eligible=eligible, usable=usable, overprovision=140) == pytest.approx(weight)


def test_localities_take_turns_by_weight_and_health() -> None:
    some = members((A, 2, 0), (B, 1, 1), (C, 3, 0))

    seen = by_zone(some, Policy(localities={A: 1, B: 2}), picks=2_400)

    # B counts for 2 x 1.4 x 1/2; C has no weight.
    assert set(seen) == {"a", "b"}
    assert abs(seen["a"] - 1_000) <= 2


def test_turns_begin_with_another_locality_each_time_a_picker_is_built() -> None:
    some, chance = members((A, 1, 0), (B, 1, 0), (C, 1, 0)), random.Random(5)
    policy = Policy(localities={A: 3, B: 2, C: 2})

    first = Counter(build(some, policy, Memory(), chance).pick(chance) for _ in range(140))

    assert all(abs(first[f"{name}0"] - expected) < 25 for name, expected in (("a", 60), ("b", 40), ("c", 40)))


def test_without_any_weight_localities_are_ignored_but_not_by_hash_policies() -> None:
    some = members((A, 2, 0), (B, 2, 0))

    assert set(by_zone(some, Policy(localities={}), picks=50)) == {"a", "b"}
    assert set(by_zone(some, Policy(name="ring_hash", localities={}), picks=50)) == {"N"}


@pytest.mark.parametrize(("honours", "share"), [(True, 0.7 / 1.7), (False, 0.5)])
def test_hash_policies_honour_the_health_of_localities_unless_told_not_to(honours: bool, share: float) -> None:
    some = members((A, 2, 2), (B, 4, 0))

    seen = by_zone(some, Policy(name="maglev", localities={A: 1, B: 1}, hash_health=honours))

    assert abs(seen["a"] - 3_000 * share) < 120


def test_in_panic_localities_do_not_matter() -> None:
    seen = by_zone(members((A, 1, 3), (B, 0, 4)), Policy(localities={A: 1, B: 1}), picks=800)

    assert seen == {"a": 400, "b": 400}


def home(**callers: int) -> Zoning:
    return Zoning(home=A, callers={Locality(zone=name): count for name, count in callers.items()})


def test_home_keeps_what_its_endpoints_are_of_what_it_is_asked_and_the_rest_goes_where_there_is_room() -> None:
    # Envoy's own example: callers 40/40/20, endpoints 25/50/25.
    some = members((A, 2, 0), (B, 4, 0), (C, 2, 0))
    plan = zones(some, home(a=4, b=4, c=2))

    seen = by_zone(some, Policy(zoning=home(a=4, b=4, c=2)), picks=8_000)

    assert plan == Zones(6_250, {B: 1_000, C: 500})
    for name, share in (("a", 0.625), ("b", 0.25), ("c", 0.125)):
        assert abs(seen[name] - 8_000 * share) < 200


def test_all_stay_at_home_where_it_has_its_part() -> None:
    some = members((A, 4, 0), (B, 2, 0), (C, 2, 0))

    assert set(by_zone(some, Policy(zoning=home(a=4, b=4)), picks=200)) == {"a"}


@pytest.mark.parametrize(
    ("groups", "callers"),
    [
        ([(A, 8, 0)], {"a": 1, "b": 1}),  # one locality of endpoints
        ([(A, 4, 0), (B, 4, 0)], {"a": 2}),  # one of callers
        ([(A, 4, 0), (B, 4, 0)], {"b": 1, "c": 1}),  # nobody known at home
        ([(A, 1, 0), (B, 4, 0)], {"a": 1, "b": 1}),  # five healthy ones
    ],
)
def test_zones_are_ignored_where_they_would_mislead(
    groups: list[tuple[Locality, int, int]], callers: dict[str, int]
) -> None:
    some = members(*groups)

    assert zones(some, home(**callers)) is None
    assert set(by_zone(some, Policy(zoning=home(**callers)), picks=100)) == {at.zone for at, _, _ in groups}


def test_without_endpoints_at_home_all_goes_where_there_is_room() -> None:
    some = members((B, 4, 0), (C, 4, 0))

    assert zones(some, home(a=5, b=5)) == Zones(0, {B: 0, C: 5_000})
    assert set(by_zone(some, Policy(zoning=home(a=5, b=5)), picks=100)) == {"c"}


def test_where_rounding_leaves_nobody_any_room_all_serve_alike() -> None:
    some = members((B, 3, 0), (C, 3, 0))

    seen = by_zone(some, Policy(zoning=Zoning(home=A, callers={A: 1, B: 10**6, C: 10**6})), picks=100)

    assert set(seen) == {"b", "c"}


def test_home_may_be_forced_and_counted_by_weight() -> None:
    some = members((A, 2, 0), (B, 5, 0))
    heavy = [each._replace(weight=9 if each.locality == A else 1) for each in some]
    callers = {A: 1, B: 1}

    assert zones(some, Zoning(home=A, callers=callers, force_home_least=2)) == Zones(WHOLE, {})
    assert zones(some, Zoning(home=A, callers=callers, force_home_least=3)) != Zones(WHOLE, {})
    assert zones(heavy, Zoning(home=A, callers=callers, by_weight=True)) == Zones(WHOLE, {})


def test_weights_of_localities_and_zones_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="exclude each other"):
        Policy(localities={A: 1}, zoning=home(a=1))
    with pytest.raises(ValueError, match="a locality's weight is 0 or more, not -1"):
        Policy(localities={A: -1})


def test_as_envoy_a_ring_keeps_the_share_of_a_locality_where_nobody_is_well() -> None:
    policy = Policy(name="ring_hash", localities={A: 1, B: 3}, ring_least=100, hash_health=False)
    some = members((A, 2, 0), (B, 0, 2))

    without, own = (
        sum(map(len, ring_of(some, each)))
        for each in (policy, Policy(name="ring_hash", localities={A: 1, B: 3}, ring_least=100))
    )

    assert without == 26, "an eighth each: thirteen points of a hundred and four"
    assert own == 100


def ring_of(some: list[Member[str]], policy: Policy) -> list[list[str]]:
    """The ring's owners in order."""
    picker = build(some, policy, Memory(), random.Random(1))
    assert isinstance(picker, Ring)
    return [picker._owners]
