"""Who is carried where once not all can be: exact against a linear programme, in strict order, as much at home as can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from reachline.core.placing import Claim, Plan, place

REGIONS = ("east", "north", "west")


def claim(cluster: str, calls: int, priority: int = 0, *, home: str = "", **rooms: int) -> Claim:
    return Claim(
        cluster=cluster, calls=calls, priority=priority, home=home, rooms=rooms or dict.fromkeys(REGIONS, calls)
    )


def served(plan: Plan, claims: Sequence[Claim]) -> dict[str, int]:
    return {each.cluster: each.calls - plan.shed.get(each.cluster, 0) for each in claims}


class Programme:
    """The same question as linear programmes: one for each priority, then one for what stays at home."""

    def __init__(self, claims: Sequence[Claim], rooms: Mapping[str, int]) -> None:
        self.claims = claims
        self.pairs = [(each, region) for each in claims for region in rooms]
        self.bounds = [(0, each.rooms.get(region, 0)) for each, region in self.pairs]
        self.within = [[float(other is each) for other, _ in self.pairs] for each in claims]
        self.within += [[float(where == region) for _, where in self.pairs] for region in rooms]
        self.most = [float(each.calls) for each in claims] + [float(room) for room in rooms.values()]

    def served(self) -> dict[int, int]:
        """Calls served of each priority, highest first, each fixed before the next."""
        found: dict[int, float] = {}
        fixed: list[list[float]] = []
        for priority in sorted({each.priority for each in self.claims}, reverse=True):
            level = [float(each.priority == priority) for each, _ in self.pairs]
            found[priority] = -self._least([-one for one in level], fixed, list(found.values()))
            fixed.append(level)
        return {priority: round(calls) for priority, calls in found.items()}

    def far(self, served: Mapping[str, int]) -> int:
        """The fewest calls away from home where each cluster is served so many."""
        # For each pair a second variable, the calls beyond those that are at home there.
        count = len(self.pairs)
        cost = [0.0] * count + [1.0] * count
        rows = [[float(other is each) for other, _ in self.pairs] + [0.0] * count for each in self.claims]
        beyond = [
            [float(at == here) for at in range(count)] + [-float(at == here) for at in range(count)]
            for here in range(count)
        ]
        within = [[*row, *[0.0] * count] for row in self.within] + beyond
        most = self.most + [float(near(each, region)) for each, region in self.pairs]
        equal = [float(served[each.cluster]) for each in self.claims]
        done = linprog(cost, within, most, rows, equal, bounds=self.bounds + [(0, None)] * count)
        assert done.success, done.message
        return round(done.fun)

    def _least(self, cost: list[float], rows: list[list[float]], equal: list[float]) -> float:
        done = linprog(cost, self.within, self.most, rows or None, equal or None, bounds=self.bounds)
        assert done.success, done.message
        return float(done.fun)


def by_priority(plan: Plan, claims: Sequence[Claim]) -> dict[int, int]:
    levels = {each.priority for each in claims}
    found = served(plan, claims)
    return {level: sum(found[each.cluster] for each in claims if each.priority == level) for level in levels}


def near(claim: Claim, region: str) -> int:
    """Calls that are at home there."""
    return claim.usual.get(region, 0) if claim.usual else claim.calls if claim.home in ("", region) else 0


def far_of(plan: Plan, claims: Sequence[Claim]) -> int:
    found = {each.cluster: each for each in claims}
    return sum(max(0, one.calls - near(found[one.cluster], one.region)) for one in plan.placed)


def test_three_regions_with_four_priorities_at_sixty_percent_are_placed_as_the_programme_says() -> None:
    rooms = dict.fromkeys(REGIONS, 600)
    claims = [
        claim(f"{region}-{priority}", 250, priority, home=region, east=200, north=200, west=200)
        for region in REGIONS
        for priority in (1, 2, 3, 4)
    ]

    plan = place(claims, rooms)

    best = Programme(claims, rooms)
    assert by_priority(plan, claims) == best.served() == {4: 750, 3: 750, 2: 300, 1: 0}
    assert far_of(plan, claims) == best.far(served(plan, claims))


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Claim], dict[str, int]]:
    rooms = {region: draw(st.integers(0, 60)) for region in REGIONS[: draw(st.integers(1, 3))]}
    claims = [
        Claim(
            cluster=f"c{number}",
            calls=draw(st.integers(0, 50)),
            rooms=draw(st.dictionaries(st.sampled_from(sorted(rooms)), st.integers(0, 40))),
            home=draw(st.sampled_from(["", *rooms])),
            usual=draw(st.dictionaries(st.sampled_from(sorted(rooms)), st.integers(0, 30))),
            priority=draw(st.integers(0, 3)),
        )
        for number in range(draw(st.integers(0, 6)))
    ]
    return claims, rooms


# Each asks up to six linear programmes.
@settings(max_examples=40)
@given(worlds())
def test_any_plan_is_the_optimum_of_the_programme(world: tuple[list[Claim], dict[str, int]]) -> None:
    claims, rooms = world

    plan = place(claims, rooms)

    for region, room in rooms.items():
        assert sum(one.calls for one in plan.placed if one.region == region) <= room
    for each in claims:
        assert all(plan.in_region(each.cluster, region) <= each.rooms.get(region, 0) for region in rooms)
        assert 0 <= served(plan, claims)[each.cluster] <= each.calls
    if claims:
        best = Programme(claims, rooms)
        assert by_priority(plan, claims) == best.served()
        assert far_of(plan, claims) == best.far(served(plan, claims))


@given(worlds())
def test_the_order_of_claims_does_not_matter(world: tuple[list[Claim], dict[str, int]]) -> None:
    claims, rooms = world

    assert place(claims[::-1], rooms) == place(claims, rooms)


def test_a_higher_priority_is_placed_away_from_home_before_a_lower_one_is_served_there() -> None:
    claims = [claim("pay", 100, 9, home="west"), claim("mail", 100, 1, home="east")]

    plan = place(claims, {"east": 120, "west": 0})

    assert plan.in_region("pay", "east") == 100
    assert plan.shed == {"mail": 80}


def test_one_is_moved_aside_to_a_region_it_has_lines_in_for_one_that_has_none_there() -> None:
    claims = [claim("both", 50, 2, home="east", east=50, west=50), claim("one", 50, 1, home="east", east=50)]

    plan = place(claims, {"east": 50, "west": 50})

    assert not plan.shed
    assert (plan.in_region("both", "west"), plan.in_region("one", "east")) == (50, 50)


def test_what_is_at_home_in_several_regions_stays_there_as_far_as_it_can() -> None:
    spread = Claim(
        cluster="spread", calls=90, rooms=dict.fromkeys(REGIONS, 90), usual={"east": 40, "north": 30, "west": 20}
    )

    plan = place([spread], {"east": 90, "north": 90, "west": 5})

    assert not plan.shed
    assert plan.in_region("spread", "west") == 5
    assert sum(max(0, plan.in_region("spread", region) - calls) for region, calls in spread.usual.items()) == 15


def test_within_a_priority_all_are_shed_to_the_same_degree() -> None:
    claims = [claim("large", 300), claim("small", 100), claim("narrow", 100, east=10)]

    plan = place(claims, {"east": 105, "north": 105})

    assert served(plan, claims) == {"large": 150, "small": 50, "narrow": 10}


@pytest.mark.parametrize(
    ("claims", "rooms", "names"),
    [
        ([claim("a", -1)], {"east": 1}, "a"),
        ([claim("a", 1), claim("a", 2)], {"east": 1}, "a"),
        ([claim("a", 1)], {"east": -1}, "east"),
    ],
)
def test_figures_that_cannot_be_are_refused_by_name(claims: list[Claim], rooms: dict[str, int], names: str) -> None:
    with pytest.raises(ValueError, match=names):
        place(claims, rooms)
