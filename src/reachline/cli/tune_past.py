"""Simulated evidence for `reachline tune`: scenarios played by Reachline, and written down as a center would have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from reachline.core.ledger import Ledger
from reachline.simulate.contender import Run
from reachline.simulate.reach.contender import Reachline
from reachline.simulate.reading import read
from reachline.simulate.scenarios import Scenario
from reachline.simulate.timeline import Timeline
from reachline.simulate.world import World
from reachline.store.records import Opened, Record
from reachline.store.segment import ROOT, Meta, SegmentWriter, create
from reachline.store.tuning import Part

__all__ = ["simulated"]

_LEARNT: Final = 0.7
"""Of each scenario's seeds; at least one is left to prove it on."""


def simulated(file: Path, directory: Path, tell: Callable[[float], None]) -> tuple[list[Part], list[Part]]:
    """Every scenario with its seeds: evidence to search on, and evidence of other seeds."""
    found = read(file.read_text(encoding="utf-8"), name=str(file))
    runs = [(scenario, seed, at) for scenario in found for at, seed in enumerate(_seeds(scenario))]
    learn: list[Part] = []
    prove: list[Part] = []
    for number, (scenario, seed, at) in enumerate(runs):
        part = _played(scenario, seed, directory / f"{number:04d}")
        count = len(_seeds(scenario))
        (learn if at < max(1, min(count - 1, round(_LEARNT * count))) else prove).append(part)
        tell((number + 1) / len(runs))
    return learn, prove


def _seeds(scenario: Scenario) -> tuple[int, ...]:
    """Two at least: what is searched on proves nothing."""
    seeds = tuple(scenario.rng_seeds)
    return seeds if len(seeds) > 1 else (*seeds, seeds[0] + 1)


def _played(scenario: Scenario, seed: int, directory: Path) -> Part:
    timeline = Timeline(scenario)
    kept: list[Reachline] = []

    def maker(run: Run) -> Reachline:
        made = Reachline(run, scenario, timeline, mode="fast", keeps=True)
        kept.append(made)
        return made

    World(scenario, maker, seed=seed).go()
    return _written(kept[0].center.records, directory)


def _written(records: list[Record], directory: Path) -> Part:
    """The records as a segment; a cluster's lines and vantages are those of the checkpoint it begins with."""
    directory.mkdir(parents=True)
    meta = Meta(release="simulated", epoch=1, number=1, first=1, chain=ROOT, opened_ms=0, opened_unix_ms=0)
    path = create(directory, meta)
    writer = SegmentWriter(path, meta)
    writer.write(enumerate(records, 1))
    writer.close()
    opened = records[0]
    if not isinstance(opened, Opened):
        raise TypeError("a simulated journal begins with a checkpoint")
    ledger = Ledger.thaw(opened.checkpoint)
    return Part((path,), opened.scope, None, None, tuple(ledger.told.values()), ledger.poll.vantages)
