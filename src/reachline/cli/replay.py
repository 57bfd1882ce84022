"""`reachline replay JOURNAL`: every decision computed again from evidence alone. Exit code 0 equal, 1 different, 2 unreadable."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from reachline.cli.render import Column, Output, OutputOption, show
from reachline.errors import ConfigError, JournalError, Problem
from reachline.model import Seconds
from reachline.store.replay import Difference, Replayed, replay

__all__ = ["command"]


def command(
    journal: Annotated[Path, typer.Argument(help="A journal directory, or one of its segments.", metavar="JOURNAL")],
    output: OutputOption = Output.TABLE,
) -> None:
    """Recompute every decision of a journal from its evidence, and hold it against what was recorded.

    Works while a center writes there. Exit code: 0 all equal, 1 the first difference is named, 2 not readable.
    """
    started = time.perf_counter()
    try:
        done = replay(journal)
    except JournalError as error:
        raise ConfigError(Problem(place=str(journal), path="", value="", rule=_reason(error, journal))) from error
    spent = max(time.perf_counter() - started, 1e-9)
    show(output, _rows(done, spent), _columns(), document=_document(done, spent))
    if done.difference is not None:
        print(f"reachline: {done.difference}", file=sys.stderr)
        raise typer.Exit(1)


def _columns() -> list[Column[tuple[str, str]]]:
    return [Column(title="replayed", cell=lambda row: row[0]), Column(title="", cell=lambda row: row[1])]


def _rows(done: Replayed, spent: Seconds) -> list[tuple[str, str]]:
    rows = [
        ("segments", str(done.segments)),
        ("records", f"{done.records} ({done.records / spent:,.0f}/s)"),
        ("line reports", f"{done.readings} ({done.readings / spent:,.0f}/s)"),
        ("ticks", str(done.ticks)),
        ("decisions", str(done.decisions)),
        ("gaps, not replayable", str(done.gaps)),
    ]
    if done.first_unix is not None and done.last_unix is not None:
        rows.insert(0, ("from", _clock(done.first_unix)))
        rows.insert(1, ("to", _clock(done.last_unix)))
    rows.append(("result", "all equal" if done.difference is None else f"DIFFERENT: {done.difference}"))
    return rows


def _document(done: Replayed, spent: Seconds) -> dict[str, object]:
    return {
        "equal": done.difference is None,
        "segments": done.segments,
        "records": done.records,
        "readings": done.readings,
        "ticks": done.ticks,
        "decisions": done.decisions,
        "gaps": done.gaps,
        "from": done.first_unix,
        "to": done.last_unix,
        "seconds": round(spent, 3),
        "difference": None if done.difference is None else _told(done.difference),
    }


def _told(difference: Difference) -> dict[str, object]:
    return {
        "segment": difference.segment,
        "seq": difference.seq,
        "at": difference.unix,
        "scope": None if difference.scope is None else difference.scope.cluster,
        "line": difference.line,
        "field": difference.field,
        "recorded": difference.recorded,
        "recomputed": difference.recomputed,
        "message": str(difference),
    }


def _clock(unix: Seconds) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix))


def _reason(error: JournalError, journal: Path) -> str:
    """The message without the place it begins with, which the problem names already."""
    return str(error).removeprefix(f"{journal}: ")
