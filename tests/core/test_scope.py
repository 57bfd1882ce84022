"""Whose fault it is: the line's, the service's on all lines, or one caller's (hole 47)."""

from __future__ import annotations

import pytest

from reachline.core.scope import Cause, Key, Seen, causes, is_apart, is_kept

Z_MILLI = 3_291


def seen(calls: int, *, failed: int = 0, errors: int = 0, slow: int = 0) -> Seen:
    return Seen(calls, failed=failed, errors=errors, timed=calls - failed - errors, slow=slow)


def blamed(rows: dict[Key, Seen], **services: Seen) -> tuple[Cause, ...]:
    return causes(rows, services, Z_MILLI)


@pytest.mark.parametrize(
    ("mine", "other", "expected"),
    [
        ((30, 100), (1, 200), True),
        ((30, 100), (60, 200), False),
        ((1, 13), (0, 26), False),
        ((0, 100), (50, 100), False),
        ((100, 100), (0, 100), True),
        ((100, 100), (100, 100), False),
    ],
)
def test_a_share_is_apart_where_chance_does_not_make_it(
    mine: tuple[int, int], other: tuple[int, int], expected: bool
) -> None:
    assert is_apart(mine, other, Z_MILLI) is expected


def test_a_service_as_bad_on_the_other_lines_is_at_fault_itself() -> None:
    rows = {("c1", "pay"): seen(50, errors=15), ("c2", "pay"): seen(50, errors=14)}

    assert blamed(rows, pay=seen(300, errors=90)) == (Cause("service", "pay", "failed"),)


def test_a_service_that_is_well_on_the_other_lines_is_not() -> None:
    rows = {("c1", "pay"): seen(50, errors=15), ("c2", "pay"): seen(50, errors=14)}

    assert blamed(rows, pay=seen(300, errors=30)) == ()


def test_a_service_on_one_line_only_proves_nothing() -> None:
    rows = {("c1", "pay"): seen(50, errors=15), ("c2", "pay"): seen(50, errors=14)}

    assert blamed(rows, pay=seen(100, errors=29)) == ()


def test_one_caller_without_whom_the_line_is_well_is_at_fault() -> None:
    rows = {("c1", "pay"): seen(50, failed=40), ("c2", "pay"): seen(50), ("c3", "pay"): seen(50)}

    assert blamed(rows, pay=seen(450, failed=40)) == (Cause("client", "c1", "failed"),)


def test_two_callers_that_fail_are_the_line() -> None:
    rows = {("c1", "pay"): seen(50, failed=40), ("c2", "pay"): seen(50, failed=40), ("c3", "pay"): seen(50)}

    assert blamed(rows, pay=seen(450, failed=80)) == ()


def test_slowness_everywhere_excuses_no_failures() -> None:
    rows = {("c1", "pay"): seen(50, failed=20, slow=30), ("c2", "pay"): seen(50, failed=20, slow=30)}
    found = blamed(rows, pay=seen(300, failed=40, slow=240))

    assert found == (Cause("service", "pay", "slow"),)
    assert is_kept(("c1", "pay"), "failed", found)
    assert not is_kept(("c1", "pay"), "slow", found)
    assert is_kept(("c1", "other"), "slow", found)
