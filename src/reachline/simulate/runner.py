"""Scenarios × contenders × seeds, in as many processes as wanted. Each seed's world is run for `oracle` and `none` too: what no one could
have avoided, and what doing nothing costs, are the ends of the scale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from typing import Final, NamedTuple

from reachline.simulate.composite import composite
from reachline.simulate.contender import Maker, Run
from reachline.simulate.fleet import Sums
from reachline.simulate.limits import Row, held
from reachline.simulate.peers import TABLE
from reachline.simulate.ran import Ran
from reachline.simulate.reach.contender import Reachline
from reachline.simulate.scenarios import Scenario
from reachline.simulate.score import figures
from reachline.simulate.still import Nothing, Oracle
from reachline.simulate.timeline import Timeline
from reachline.simulate.world import World
from reachline.store.collecting import uncollected

__all__ = ["CONTENDERS", "Job", "jobs", "perform", "play", "rows_of"]

CONTENDERS: Final = ("reachline", "reachline-literal", *TABLE, "none", "oracle")
"""By the names that people give them."""


class Job(NamedTuple):
    """One scenario and seed for some contenders."""

    scenario: Scenario
    seed: int
    contenders: tuple[str, ...]
    mode: str = "fast"


def jobs(scenarios: Sequence[Scenario], contenders: Sequence[str], *, seeds: int | None, mode: str) -> tuple[Job, ...]:
    """All that is to be run: the file's seeds, or the first so many from 1 on."""
    return tuple(
        Job(scenario, seed, tuple(contenders), mode)
        for scenario in scenarios
        for seed in (scenario.rng_seeds if seeds is None else range(1, seeds + 1))
    )


def play(scenario: Scenario, contender: str, *, seed: int, mode: str = "fast") -> World:
    """One contender's run, over. KeyError for a name that is none."""
    world = World(scenario, _maker(scenario, contender, mode), seed=seed)
    with uncollected():
        world.go()
    return world


def _maker(scenario: Scenario, contender: str, mode: str) -> Maker:
    timeline = Timeline(scenario)

    def ours(run: Run) -> Reachline:
        return Reachline(run, scenario, timeline, mode="literal" if contender == "reachline-literal" else mode)

    def oracle(run: Run) -> Oracle:
        return Oracle(run, timeline)

    made: Mapping[str, Maker] = {
        "reachline": ours,
        "reachline-literal": ours,
        "none": Nothing,
        "oracle": oracle,
        **TABLE,
    }
    return made[contender]


def perform(job: Job) -> list[Row]:
    """The job's runs, a row a contender."""
    ends = {name: play(job.scenario, name, seed=job.seed) for name in ("oracle", "none")}
    best = ends["oracle"].fleet.sums
    worst = figures(_ran(ends["none"], best))
    rows = []
    for name in job.contenders:
        world = ends.get(name) or play(job.scenario, name, seed=job.seed, mode=job.mode)
        found = figures(_ran(world, best))
        found["composite"] = composite(
            found, worst, run=world.observer.end_ms / 1_000, has_truth=bool(job.scenario.truth)
        )
        has_calls = job.scenario.traffic.rps > 0
        limits = held(job.scenario.limits, found, has_calls=has_calls)
        rows.append(Row(job.scenario.id, name, job.seed, found, limits))
    return rows


def _ran(world: World, oracle: Sums) -> Ran:
    told = world.contender.told if isinstance(world.contender, Reachline) else None
    return Ran(world.run, world.observer, oracle, told)


def rows_of(
    wanted: Sequence[Job], *, processes: int, done: Callable[[int, int], None] = lambda _, __: None
) -> Iterator[Row]:
    """Rows as jobs end; `done(jobs that ended, jobs in all)` is called after each."""
    if processes <= 1:
        for count, job in enumerate(wanted, 1):
            yield from perform(job)
            done(count, len(wanted))
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from _spread(pool, wanted, done)


def _spread(pool: Executor, wanted: Sequence[Job], done: Callable[[int, int], None]) -> Iterator[Row]:
    futures: list[Future[list[Row]]] = [pool.submit(perform, job) for job in wanted]
    for count, future in enumerate(as_completed(futures), 1):
        yield from future.result()
        done(count, len(wanted))
