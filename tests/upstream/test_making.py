"""When pickers are made, and what may go on beside it."""

from __future__ import annotations

import threading
from collections import Counter
from random import Random
from typing import Any

import pytest
from tests.upstream.kept import Clock, addresses, kept, members, moved, picks, settings

from reachline.core.pick.filling import recorded
from reachline.core.pick.mending import Mending
from reachline.errors import Problem
from reachline.members import Membership, compare
from reachline.upstream.judged import Judged
from reachline.upstream.kept import KeptCluster
from reachline.upstream.making import Making


class Silent:
    """Notes of nothing."""

    def left_out(self, problems: tuple[Problem, ...]) -> None:
        assert not problems


def making(**document: Any) -> Making:
    read = settings(targets=addresses(2), **document)
    notes: Any = Silent()
    return Making(read, Judged(read, seed=1, now_ms=0), notes)


def served(made: Making, *, now_ms: int, most: int = 10) -> int:
    """How many pickers one caller makes at `now_ms` while others move more each time, up to so many times."""
    seen: Counter[str] = Counter()

    def serve() -> None:
        seen["served"] += 1
        if seen["served"] < most:
            made.want(now_ms, may_wait=True)

    made.run(threading.Lock(), Random(1), lambda: now_ms, lambda: None, serve)
    return seen["served"]


def test_whoever_makes_a_picker_is_not_kept_at_it_by_what_moves_on_and_on() -> None:
    made = making()
    made.want(1_000, may_wait=True)

    assert served(made, now_ms=1_000) == 2

    assert made.due_ms(1_000) == 1_000  # the driver's, at once


def test_what_moves_while_a_picker_is_made_waits_out_the_window_that_it_begins() -> None:
    made = making(update_merge_window=1.0)
    made.want(5_000, may_wait=True)

    assert served(made, now_ms=5_000) == 1

    assert made.due_ms(5_000) == 6_000


class Growing:
    """A load that another one joins as it is looked at: a picker is being built in another thread."""

    latency_us = 0.0

    def __init__(self, loads: dict[str, Any]) -> None:
        self.loads = loads

    @property
    def active(self) -> int:
        self.loads[f"new {len(self.loads)}"] = Growing(self.loads)
        return 0


def test_figures_and_averages_stand_a_picker_that_is_built_meanwhile() -> None:
    clock = Clock()
    cluster = kept(clock, targets=addresses(3), policy={"name": "peak_ewma"})
    loads: Any = cluster._judged.memory.loads
    loads["a"] = Growing(loads)

    assert cluster.metrics()["upstream_rq_active"] == 0
    clock.now += 10
    cluster.turn()

    assert len(loads) > 4


@pytest.mark.parametrize(
    ("weights", "sizes", "is_aside"),
    [
        ([1, 1], {}, False),
        ([1, 9_000], {}, False),
        ([1, 15_000], {}, True),
        ([1, 15_000], {"maximum_ring_size": 2_000}, False),
        ([1, 1], {"minimum_ring_size": 15_000}, True),
    ],
)
def test_rings_of_many_points_are_made_aside(weights: list[int], sizes: dict[str, int], is_aside: bool) -> None:
    targets = [{"address": address, "weight": weight} for address, weight in zip(addresses(2), weights, strict=True)]
    read = settings(targets=targets, policy={"name": "ring_hash", **sizes})

    made = KeptCluster(read, clock=Clock(), wall=lambda: 0.0, rng=Random(1))
    made.update(compare(Membership(), read.membership))

    assert made.is_large is is_aside
    assert made.is_current is True  # nobody drives it: whoever uses it makes its pickers


def test_a_ring_leaves_out_whoever_has_no_weight() -> None:
    cluster = kept(targets=addresses(1), policy={"name": "ring_hash"})

    cluster.update(compare(Membership(), Membership(members=(*members("a").members, *members("b", weight=0).members))))

    assert not cluster.is_large
    assert set(picks(cluster)) == {"a:80"}


@pytest.mark.parametrize("policy", ["ring_hash", "maglev"])
def test_hashes_of_endpoints_that_come_and_go_do_not_pile_up_where_nobody_calls(policy: str) -> None:
    cluster = kept(targets=addresses(1), policy={"name": policy, "table_size": 7} if policy == "maglev" else policy)

    for number in range(50):
        moved(cluster, members(*(f"10.1.{number}.{each}" for each in range(2))))
        cluster.turn()

    known = cluster._judged.memory.hashes
    # Hashes, and under maglev what the last table was filled from.
    assert len(known) == (2 if policy == "maglev" else 1)
    assert max(map(len, known.values())) <= 4


def test_after_a_fork_the_child_goes_on_from_the_parents_table() -> None:
    judged = Judged(settings(targets=addresses(3), policy="maglev"), seed=1, now_ms=0)
    judged.memory.tables[0, 3] = table = Mending(["a"], [(0, 1)], [(1, 2, 3)], recorded([(0, 1)], [1.0], 3))

    judged.begin_anew(2, 0)

    assert judged.memory.tables == {(0, 3): table}
