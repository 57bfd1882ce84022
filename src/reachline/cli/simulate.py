"""`reachline simulate FILE`: what each contender would have done in each scenario. Exit code 0 all limits held, 1 not, 2 not readable."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from statistics import median
from typing import Annotated, Final, NamedTuple

import typer
from rich.console import Console
from rich.progress import Progress

from reachline.cli.render import Column, Output, OutputOption, show
from reachline.doors.problems import nearest
from reachline.errors import ConfigError, Problem
from reachline.simulate.bound import CONFIDENCE, highest
from reachline.simulate.limits import Row, passed
from reachline.simulate.ran import Figure
from reachline.simulate.reading import read
from reachline.simulate.runner import CONTENDERS, Job, jobs, rows_of
from reachline.simulate.scenarios import Scenario

__all__ = ["command"]

_SHOWN: Final = ("t_detect", "t_drain", "t_restore_full", "false_trips_per_h", "bad_requests", "composite")
"""Columns of the table; the JSON has every figure."""


class Mode(StrEnum):
    """How the contender `reachline` judges."""

    FAST = "fast"
    LITERAL = "literal"


class _Line(NamedTuple):
    """One scenario and contender over all seeds."""

    scenario: str
    contender: str
    seeds: int
    figures: Mapping[str, Figure]
    broken: tuple[str, ...]


class _Proved(NamedTuple):
    """False opens of all runs of one contender, and how many there may be in 1 000 line-hours for all that was seen."""

    trips: int
    hours: float
    most: float


def command(
    file: Annotated[Path, typer.Argument(help="Scenarios, YAML.", metavar="FILE")],
    scenario: Annotated[list[str] | None, typer.Option(help="Only this one, by its id or how that begins.")] = None,
    contender: Annotated[list[str] | None, typer.Option(help=f"One of {', '.join(CONTENDERS)}.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, max=10_000, help="1…N instead of the file's own.")] = None,
    mode: Annotated[Mode, typer.Option(help="How `reachline` judges.")] = Mode.FAST,
    processes: Annotated[int, typer.Option("--jobs", min=1, max=256, help="Processes at once.")] = 1,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run scenarios under virtual time, and hold what comes of them against their limits.

    Exit code: 0 every limit holds, 1 one does not, 2 the file is not readable.
    """
    found = read(file.read_text(encoding="utf-8"), name=str(file))
    names = tuple(contender or ("reachline",))
    wanted = jobs(_chosen(found, scenario or []), _contenders(names), seeds=seeds, mode=mode.value)
    with _quietly():
        rows = _ordered(_run(wanted, processes), wanted, names)
    lines = _lines(rows)
    proved = _proved(rows)
    show(output, lines, _columns(), document=[_document(row, proved[row.contender]) for row in rows])
    if output is Output.TABLE:
        print(*(_sentence(name, one) for name, one in proved.items()), sep="\n")
    if any(line.broken for line in lines):
        raise typer.Exit(1)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Without the events of the parts that are simulated; those of this process are told again afterwards."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def _chosen(found: Sequence[Scenario], names: Sequence[str]) -> tuple[Scenario, ...]:
    """The scenarios that are named, in the file's order; `S03` names `S03_hard_down`."""
    ids = [each.id for each in found]
    for name in names:
        if not any(each == name or each.startswith(f"{name}_") for each in ids):
            raise ConfigError(_unknown("--scenario", name, ids))
    return tuple(
        each for each in found if not names or any(each.id == name or each.id.startswith(f"{name}_") for name in names)
    )


def _contenders(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name not in CONTENDERS:
            raise ConfigError(_unknown("--contender", name, CONTENDERS))
    return names


def _unknown(option: str, name: str, known: Sequence[str]) -> Problem:
    close = nearest(name, known)
    hint = f"did you mean {close}?" if close else f"there are: {', '.join(known)}"
    return Problem(place=option, path="", value=repr(name), rule="is not known", hint=hint)


def _run(wanted: Sequence[Job], processes: int) -> list[Row]:
    processes = min(processes, len(wanted), (os.cpu_count() or 1) * 4)
    if not sys.stderr.isatty():
        return list(rows_of(wanted, processes=processes))
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("simulating", total=len(wanted))
        return list(rows_of(wanted, processes=processes, done=lambda count, _: progress.update(task, completed=count)))


def _ordered(rows: Iterable[Row], wanted: Sequence[Job], names: Sequence[str]) -> list[Row]:
    """By scenario as in the file, then contender as asked for, then seed."""
    places = {job.scenario.id: at for at, job in reversed(list(enumerate(wanted)))}
    return sorted(rows, key=lambda row: (places[row.scenario], names.index(row.contender), row.seed))


def _document(row: Row, proved: _Proved) -> dict[str, object]:
    metrics = {**row.metrics, "false_opens_at_most_per_1000_h": proved.most}
    return {
        "scenario": row.scenario,
        "contender": row.contender,
        "seed": row.seed,
        "metrics": {name: _rounded(figure) for name, figure in metrics.items()},
        "limits": dict(row.limits),
        "ok": row.ok,
    }


def _rounded(figure: Figure) -> Figure:
    return round(figure, 6) if isinstance(figure, float) else figure


def _lines(rows: Sequence[Row]) -> list[_Line]:
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row.scenario, row.contender), []).append(row)
    verdicts = passed(rows)
    return [
        _Line(
            *key,
            seeds=len(runs),
            figures={name: _middle(run.metrics.get(name) for run in runs) for name in _SHOWN},
            broken=tuple(name for name, is_held in verdicts[key].items() if not is_held),
        )
        for key, runs in found.items()
    ]


def _proved(rows: Sequence[Row]) -> dict[str, _Proved]:
    """For each contender, how often it opens a line that is well: what was seen, and what that proves."""
    found = {}
    for name in dict.fromkeys(row.contender for row in rows):
        runs = [row for row in rows if row.contender == name]
        hours = sum(_value(run.metrics.get("line_hours")) for run in runs)
        trips = round(sum(_value(run.metrics.get("false_trips")) for run in runs))
        found[name] = _Proved(trips, hours, 1_000 * highest(trips, hours))
    return found


def _sentence(name: str, one: _Proved) -> str:
    seen = f"{one.trips} false opens in {one.hours:.1f} line-hours"
    return f"{name}: {seen}, at most {one.most:.3g} in 1 000 ({CONFIDENCE:.0%} sure)"


def _value(figure: Figure) -> float:
    return float(figure) if isinstance(figure, int | float) else 0.0


def _middle(figures: Iterable[Figure]) -> Figure:
    known = [figure for figure in figures if isinstance(figure, int | float)]
    return median(known) if known else None


def _columns() -> list[Column[_Line]]:
    def figure(name: str) -> Column[_Line]:
        return Column(title=name, cell=lambda line: _text(line.figures[name]))

    return [
        Column(title="scenario", cell=lambda line: line.scenario),
        Column(title="contender", cell=lambda line: line.contender),
        *(figure(name) for name in _SHOWN),
        Column(title="limits", cell=lambda line: f"broken: {', '.join(line.broken)}" if line.broken else "held"),
    ]


def _text(figure: Figure) -> str:
    if isinstance(figure, float):
        return f"{figure:.4g}"
    return "-" if figure is None else str(figure)
