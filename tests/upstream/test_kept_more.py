"""A kept cluster fed by hand: rules that lie apart from the way of most calls."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest
from tests.upstream.kept import Clock, addresses, call, keeping, kept, members, moved, picks
from tests.upstream.test_kept import A, B, C, checked, chi_square
from tests.upstream.virtual import run

from reachline.core.outlier_events import Saw
from reachline.errors import Shed
from reachline.members import Address, CheckAt, Drop, Member, Membership
from reachline.model import Health
from reachline.upstream.outcome import Column

SURELY = {"consecutive_5xx": 1}


def test_what_discovery_calls_degraded_is_used_once_the_others_do_not_carry_all() -> None:
    cluster = kept(targets=[A, {"address": B, "health_status": "DEGRADED"}], policy="random")

    # Half is healthy: 70 %; the degraded one gets the rest.
    assert chi_square(picks(cluster, 2_000), {A: 70, B: 30}) < 10.83
    assert cluster.stats().degraded == 1


def test_overprovisioning_is_what_the_endpoints_say() -> None:
    policy = {"name": "random", "overprovisioning_factor": 100}
    targets = [A, {"address": B, "health_status": "UNHEALTHY"}, {"address": C, "priority": 1}]

    assert chi_square(picks(kept(targets=targets, policy=policy), 2_000), {A: 50, C: 50}) < 10.83


def test_health_by_weight_is_what_the_endpoints_say() -> None:
    policy = {"name": "random", "overprovisioning_factor": 100, "weighted_priority_health": True}
    targets = [
        {"address": A, "weight": 3},
        {"address": B, "weight": 1, "health_status": "UNHEALTHY"},
        {"address": C, "priority": 1},
    ]

    assert chi_square(picks(kept(targets=targets, policy=policy), 2_000), {A: 75, C: 25}) < 10.83


def test_one_that_returns_from_an_ejection_starts_slowly() -> None:
    clock = Clock()
    slow = {"name": "weighted_random", "slow_start_config": {"slow_start_window": 20}}
    cluster = kept(clock, targets=[A, B, C], policy=slow, outliers=SURELY)
    clock.now += 25
    cluster.turn()
    call(cluster, A, 500)
    clock.now += 30
    cluster.turn()

    assert chi_square(picks(cluster, 2_000), {A: 1, B: 10, C: 10}) < 13.82


def test_what_is_hashed_may_be_named_by_metadata_or_be_the_hostname() -> None:
    plain = kept(targets=[A, B], policy="maglev")
    named = kept(
        targets=[{"address": A, "metadata": {"hash_key": B}}, {"address": B, "metadata": {"hash_key": A}}],
        policy="maglev",
    )
    hosts = [{"address": A, "hostname": B}, {"address": B, "hostname": A}]
    by_name = kept(targets=hosts, policy={"name": "maglev", "use_hostname_for_hashing": True})
    shared = [{"address": each, "hostname": "one.test"} for each in (A, B)]
    by_address = kept(targets=shared, policy={"name": "maglev", "use_hostname_for_hashing": True})

    def ways(cluster: object) -> list[str]:
        return [pick.target for key in range(200) if (pick := cluster.pick(str(key)))]  # type: ignore[attr-defined]

    swapped = [B if each == A else A for each in ways(plain)]
    assert ways(named) == ways(by_name) == swapped
    assert ways(by_address) == ways(plain)


def test_slow_endpoints_are_ejected_by_how_long_their_successes_take() -> None:
    clock = Clock()
    rules = {"latency": True, "latency_request_volume": 10, "consecutive_5xx": 0}
    cluster = kept(clock, targets=addresses(5), outliers=rules)
    for row in cluster.rows():
        for _ in range(20):
            cluster.record(row.seat.item, Column.OK, 0.5 if row.key == A else 0.01)
    clock.now += 10

    cluster.turn()

    assert cluster.open_lines() == (f"c/{A}",)


def test_what_is_not_enforced_ejects_nobody() -> None:
    cluster = kept(targets=[A, B], outliers=SURELY | {"enforcing_consecutive_5xx": 0})

    call(cluster, A, 500)

    assert A in picks(cluster)
    assert cluster.metrics()["outlier_detection.ejections_detected_consecutive_5xx"] == 1


def test_with_split_origins_an_answer_ends_a_run_of_failed_connects() -> None:
    rules = {"split_external_local_origin_errors": True, "consecutive_local_origin_failure": 2}
    cluster = kept(targets=[A, B], outliers=rules)
    pick = next(row.seat.item for row in cluster.rows() if row.key == A)

    for code in (200, 503):
        cluster.record(pick, Column.FAILED)
        cluster.record(pick, Column.OK if code == 200 else Column.ERRORS, code=code)
    assert not cluster.open_lines()
    cluster.record(pick, Column.FAILED)
    cluster.record(pick, Column.FAILED)

    assert cluster.open_lines() == (f"c/{A}",)


def test_transports_may_say_what_they_saw() -> None:
    rules = {"consecutive_5xx": 0, "consecutive_gateway_failure": 1, "enforcing_consecutive_gateway_failure": 100}
    cluster = kept(targets=[A, B], outliers=rules)
    pick = next(row.seat.item for row in cluster.rows() if row.key == A)

    cluster.saw(pick, Saw.FAILED, code=500)
    assert not cluster.open_lines()
    cluster.saw(pick, Saw.FAILED, code=503)

    assert cluster.open_lines() == (f"c/{A}",)


def test_averages_of_endpoints_that_nobody_calls_fade_with_time() -> None:
    clock = Clock()
    cluster = kept(clock, targets=[A, B], policy="peak_ewma")
    while cluster.explain(A)[0].latency is None:
        with cluster.attempt() as attempt:
            if attempt.line == f"c/{A}":
                attempt.status(500)
    assert A not in picks(cluster)

    for _ in range(200):
        clock.now += 1
        cluster.turn()

    assert (cluster.explain(A)[0].latency or 0.0) < 0.001


def test_endpoints_that_left_are_forgotten_once_their_calls_are_over() -> None:
    cluster = kept(targets=[A])
    for number in range(2, 50):
        with cluster.attempt():
            moved(cluster, members(f"10.0.0.{number}"))

    assert len(cluster._judged.memory.loads) <= 2


def test_one_that_comes_again_while_it_stays_is_discoverys_again() -> None:
    async def main() -> None:
        check = {"http_health_check": {"path": "/"}, "timeout": "1s", "interval": "600s"}
        check |= {"unhealthy_threshold": 1, "healthy_threshold": 1}  # type: ignore[dict-item]
        socket = {"socket_address": {"address": "10.0.0.1", "port_value": 80}}
        endpoints = [{"lb_endpoints": [{"endpoint": {"address": socket}}]}]
        assignment = {"cluster_name": "c", "endpoints": endpoints}
        async with keeping(load_assignment=assignment, health_checks=[check]) as (cluster, _):
            await asyncio.sleep(1.0)
            (row,) = cluster.rows()
            moved(cluster, members("10.0.0.2"))
            assert row.is_leaving
            moved(cluster, Membership(members=(row.member,)))
            assert not row.is_leaving

    run(main())


def test_an_endpoint_may_be_left_unchecked() -> None:
    async def main() -> None:
        async with keeping(targets=[], checks={"http": {"path": "/"}}) as (cluster, _):
            await asyncio.sleep(0.1)
            off = Member(address=Address("10.0.0.1", 80), check=CheckAt(is_off=True))
            moved(cluster, Membership(members=(off,)))
            assert cluster.explain(A)[0].checked is None
            assert cluster.explain(A)[0].health is Health.HEALTHY

    run(main())


def test_counters_begin_anew_and_waiting_events_are_the_parents_after_a_fork() -> None:
    told: list[Mapping[str, object]] = []
    cluster = kept(targets=[A, B], checks={"http": {"path": "/"}}, outliers=SURELY)
    cluster.events._hear = told.append  # type: ignore[misc]
    with cluster.attempt():
        assert cluster.metrics()["lb_healthy_panic"] == 1
    call(cluster, A, 500)

    cluster.forked(Random(2))
    cluster.events.flush()

    assert cluster.metrics()["lb_healthy_panic"] == 0
    assert not told


def test_events_of_the_last_moment_are_told_at_the_end() -> None:
    told: list[Mapping[str, object]] = []

    async def main() -> None:
        async with keeping(told=told, targets=[A, B], outliers=SURELY) as (cluster, _):
            await asyncio.sleep(0.5)
            call(cluster, A, 500)
            assert not told

    run(main())

    assert [each["action"] for each in told] == ["EJECT"]


def test_a_check_that_fails_while_it_is_out_leaves_the_ejection_alone() -> None:
    cluster = kept(targets=[A, B], checks={"http": {"path": "/"}}, outliers=SURELY)
    checked(cluster, A, failed=False)
    checked(cluster, B, failed=False)
    call(cluster, A, 500)

    checked(cluster, A, failed=True)

    assert cluster.open_lines() == (f"c/{A}",)
    assert Counter(picks(cluster))[A] == 0


def test_a_call_that_names_metadata_goes_to_its_subset_and_is_dropped_like_any_other() -> None:
    endpoints = [
        {
            "endpoint": {"address": {"socket_address": {"address": f"10.0.0.{number}", "port_value": 80}}},
            "metadata": {"filter_metadata": {"envoy.lb": {"stage": stage}}},
        }
        for number, stage in enumerate(("canary", "stable"), 1)
    ]
    cluster = kept(
        load_assignment={"cluster_name": "c", "endpoints": [{"lb_endpoints": endpoints}]},
        lb_subset_config={"fallback_policy": "ANY_ENDPOINT", "subset_selectors": [{"keys": ["stage"]}]},
    )
    canary = [cluster.pick(subset={"stage": "canary"}) for _ in range(20)]
    assert {each and each.target for each in canary} == {A}
    membership = cluster.settings.membership

    moved(cluster, replace(membership, drops=(Drop("all", 1.0),)))

    with pytest.raises(Shed):
        cluster.pick(subset={"stage": "canary"})
    moved(cluster, membership)
    stable = cluster.pick(subset={"stage": "stable"})
    assert stable is not None
    assert stable.target == B


def test_a_picker_that_takes_long_to_make_is_left_to_the_driver() -> None:
    cluster = kept(targets=[A, B, C], policy="maglev", outliers=SURELY)

    call(cluster, A, 500)

    assert picks(cluster)[A]
    assert cluster.deadline() == 1_000.0
    cluster.turn()
    assert not picks(cluster)[A]


def test_a_call_is_made_again_elsewhere_also_while_no_driver_runs() -> None:
    cluster = kept(targets=[A, B])
    cluster.sleep()

    found = cluster.pick()

    assert found is not None
    other = cluster.another((found,))
    assert other is not None
    assert {found.target, other.target} == {A, B}


def test_changes_of_health_wait_for_one_another_as_long_as_the_window_says() -> None:
    clock = Clock()
    rules = {**SURELY, "max_ejection_percent": 100}
    cluster = kept(
        clock,
        targets=[A, B, C],
        outliers=rules,
        update_merge_window=1.0,
        policy={"name": "random", "healthy_panic_threshold": 0},
    )
    clock.now += 0.5
    call(cluster, A, 500)
    assert picks(cluster)[A]  # the endpoints came half a second ago: this waits for what else may move
    assert cluster.deadline() == 1_001.0
    call(cluster, B, 500)

    clock.now += 0.5
    cluster.turn()

    assert set(picks(cluster)) == {C}
    moved(cluster, members("10.0.0.1", "10.0.0.4"))
    assert set(picks(cluster)) == {"10.0.0.4:80"}  # what discovery says is obeyed at once


def test_a_change_long_after_the_last_one_does_not_wait() -> None:
    clock = Clock()
    cluster = kept(clock, targets=[A, B, C], outliers=SURELY, update_merge_window=1.0)
    clock.now += 1.0

    call(cluster, A, 500)

    assert not picks(cluster)[A]


def test_what_waits_is_told_as_it_is() -> None:
    clock = Clock()
    cluster = kept(clock, targets=[A, B, C], outliers=SURELY, update_merge_window=1.0)

    call(cluster, A, 500)

    assert cluster.open_lines() == (f"c/{A}",)
    assert cluster.metrics()["membership_healthy"] == 2
