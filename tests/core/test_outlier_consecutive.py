from __future__ import annotations

import pytest
from tests.core.outliers import World, told

from reachline.core.outlier_events import Action, Saw
from reachline.core.outlier_rules import ENVOY, Detector

RULES = ENVOY._replace(max_ejection_percent=100, consecutive_5xx=3, consecutive_gateway_failure=0)
SPLIT = RULES._replace(split_external_local_origin_errors=True, consecutive_local_origin_failure=2)


def test_the_nth_server_error_in_a_row_ejects() -> None:
    world = World(3, RULES)

    assert world.call(0, 500, times=2) == []
    assert told(world.call(0, 599)) == [(0, "l0", "EJECT", "consecutive_5xx")]
    assert world.out == ["l0"]


@pytest.mark.parametrize("code", [200, 302, 404, 499, 600])
def test_any_other_status_begins_the_run_anew(code: int) -> None:
    world = World(3, RULES)

    world.call(0, 500, times=2)
    world.call(0, code)
    world.call(0, 500, times=2)

    assert world.out == []


def test_zero_never_fires() -> None:
    world = World(3, RULES._replace(consecutive_5xx=0))

    assert world.call(0, 500, times=50) == []


def test_gateway_failures_are_502_to_504_and_another_server_error_begins_their_run_anew() -> None:
    rules = RULES._replace(consecutive_5xx=0, consecutive_gateway_failure=3, enforcing_consecutive_gateway_failure=100)
    world = World(3, rules)

    for code in (502, 503, 500, 502, 503):
        assert world.call(0, code) == []

    assert told(world.call(0, 504)) == [(0, "l0", "EJECT", "consecutive_gateway_failure")]


def test_at_the_same_count_the_gateway_detector_ejects_and_the_other_is_not_asked() -> None:
    rules = RULES._replace(consecutive_gateway_failure=3, enforcing_consecutive_gateway_failure=100)
    world = World(3, rules)

    events = world.call(0, 503, times=3)

    assert [each.detector for each in events] == [Detector.CONSECUTIVE_GATEWAY_FAILURE]
    assert (world.count("detected_consecutive_gateway_failure"), world.count("detected_consecutive_5xx")) == (1, 0)


def test_a_gateway_failure_that_is_not_enforced_leaves_the_other_detector_to_eject() -> None:
    world = World(3, RULES._replace(consecutive_gateway_failure=3))

    events = world.call(0, 503, times=3)

    assert [(each.detector, each.enforced) for each in events] == [
        (Detector.CONSECUTIVE_GATEWAY_FAILURE, False),
        (Detector.CONSECUTIVE_5XX, True),
    ]


def test_a_detector_that_fired_counts_anew_so_that_200_errors_with_a_threshold_of_5_are_40_detections() -> None:
    world = World(3, RULES._replace(consecutive_5xx=5, enforcing_consecutive_5xx=0))

    events = world.call(0, 500, times=200)

    assert [each.why for each in events] == ["not_enforced"] * 40
    assert (world.count("detected_consecutive_5xx"), world.count("enforced_total"), world.out) == (40, 0, [])


def test_while_a_line_is_out_its_failures_are_counted_by_nobody() -> None:
    world = World(3, RULES)
    world.call(0, 500, times=3)

    assert world.call(0, 500, times=30) == []
    assert world.count("detected_consecutive_5xx") == 1


def test_a_line_that_returns_begins_all_runs_anew() -> None:
    world = World(3, RULES._replace(consecutive_gateway_failure=4, enforcing_consecutive_gateway_failure=100))
    world.call(0, 503, times=3)

    world.at(30)
    events = world.call(0, 503, times=2)

    assert (world.out, events) == ([], [])


def test_where_origins_are_not_split_everything_is_a_status_and_a_bare_connect_is_none() -> None:
    world = World(3, RULES)

    world.see(0, Saw.UNCONNECTED)
    world.see(0, Saw.CONNECTED)
    world.see(0, Saw.TIMEOUT)
    world.see(0, Saw.CONNECTED)

    assert told(world.see(0, Saw.FAILED)) == [(0, "l0", "EJECT", "consecutive_5xx")]


@pytest.mark.parametrize("saw", [Saw.CONNECTED_FINAL, Saw.ANSWERED])
def test_where_origins_are_not_split_a_final_connect_is_a_success(saw: Saw) -> None:
    world = World(3, RULES)

    world.see(0, Saw.UNCONNECTED, times=2)
    world.see(0, saw)
    world.see(0, Saw.UNCONNECTED, times=2)

    assert world.out == []


@pytest.mark.parametrize(("saw", "is_gateway"), [(Saw.TIMEOUT, True), (Saw.UNCONNECTED, True), (Saw.FAILED, False)])
def test_what_stands_for_a_timeout_or_a_failed_connect_is_a_gateway_failure(saw: Saw, is_gateway: bool) -> None:
    rules = RULES._replace(consecutive_5xx=0, consecutive_gateway_failure=1, enforcing_consecutive_gateway_failure=100)
    world = World(3, rules)

    assert bool(world.see(0, saw)) is is_gateway


def test_an_explicit_status_wins_over_what_was_seen() -> None:
    world = World(3, RULES)

    assert world.see(0, Saw.UNCONNECTED, code=404, times=9) == []


def test_split_local_failures_in_a_row_eject_by_a_detector_of_their_own() -> None:
    world = World(3, SPLIT)

    world.see(0, Saw.TIMEOUT)

    assert told(world.see(0, Saw.UNCONNECTED)) == [(0, "l0", "EJECT", "consecutive_local_origin_failure")]
    assert world.count("enforced_consecutive_local_origin_failure") == 1


@pytest.mark.parametrize("saw", [Saw.CONNECTED, Saw.CONNECTED_FINAL, Saw.ANSWERED])
def test_split_a_connect_or_a_success_of_what_is_no_http_ends_the_local_run(saw: Saw) -> None:
    world = World(3, SPLIT)

    for _ in range(5):
        world.see(0, Saw.TIMEOUT)
        world.see(0, saw)

    assert world.out == []


def test_split_a_local_failure_is_none_of_the_external_ones_and_the_reverse() -> None:
    world = World(3, SPLIT._replace(consecutive_local_origin_failure=50))

    for _ in range(9):
        world.see(0, Saw.TIMEOUT)
        world.call(0, 500)
        if world.out:
            break

    assert told(world.events) == [(0, "l0", "EJECT", "consecutive_5xx")]
    assert world.events[0].action is Action.EJECT


def test_split_an_external_failure_without_a_status_is_a_503() -> None:
    rules = SPLIT._replace(consecutive_5xx=0, consecutive_gateway_failure=3, enforcing_consecutive_gateway_failure=100)
    world = World(3, rules)

    assert told(world.see(0, Saw.FAILED, times=3)) == [(0, "l0", "EJECT", "consecutive_gateway_failure")]


def test_what_is_seen_of_a_line_that_left_changes_nothing() -> None:
    world = World(3, RULES)
    world.outliers.replace({"c/l1": 0}, 0)

    assert world.call(0, 500, times=9) == []
    assert world.outliers.counts == {"ejections_active": 0}
