"""Times of statuses after the wall clock was set: as people read them now, and the same objects as long as nothing else is said."""

from __future__ import annotations

from reachline.core.observing import Status
from reachline.core.observing.values import SECOND
from reachline.net.calendar import Calendar

KNOWN = (
    Status("a", alive=True, seen=1_000, tried=1_010),
    Status("b", alive=False, tried=1_020),
    Status("c", alive=False),
)


def test_a_clock_that_only_drifts_changes_nothing() -> None:
    calendar = Calendar()

    assert calendar.dated(KNOWN, 0) is KNOWN
    assert calendar.dated(KNOWN, SECOND // 2) is KNOWN
    assert calendar.dated(KNOWN, -SECOND // 2) is KNOWN


def test_a_step_moves_times_that_were_and_no_others() -> None:
    calendar = Calendar()

    found = calendar.dated(KNOWN, 3_600 * SECOND)

    assert [(each.seen, each.tried) for each in found] == [(4_600, 4_610), (0, 4_620), (0, 0)]
    assert [each._replace(seen=0, tried=0) for each in found] == [each._replace(seen=0, tried=0) for each in KNOWN]


def test_a_clock_set_back_beyond_all_times_leaves_them_known() -> None:
    found = Calendar().dated(KNOWN, -5_000 * SECOND)

    assert [(each.seen, each.tried) for each in found] == [(1, 1), (0, 1), (0, 0)]


def test_what_says_the_same_is_the_same_object_until_the_next_step() -> None:
    calendar = Calendar()
    first = calendar.dated(KNOWN, 60 * SECOND)
    others = (KNOWN[0], KNOWN[1]._replace(tried=1_030))

    second = calendar.dated(others, 60 * SECOND + SECOND // 2)
    third = calendar.dated(others, 120 * SECOND)

    assert calendar.dated(others, 120 * SECOND) is third
    assert second[0] is first[0]
    assert second[1].tried == 1_090
    assert third[0].tried == 1_130


def test_a_clock_that_is_set_back_to_what_it_was_shows_what_was_told() -> None:
    calendar = Calendar()
    calendar.dated(KNOWN, 60 * SECOND)

    assert calendar.dated(KNOWN, 0) is KNOWN
