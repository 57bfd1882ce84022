from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.core.rules import FAULT, FaultRules, with_tables
from reachline.core.tiers import TABLE, Share, full_milli, spread
from reachline.model import Gate, Health, Role

FAULTS = with_tables(FaultRules(), decay=0.15, half_life_ms=30_000)
TRAFFIC_PRIMARY = frozenset({Role.TRAFFIC, Role.PRIMARY})
TRAFFIC_BACKUP = frozenset({Role.TRAFFIC, Role.BACKUP})
RESERVE = frozenset({Role.RESERVE})


def well(roles: frozenset[Role] = frozenset(), base: int = 100) -> Share:
    return Share(base, roles, Health.HEALTHY, Gate.CLOSED, 0, 1_000)


def is_open(line: Share) -> Share:
    return line._replace(health=Health.UNHEALTHY, gate=Gate.OPEN, step_milli=0)


def degraded(line: Share, faults: int) -> Share:
    return line._replace(health=Health.DEGRADED, faults=faults * FAULT)


def percent(lines: list[Share], *policy: str) -> list[float]:
    raw = spread(lines, policy, full_milli(lines, policy), FAULTS)
    return [round(100 * one / (sum(raw) or 1), 1) for one in raw]


def test_weighted_keeps_the_users_own_points() -> None:
    lines = [well(base=100), degraded(well(base=100), 1), is_open(well(base=30))]

    assert spread(lines, ("weighted",), full_milli(lines, ("weighted",)), FAULTS) == [100_000, 86_071, 0]


def test_each_primary_keeps_to_its_own_share_and_concedes_the_rest() -> None:
    primary, backup = well(frozenset({Role.PRIMARY})), well(frozenset({Role.BACKUP}))

    assert percent([primary, primary, backup], "primary_backup") == [47.5, 47.5, 5.0]
    assert percent([is_open(primary), primary, backup], "primary_backup") == [0.0, 47.5, 52.5]


def test_backups_share_by_weight_and_leave_their_part_to_each_other() -> None:
    primary, backup = well(frozenset({Role.PRIMARY})), well(frozenset({Role.BACKUP}))

    assert percent([is_open(primary), backup, backup], "primary_backup") == [0.0, 50.0, 50.0]
    assert percent([is_open(primary), is_open(backup), backup], "primary_backup") == [0.0, 0.0, 100.0]


def test_a_primary_takes_all_when_its_backup_is_open() -> None:
    primary, backup = well(frozenset({Role.PRIMARY})), well(frozenset({Role.BACKUP}))

    assert percent([primary, is_open(backup)], "primary_backup") == [100.0, 0.0]
    assert percent([degraded(primary, 4), is_open(backup)], "primary_backup") == [100.0, 0.0]


# groups first, inside a group primary and backup: hA counts what the group as a whole can still spread
STACKED = ("ab_groups", "primary_backup")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param({}, [94.0, 5.0, 1.0], id="healthy: 95/5 of 99"),
        pytest.param(
            {0: is_open}, [0.0, 99.0, 1.0], id="the group's own backup takes over, the reserve stays a sentinel"
        ),
        pytest.param({0: is_open, 1: is_open}, [0.0, 0.0, 100.0], id="a dead group hands everything to the reserve"),
        pytest.param({2: is_open}, [95.0, 5.0, 0.0], id="a dead reserve gets nothing"),
        pytest.param(
            {0: lambda line: degraded(line, 1)}, [49.5, 49.5, 1.0], id="degraded primary: level inside the group"
        ),
        pytest.param(
            # A spreads 31.9 + 31.9 of 100 at four and three faults: hA 0.6376, B takes 1 - 1.4 * hA = 10.7 %
            {0: lambda line: degraded(line, 4), 1: lambda line: degraded(line, 3)},
            [44.6, 44.6, 10.7],
            id="both degraded: the reserve helps",
        ),
    ],
)
def test_stacked_policies_choose_the_group_first(change: dict[int, object], expected: list[float]) -> None:
    lines = [well(TRAFFIC_PRIMARY), well(TRAFFIC_BACKUP), well(RESERVE)]
    for place, make in change.items():
        lines[place] = make(lines[place])  # type: ignore[operator]

    assert percent(lines, *STACKED) == expected


def test_groups_without_an_inner_policy_share_by_weight() -> None:
    traffic = frozenset({Role.TRAFFIC})

    assert percent([well(traffic), is_open(well(traffic)), well(RESERVE)], "ab_groups") == [70.0, 0.0, 30.0]


some_lines = st.lists(
    st.builds(
        Share,
        base=st.integers(1, 1_000),
        roles=st.frozensets(st.sampled_from(Role), max_size=2),
        health=st.sampled_from([Health.UNKNOWN, Health.HEALTHY, Health.DEGRADED, Health.UNHEALTHY]),
        gate=st.just(Gate.CLOSED),
        faults=st.integers(0, 20 * FAULT),
        step_milli=st.just(1_000),
    )
    | st.builds(
        Share,
        base=st.integers(1, 1_000),
        roles=st.frozensets(st.sampled_from(Role), max_size=2),
        health=st.just(Health.UNHEALTHY),
        gate=st.just(Gate.RAMP),
        faults=st.integers(0, 20 * FAULT),
        step_milli=st.integers(1, 999),
    ),
    min_size=1,
    max_size=8,
)


@given(lines=some_lines, policy=st.sampled_from([(name,) for name in TABLE] + [STACKED, ("ab_groups", "weighted")]))
def test_weights_are_never_negative_never_above_the_total_and_never_all_zero(
    lines: list[Share], policy: tuple[str, ...]
) -> None:
    total = full_milli(lines, policy)

    raw = spread(lines, policy, total, FAULTS)

    assert all(one >= 0 for one in raw)
    assert sum(raw) <= total + len(lines)
    assert sum(raw) > 0
