"""When pickers are made, and what may go on beside it."""

from __future__ import annotations

import threading
from collections import Counter
from random import Random
from typing import Any

from tests.upstream.kept import Clock, addresses, kept, settings

from reachline.errors import Problem
from reachline.upstream.judged import Judged
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
