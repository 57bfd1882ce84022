from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reachline.core.pour import Vessel, Will, is_enough, poured


def loads(vessels: list[Vessel], offered: int) -> list[int]:
    """Calls a second on each line."""
    weights = poured(vessels, 1_000 * offered, 850)
    return [round(offered * weight / sum(weights)) for weight in weights]


def test_without_capacities_or_traffic_nothing_is_moved() -> None:
    assert poured([Vessel(100), Vessel(50)], 9_000_000, 850) == [100, 50]
    assert poured([Vessel(100, 1), Vessel(50, 1)], 0, 850) == [100, 50]


def test_a_degraded_line_keeps_what_the_others_cannot_carry() -> None:
    vessels = [Vessel(54_880, 600, Will.YIELDS), Vessel(100_000, 600), Vessel(100_000, 600)]

    assert loads(vessels, 1_500) == [480, 510, 510]
    assert loads(vessels, 900) == [194, 353, 353], "what fits is not touched"


def test_traffic_above_what_all_may_carry_goes_to_degraded_lines_before_healthy_ones() -> None:
    vessels = [Vessel(40_000, 600, Will.YIELDS), Vessel(100_000, 600), Vessel(100_000, 600)]

    assert loads(vessels, 1_600) == [580, 510, 510]
    assert loads(vessels, 1_700) == [600, 550, 550]


def test_with_no_degraded_line_healthy_ones_carry_all_and_nothing_is_dropped() -> None:
    assert loads([Vessel(100_000, 600), Vessel(100_000, 600), Vessel(0, 600)], 1_100) == [550, 550, 0]
    assert loads([Vessel(100_000, 600), Vessel(100_000, 300)], 1_800) == [1_200, 600]


def test_a_line_whose_share_is_bound_gets_none_of_others_traffic() -> None:
    vessels = [Vessel(5_000, 600, Will.BOUND), Vessel(100_000, 600), Vessel(100_000, 600)]

    assert loads(vessels, 1_100) == [27, 537, 537]


def test_capacity_is_enough_only_where_it_is_known() -> None:
    assert is_enough([Vessel(0, 600), Vessel(0, 400)], 1_000_000)
    assert not is_enough([Vessel(0, 600), Vessel(0, 400)], 1_000_001)
    assert not is_enough([Vessel(0, 600), Vessel(0)], 1)
    assert not is_enough([Vessel(0, 600)], 0)
    assert not is_enough([], 5)


vessels = st.lists(
    st.builds(Vessel, st.integers(0, 300_000), st.none() | st.integers(1, 2_000), st.sampled_from(Will)),
    min_size=1,
    max_size=6,
)


@given(vessels=vessels, offered=st.integers(1, 10_000_000))
def test_nothing_is_lost_and_no_line_overflows_while_another_has_room(vessels: list[Vessel], offered: int) -> None:
    found = poured(vessels, offered, 850)
    total, kept = sum(vessel.weight for vessel in vessels), sum(found)

    assert min(found) >= 0
    assert [bool(weight) for weight in found] == [bool(vessel.weight) for vessel in vessels]
    if not total:
        return
    assert kept <= total + len(vessels)
    overflowing = [
        vessel.capacity is not None and offered * weight // kept > 851 * vessel.capacity + offered // 1_000
        for vessel, weight in zip(vessels, found, strict=True)
    ]
    roomy = [
        vessel.weight > 0
        and vessel.will is not Will.BOUND
        and (vessel.capacity is None or offered * weight // kept < 840 * vessel.capacity - offered // 1_000)
        for vessel, weight in zip(vessels, found, strict=True)
    ]
    if total > 10_000:
        assert not (any(overflowing) and any(roomy))
