from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reachline.core.pick.priorities import Census, Loads, loads


def ranks(*healths: tuple[int, int, int]) -> list[Census]:
    """By priority: healthy, degraded, all."""
    return [Census(total, healthy, degraded) for healthy, degraded, total in healths]


@pytest.mark.parametrize(
    ("healths", "healthy", "degraded"),
    [
        # Envoy's table for two priorities: 1.4 x 72 % is 100 % and a bit, 71 % of a hundred is 99 %.
        ([(100, 0, 100), (100, 0, 100)], (100, 0), (0, 0)),
        ([(72, 0, 100), (100, 0, 100)], (100, 0), (0, 0)),
        ([(71, 0, 100), (100, 0, 100)], (99, 1), (0, 0)),
        ([(50, 0, 100), (100, 0, 100)], (70, 30), (0, 0)),
        ([(25, 0, 100), (100, 0, 100)], (35, 65), (0, 0)),
        ([(25, 0, 100), (25, 0, 100)], (50, 50), (0, 0)),
        ([(0, 0, 100), (100, 0, 100)], (0, 100), (0, 0)),
        # Three priorities.
        ([(25, 0, 100), (25, 0, 100), (100, 0, 100)], (35, 35, 30), (0, 0, 0)),
        ([(25, 0, 100), (25, 0, 100), (25, 0, 100)], (35, 35, 30), (0, 0, 0)),
        ([(10, 0, 100), (10, 0, 100), (10, 0, 100)], (34, 33, 33), (0, 0, 0)),
        ([(0, 0, 100), (10, 0, 100), (10, 0, 100), (10, 0, 100)], (0, 34, 33, 33), (0, 0, 0, 0)),
        ([(0, 0, 9), (0, 10, 100), (0, 10, 100), (0, 10, 100)], (0, 0, 0, 0), (0, 34, 33, 33)),
        # Degraded ones carry what healthy ones leave.
        ([(71, 29, 100)], (99,), (1,)),
        ([(1, 1, 3)], (50,), (50,)),
        ([(0, 100, 100)], (0,), (100,)),
        ([(50, 50, 100), (0, 100, 100)], (70, 0), (30, 0)),
        ([(5, 5, 100), (5, 5, 100)], (25, 25), (25, 25)),
    ],
)
def test_loads_are_those_of_envoys_documentation(
    healths: list[tuple[int, int, int]], healthy: tuple[int, ...], degraded: tuple[int, ...]
) -> None:
    found = loads(ranks(*healths), panic=0)

    assert (found.healthy, found.degraded) == (healthy, degraded)


def test_what_rounding_leaves_goes_to_the_first_that_carries_anything() -> None:
    # Healthy for 10, 20, 10 percent, degraded for 20, 10, 0: Envoy's own example.
    some = [Census(carried=each) for each in ((10, 20, 100), (20, 10, 100), (10, 0, 100))]

    assert loads(some, overprovision=100, panic=0) == Loads((16, 28, 14), (28, 14, 0), (False,) * 3)


@pytest.mark.parametrize(
    ("healths", "panic", "expected"),
    [
        ([(1, 0, 2)], 50, (False,)),  # half is not under half
        ([(1, 0, 3)], 50, (True,)),
        ([(1, 0, 3)], 33, (False,)),
        ([(1, 0, 3)], 0, (False,)),
        ([(1, 1, 3)], 50, (False,)),  # degraded ones count as usable
        ([(1, 0, 3), (3, 0, 3)], 50, (False, False)),  # others carry all: nobody panics
        ([(1, 0, 3), (1, 0, 3)], 50, (True, True)),
        ([(1, 0, 3), (1, 0, 2)], 50, (False, False)),  # together they carry all
        ([(1, 0, 5), (2, 0, 4)], 50, (True, False)),
    ],
)
def test_a_priority_panics_under_the_threshold_while_all_together_do_not_carry_the_load(
    healths: list[tuple[int, int, int]], panic: int, expected: tuple[bool, ...]
) -> None:
    assert loads(ranks(*healths), panic=panic).panic == expected


def test_where_all_panic_load_follows_the_number_of_endpoints() -> None:
    found = loads(ranks((0, 0, 3), (0, 1, 4)))

    assert found == Loads((43, 57), (0, 0), (True, True))


def test_excluded_ones_do_not_count_as_unhealthy() -> None:
    assert loads([Census(10, 5, 0, 5), Census(1, 1)]).healthy == (100, 0)


def test_health_may_be_weighed() -> None:
    light = Census(2, 1, 0, carried=(1, 0, 100))

    assert loads([light, Census(1, 1)]).healthy == (1, 99)


@pytest.mark.parametrize(("priorities", "healthy"), [([], ()), ([Census()], (100,)), ([Census(), Census()], (100, 0))])
def test_nobody_at_all_is_the_first_priority(priorities: list[Census], healthy: tuple[int, ...]) -> None:
    assert loads(priorities).healthy == healthy
    assert loads(priorities, panic=0).healthy == healthy


def test_nobody_well_without_panic_is_the_first_priority_and_no_panic() -> None:
    assert loads(ranks((0, 0, 3), (0, 0, 3)), panic=0) == Loads((100, 0), (0, 0), (False, False))


@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(0, 20), st.integers(0, 5)), min_size=1, max_size=5
    ),
    st.integers(0, 100),
    st.integers(1, 300),
)
@settings(max_examples=60)
def test_loads_are_a_hundred_together_and_nobody_without_endpoints_has_any(
    counts: list[tuple[int, int, int, int]], panic: int, overprovision: int
) -> None:
    some = [Census(healthy + degraded + down + out, healthy, degraded, out) for healthy, degraded, down, out in counts]

    found = loads(some, overprovision=overprovision, panic=panic)

    assert sum(found.healthy) + sum(found.degraded) == 100
    if not all(found.panic) and any(each.healthy or each.degraded for each in some) and overprovision >= 100:
        for each, healthy, degraded in zip(some, found.healthy, found.degraded, strict=True):
            assert each.healthy or not healthy
            assert each.degraded or not degraded
