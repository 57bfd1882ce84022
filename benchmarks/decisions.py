"""Contenders × scenarios × seeds in the simulator, and the page that says who did better, and where that falls short.

    make bench-decisions                              all of it: many hours of one core; stops and goes on at any time
    make bench-decisions ARGS="--part blocking --seeds 5 --jobs 4"
    make bench-decisions ARGS="--write-docs --only-page"      the page anew, from the results that are there
    make bench-decisions ARGS="--write-docs --only-page --merge FILE" the same, with results from another machine or tree taken in first

Runs are stored in benchmarks/results/decisions.json as they end. One that is there is not made again while the code that decides, the
simulated world and the scenario are the same. Not part of `make bench-decide`, which takes minutes and measures time: here no time is
measured, so it may run beside anything.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from benchmarks.contending.digest import digest
from benchmarks.contending.page import Book, page
from benchmarks.contending.stored import Key, Stored, load, merged, of_row, save

from reachline.simulate.composite import composite
from reachline.simulate.limits import Row
from reachline.simulate.reading import read
from reachline.simulate.runner import CONTENDERS, Job, perform
from reachline.simulate.scenarios import Scenario

ROOT = Path(__file__).parents[1]
SCENARIOS = ROOT / "examples" / "scenarios.yaml"
RESULTS = ROOT / "benchmarks" / "results" / "decisions.json"
PAGE = ROOT / "docs" / "benchmarks" / "decisions.md"
BLOCKING = ("S01", "S02", "S03", "S04", "S06", "S08", "S10", "S11", "S13", "S18", "S31")
"""Founding incident, brownout, hard down, one and several sick vantages, probes that ride another path, flapping, half-open at low and
high traffic, a shared provider, business only."""
SOAK = "S40"


class Part(NamedTuple):
    """Which scenarios, by whom, how often."""

    name: str
    contenders: tuple[str, ...]
    seeds: int


PARTS = (
    Part("blocking", CONTENDERS, 10),
    Part("goal", ("reachline",), 3),
    Part("soak", ("reachline",), 42),
)
"""42 seeds of three lines for a day are 3 024 line-hours."""


def part_of(scenario: str) -> str:
    """The part that a scenario belongs to, by its id."""
    short = scenario.partition("_")[0]
    return "blocking" if short in BLOCKING else "soak" if short == SOAK else "goal"


def wanted(found: Sequence[Scenario], part: Part, known: Mapping[Key, Stored]) -> Iterator[Job]:
    """The runs of a part that are not there yet, seed by seed, so that what is there is of all scenarios."""
    for seed in range(1, part.seeds + 1):
        for scenario in found:
            if part_of(scenario.id) != part.name:
                continue
            names = tuple(name for name in part.contenders if not _is_there(scenario, name, seed, known))
            if names:
                yield Job(scenario, seed, names)


def _is_there(scenario: Scenario, contender: str, seed: int, known: Mapping[Key, Stored]) -> bool:
    stored = known.get((scenario.id, contender, seed))
    return stored is not None and stored.digest == digest(scenario, contender)


def done(jobs: Sequence[Job], processes: int) -> Iterator[tuple[Job, list[Row]]]:
    """Each job's runs as they end."""
    if processes == 1:
        for job in jobs:
            yield job, _quietly(job)
        return
    with ProcessPoolExecutor(processes) as pool:
        futures = {pool.submit(_quietly, job): job for job in jobs}
        for future in as_completed(futures):
            yield futures[future], future.result()


def _quietly(job: Job) -> list[Row]:
    logging.disable(logging.WARNING)
    return perform(job)


def commit() -> str:
    """Of this tree, with a `+` where the code differs from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    return git("rev-parse", "--short=9", "HEAD") + (
        "+" if git("status", "--porcelain", "--", "src", "examples") else ""
    )


def now() -> str:
    """The moment, to the second, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def perform_all(jobs: Sequence[Job], path: Path, processes: int) -> None:
    """Runs them, and stores what each came to as soon as it ends."""
    made_at = commit()
    for count, (job, rows) in enumerate(done(jobs, processes), 1):
        new = [of_row(row, digest=digest(job.scenario, row.contender), commit=made_at, at=now()) for row in rows]
        save(path, merged(load(path), new))
        print(f"{now()} {count}/{len(jobs)} {job.scenario.id} seed {job.seed}: {', '.join(job.contenders)}", flush=True)


def book(scenarios: Sequence[Scenario], known: Mapping[Key, Stored]) -> Book:
    """What the page is made of: the runs of scenarios that still are."""
    by_id = {one.id: one for one in scenarios}
    runs = {key: _scored(run, by_id[run.scenario], known) for key, run in known.items() if key[0] in by_id}
    stale = sum(run.digest != digest(by_id[run.scenario], run.contender) for run in runs.values())
    return Book(
        scenarios, runs, {name: part_of(name) for name in by_id}, stale, {part.name: part.seeds for part in PARTS}
    )


def _scored(run: Stored, scenario: Scenario, known: Mapping[Key, Stored]) -> Stored:
    """With its score as it is worked out today; without one where nobody did nothing under its seed."""
    idle = known.get((run.scenario, "none", run.seed))
    if idle is None:
        return run._replace(metrics={name: figure for name, figure in run.metrics.items() if name != "composite"})
    points = composite(run.metrics, idle.metrics, run=scenario.duration_s, has_truth=bool(scenario.truth))
    return run._replace(metrics={**run.metrics, "composite": points})


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench-decisions", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--part", action="append", choices=[part.name for part in PARTS], help="all of them unless said"
    )
    parser.add_argument("--scenario", action="append", help="only this one, by how its id begins")
    parser.add_argument("--contender", action="append", choices=CONTENDERS, help="instead of the part's own")
    parser.add_argument("--seeds", type=int, help="1…N, instead of the part's own")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where runs are stored")
    parser.add_argument("--merge", type=Path, action="append", default=[], help="take in another file of results first")
    parser.add_argument("--only-page", action="store_true", help="run nothing")
    parser.add_argument("--write-docs", action="store_true", help="write docs/benchmarks/decisions.md")
    return parser.parse_args()


def main() -> None:
    """Runs what is missing, then writes the page if asked to."""
    asked = _asked()
    scenarios = read(SCENARIOS.read_text(encoding="utf-8"), name=SCENARIOS.name)
    chosen = [one for one in scenarios if not asked.scenario or one.id.startswith(tuple(asked.scenario))]
    known = load(asked.results)
    for other in asked.merge:
        known = merged(known, load(other).values())
        save(asked.results, known)
    for part in PARTS:
        if (asked.part and part.name not in asked.part) or asked.only_page:
            continue
        wished = part._replace(contenders=tuple(asked.contender or part.contenders), seeds=asked.seeds or part.seeds)
        perform_all(list(wanted(chosen, wished, load(asked.results))), asked.results, asked.jobs)
    if asked.write_docs:
        PAGE.write_text(page(book(scenarios, load(asked.results))), encoding="utf-8")


if __name__ == "__main__":
    main()
