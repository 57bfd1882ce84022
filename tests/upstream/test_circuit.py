"""How much may be under way at once: thresholds that attempts obey."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from random import Random
from typing import Any

import pytest
from tests.upstream.kept import addresses, kept, moved

from reachline.errors import Overflow, Shed
from reachline.members import Drop, Membership
from reachline.upstream import Attempt
from reachline.upstream.kept import KeptCluster
from reachline.upstream.tries import Plan, SharedBudget, Tries

A, B = addresses(2)


def limited(**threshold: Any) -> KeptCluster:
    return kept(targets=[A, B], circuit_breakers={"thresholds": [threshold]})


def held(cluster: KeptCluster, stack: ExitStack, count: int, *, high: bool = False) -> int:
    """How many of so many calls begun at once are let begin."""
    begun = 0
    for _ in range(count):
        with suppress(Overflow):
            stack.enter_context(cluster.attempt(high=high))
            begun += 1
    return begun


@pytest.mark.parametrize(
    ("threshold", "most"),
    [
        ({"max_requests": 3}, 3),
        ({"max_connections": 1, "max_pending_requests": 1}, 2),
        ({"max_connections": 5, "max_pending_requests": 5, "max_requests": 1}, 1),
        ({"max_requests": 0}, 0),
    ],
)
def test_a_call_beyond_the_threshold_is_refused_and_counted(threshold: dict[str, int], most: int) -> None:
    cluster = limited(**threshold)

    with ExitStack() as stack:
        assert held(cluster, stack, 5) == most
        told = cluster.metrics()
        assert told["upstream_rq_pending_overflow"] + told["upstream_rq_active_overflow"] == 5 - most
        assert told["circuit_breakers.default.rq_open"] == 1
        assert told["upstream_rq_active"] == most

    assert cluster.metrics()["upstream_rq_active"] == 0
    with ExitStack() as stack:
        assert held(cluster, stack, 5) == most


def test_calls_of_high_priority_have_thresholds_of_their_own() -> None:
    thresholds = [{"max_requests": 1}, {"priority": "HIGH", "max_requests": 2}]
    cluster = kept(targets=[A], circuit_breakers={"thresholds": thresholds})

    with ExitStack() as stack:
        assert held(cluster, stack, 3) == 1
        assert held(cluster, stack, 3, high=True) == 2
        told = cluster.metrics()

    assert (told["circuit_breakers.default.rq_open"], told["circuit_breakers.high.rq_open"]) == (1, 1)
    assert told["upstream_rq_active_overflow"] == 3


def test_an_overflow_is_a_call_shed_and_says_how_many_are_under_way() -> None:
    cluster = limited(max_requests=0)

    with pytest.raises(Shed, match="c: this call is refused: 0 are under way here") as refused, cluster.attempt():
        pass

    assert isinstance(refused.value, Overflow)
    assert refused.value.limit == 0


def failing(cluster: KeptCluster, **plan: Any) -> int:
    """How often a call is made that always fails so that it may be made again."""
    made = 0
    for each in cluster.attempts(idempotent=True, **plan):
        with each as call:
            made += 1
            call.status(503)
    return made


def again(tries: Tries) -> float | None:
    """How long a call waits that has failed once."""
    with ended(tries.begin()) as call:
        call.status(503)
    return tries.again(call)


@contextmanager
def ended(call: Attempt) -> Iterator[Attempt]:
    """A call that has begun, ended with the block."""
    yield call
    call.__exit__(None, None, None)


def test_retries_are_no_more_at_once_than_allowed() -> None:
    allowed, forbidden = limited(max_retries=1), limited(max_retries=0)

    assert failing(allowed) == 2  # there is no third endpoint
    assert failing(forbidden) == 1
    assert forbidden.metrics()["upstream_rq_retry_overflow"] == 1
    assert failing(forbidden, high=True) == 2


def test_a_retry_that_waits_holds_its_place() -> None:
    cluster = kept(targets=addresses(6), circuit_breakers={"thresholds": [{"max_retries": 2}]})
    several = [Tries(cluster, Plan(idempotent=True)) for _ in range(6)]

    waits = [again(each) for each in several]

    assert [wait is not None for wait in waits] == [True, True, False, False, False, False]
    told = cluster.metrics()
    assert (told["upstream_rq_retry_overflow"], told["circuit_breakers.default.rq_retry_open"]) == (4, 1)
    for each in several[:2]:
        with ended(each.begin()) as call:
            call.ok()
    assert cluster.metrics()["circuit_breakers.default.rq_retry_open"] == 0


def test_a_retry_that_cannot_be_paid_holds_no_place() -> None:
    cluster, budget = limited(max_retries=1), SharedBudget()
    while budget.spend():
        pass

    assert again(Tries(cluster, Plan(idempotent=True), budget)) is None

    assert cluster.metrics()["circuit_breakers.default.rq_retry_open"] == 0


def test_a_retry_that_is_given_up_leaves_its_place() -> None:
    cluster = limited(max_retries=1)

    for each in cluster.attempts(idempotent=True):
        with each as call:
            call.status(503)
        break
    given_up = cluster.metrics()

    assert given_up["circuit_breakers.default.rq_retry_open"] == 0
    assert failing(cluster) == 2


def test_a_retry_that_finds_no_room_after_its_wait_leaves_its_place() -> None:
    cluster = limited(max_requests=1, max_retries=1)
    tries = Tries(cluster, Plan(idempotent=True))
    assert again(tries) is not None

    with cluster.attempt(), pytest.raises(Overflow):
        tries.begin()

    assert cluster.metrics()["circuit_breakers.default.rq_retry_open"] == 0
    assert cluster.metrics()["circuit_breakers.default.rq_open"] == 0


def test_a_retry_that_goes_elsewhere_is_one_still() -> None:
    cluster = kept(targets=addresses(3), circuit_breakers={"thresholds": [{"max_retries": 1}]})
    tries = Tries(cluster, Plan(idempotent=True))
    assert again(tries) is not None
    with ended(tries.begin()) as call:
        call.fail("agent")

    assert tries.elsewhere(call)
    with ended(tries.begin()):
        assert cluster.metrics()["circuit_breakers.default.rq_retry_open"] == 1

    assert cluster.metrics()["circuit_breakers.default.rq_retry_open"] == 0


def test_a_retry_that_waits_while_its_process_is_forked_is_the_childs() -> None:
    cluster = limited(max_retries=1)
    tries = Tries(cluster, Plan(idempotent=True))
    assert again(tries) is not None
    cluster.forked(Random(2))
    cluster.wake()

    with ended(tries.begin()):
        assert cluster.metrics()["circuit_breakers.default.rq_retry_open"] == 1

    assert cluster.metrics()["circuit_breakers.default.rq_retry_open"] == 0


def test_a_retry_budget_is_a_share_of_the_calls_under_way() -> None:
    budget = {"budget_percent": {"value": 50.0}, "min_retry_concurrency": 0}
    cluster = limited(retry_budget=budget, max_retries=0)
    assert failing(cluster) == 1

    with ExitStack() as stack:
        held(cluster, stack, 2)
        assert failing(cluster) == 2


def test_a_call_that_finds_nobody_or_is_dropped_leaves_its_place() -> None:
    cluster = limited(max_requests=1)
    moved(cluster, Membership())
    with cluster.attempt() as call:
        assert not call
    moved(cluster, Membership(drops=(Drop("all", 1.0),)))
    for _ in range(3):
        with pytest.raises(Shed) as refused, cluster.attempt():
            pass
        assert not isinstance(refused.value, Overflow)

    assert cluster.metrics()["circuit_breakers.default.rq_open"] == 0


def test_a_call_that_finds_nobody_holds_no_place() -> None:
    cluster = limited(max_requests=1)
    moved(cluster, Membership())

    with cluster.attempt() as call, cluster.attempt() as other:
        assert not call
        assert not other


def test_a_call_that_began_before_a_fork_does_not_touch_what_its_parent_counts() -> None:
    cluster = limited(max_requests=1)
    parents = cluster.circuit
    assert parents is not None

    with cluster.attempt():
        cluster.forked(Random(2))

    # Another thread may have held its lock at the fork, and is not here to let it go.
    assert parents.counts()["circuit_breakers.default.rq_open"] == 1


def test_a_child_counts_anew_and_its_parents_calls_leave_nothing_behind() -> None:
    cluster = limited(max_requests=1)
    with cluster.attempt():
        cluster.forked(Random(2))
        cluster.wake()
        with ExitStack() as stack:
            assert held(cluster, stack, 2) == 1

    assert cluster.metrics()["circuit_breakers.default.rq_open"] == 0


def test_without_thresholds_as_many_as_callers_like() -> None:
    cluster = kept(targets=[A])

    with ExitStack() as stack:
        assert held(cluster, stack, 2_000) == 2_000

    assert not [name for name in cluster.metrics() if name.startswith("circuit_breakers")]


def test_an_envoy_cluster_has_envoys_thresholds() -> None:
    socket = {"socket_address": {"address": "10.0.0.1", "port_value": 80}}
    endpoints = [{"lb_endpoints": [{"endpoint": {"address": socket}}]}]
    cluster = kept(load_assignment={"cluster_name": "c", "endpoints": endpoints})

    with ExitStack() as stack:
        assert held(cluster, stack, 1_100) == 1_024
