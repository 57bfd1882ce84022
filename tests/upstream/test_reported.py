"""Endpoints that weigh by the load they report."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.upstream.kept import Clock, addresses, kept, picks, settings

from reachline.errors import ConfigError
from reachline.upstream.kept import KeptCluster

A, B, C = addresses(3)
LOADS = {A: 0.1, B: 0.4, C: 0.4}


def by_load(clock: Clock, **policy: Any) -> KeptCluster:
    named = {"name": "client_side_weighted_round_robin", "blackout_period": 10, **policy}
    return kept(clock, targets=[A, B, C], policy=named)


def calls(cluster: KeptCluster, count: int, loads: dict[str, float] = LOADS) -> Counter[str]:
    """So many, each answered with its endpoint's report; where they went."""
    seen: Counter[str] = Counter()
    for _ in range(count):
        with cluster.attempt() as call:
            assert call.pick is not None
            seen[call.pick.target] += 1
            text = f"TEXT rps_fractional=100,application_utilization={loads[call.pick.target]}"
            call.load({"endpoint-load-metrics": text}.get)
    return seen


def test_endpoints_weigh_alike_until_weights_are_known_for_a_while() -> None:
    clock = Clock()
    cluster = by_load(clock)

    assert calls(cluster, 30) == {A: 10, B: 10, C: 10}
    for _ in range(9):
        clock.now += 1.0
        cluster.turn()
        assert calls(cluster, 30) == {A: 10, B: 10, C: 10}
    clock.now += 1.0
    cluster.turn()

    assert calls(cluster, 60) == {A: 40, B: 10, C: 10}


def test_weights_move_once_a_period_and_follow_the_newest_report() -> None:
    clock = Clock()
    cluster = by_load(clock, blackout_period=0)
    assert cluster.deadline() is None
    calls(cluster, 3)
    assert cluster.deadline() == clock.now + 1.0
    clock.now += 1.0
    cluster.turn()
    assert calls(cluster, 60, {A: 0.4, B: 0.1, C: 0.4}) == {A: 40, B: 10, C: 10}

    clock.now += 1.0
    cluster.turn()

    assert picks(cluster, 60) == {A: 10, B: 40, C: 10}


def test_a_weight_that_is_too_old_counts_no_more() -> None:
    clock = Clock()
    cluster = by_load(clock, blackout_period=0, weight_expiration_period=5)
    calls(cluster, 3)
    clock.now += 1.0
    cluster.turn()
    assert picks(cluster, 60) == {A: 40, B: 10, C: 10}

    clock.now += 5.0
    cluster.turn()

    assert picks(cluster, 60) == {A: 20, B: 20, C: 20}


def test_an_answer_of_any_library_is_heeded_with_its_report() -> None:
    class Answer:
        def __init__(self, headers: dict[str, str]) -> None:
            self.status_code, self.headers = 200, headers

    clock = Clock()
    cluster = by_load(clock, blackout_period=0)
    for _ in range(3):
        cluster.call(
            lambda call: Answer(
                {"endpoint-load-metrics": f"TEXT rps_fractional=100,cpu_utilization={LOADS[call.pick.target]}"}  # type: ignore[union-attr]
            )
        )
    clock.now += 1.0
    cluster.turn()

    assert picks(cluster, 60) == {A: 40, B: 10, C: 10}


def test_reports_that_say_nothing_or_garbage_change_nothing() -> None:
    clock = Clock()
    cluster = by_load(clock, blackout_period=0)

    for said in ("TEXT eps=nan", "garbage", "TEXT rps_fractional=inf,cpu_utilization=0.1"):
        with cluster.attempt() as call:
            call.load({"endpoint-load-metrics": said}.get)

    assert cluster.deadline() is None


def test_where_nobody_weighs_by_reports_none_is_looked_for() -> None:
    cluster = kept(targets=[A])

    def never(name: str) -> str:
        raise AssertionError(name)

    with cluster.attempt() as call:
        call.load(never)


def test_a_child_forgets_what_its_parents_calls_were_told() -> None:
    from random import Random

    clock = Clock()
    cluster = by_load(clock, blackout_period=0)
    calls(cluster, 3)

    cluster.forked(Random(2))
    cluster.wake()

    assert cluster.deadline() is None


def test_an_envoy_cluster_may_weigh_so_with_envoys_defaults() -> None:
    config: dict[str, Any] = {
        "@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3"
        ".ClientSideWeightedRoundRobin",
        "weight_update_period": "0.01s",
        "metric_names_for_computing_utilization": ["named_metrics.queue"],
    }
    policy = {"policies": [{"typed_extension_config": {"name": "x", "typed_config": config}}]}
    socket = {"socket_address": {"address": "10.0.0.1", "port_value": 80}}
    endpoints = [{"lb_endpoints": [{"endpoint": {"address": socket}}]}]

    found = settings(load_assignment={"cluster_name": "c", "endpoints": endpoints}, load_balancing_policy=policy).policy

    assert found.name == "client_side_weighted_round_robin"
    assert found.weighing is not None
    assert (found.weighing.blackout_ms, found.weighing.expiry_ms, found.weighing.update_ms) == (10_000, 180_000, 100)
    assert (found.weighing.penalty, found.weighing.named) == (0.0, ("named_metrics.queue",))


def test_reports_apart_from_answers_are_refused_by_name() -> None:
    config = {
        "@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3"
        ".ClientSideWeightedRoundRobin",
        "enable_oob_load_report": True,
    }
    policy = {"policies": [{"typed_extension_config": {"name": "x", "typed_config": config}}]}

    with pytest.raises(ConfigError, match="enable_oob_load_report: is not supported here"):
        settings(load_assignment={"cluster_name": "c"}, load_balancing_policy=policy)
