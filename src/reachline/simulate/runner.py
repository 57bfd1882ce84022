"""Scenarios × contenders × seeds, in as many processes as wanted. Each seed's world is run for `oracle` and `none` too: what no one could
have avoided, and what doing nothing costs, are the ends of the scale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from typing import Final, NamedTuple

from reachline.simulate.contender import Maker, Run
from reachline.simulate.fleet import Sums
from reachline.simulate.limits import Row, held
from reachline.simulate.observe import Observer
from reachline.simulate.peers import TABLE
from reachline.simulate.ran import Figure, Ran
from reachline.simulate.reach.contender import Reachline
from reachline.simulate.scenarios import Scenario
from reachline.simulate.score import figures
from reachline.simulate.still import Nothing, Oracle
from reachline.simulate.timeline import Timeline
from reachline.simulate.world import World
from reachline.store.collecting import uncollected

__all__ = ["CONTENDERS", "Job", "composite", "jobs", "perform", "play", "rows_of"]

CONTENDERS: Final = ("reachline", "reachline-literal", *TABLE, "none", "oracle")
"""By the names that people give them."""
_SCALE: Final = {
    "bad_requests": 40,
    "false_trips_per_h": 20,
    "t_restore_full": 15,
    "overload_s": 15,
    "needless_shift": 10,
}
"""Weights of the composite."""
_FALSE_TRIPS: Final = 1.0
"""Per line-hour, in the place of what doing nothing costs: it never trips…"""
_SHIFT: Final = 0.1
"""…nor moves traffic: a tenth of all that is called…"""
_BAD: Final = 0.01
"""…and where no line ever fails it loses no call: the hundredth of all calls that scenarios allow at most. Chance alone makes a few in a
million differ from the oracle's."""


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
        found["composite"] = composite(found, worst, world.observer)
        has_calls = job.scenario.traffic.rps > 0
        limits = held(job.scenario.limits, found, has_calls=has_calls)
        rows.append(Row(job.scenario.id, name, job.seed, found, limits))
    return rows


def _ran(world: World, oracle: Sums) -> Ran:
    told = world.contender.told if isinstance(world.contender, Reachline) else None
    return Ran(world.run, world.observer, oracle, told)


def composite(found: Mapping[str, Figure], worst: Mapping[str, Figure], seen: Observer) -> float:
    """100 for one who loses nothing that doing nothing loses; what that cannot lose has a scale of its own."""
    run = seen.end_ms / 1_000
    alone = {
        "bad_requests": _BAD,
        "false_trips_per_h": _FALSE_TRIPS,
        "t_restore_full": run,
        "overload_s": run,
        "needless_shift": _SHIFT,
    }
    never = run if seen.scenario.truth else 0.0
    total = 100.0
    for name, points in _SCALE.items():
        figure = found.get(name)
        lost = never if figure is None else float(figure) if isinstance(figure, int | float) else 0.0
        cost = worst.get(name)
        against = float(cost) if isinstance(cost, int | float) and cost else alone[name]
        total -= points * min(1.0, lost / against)
    return round(total, 2)


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
