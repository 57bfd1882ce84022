"""`reachline what-if`: recorded evidence under other settings: which lines, when, how much traffic, how many false trips."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from reachline.cli.documents import document_in
from reachline.cli.render import Column, Output, OutputOption, console, show, write_json
from reachline.core.whatif import Sum, acted_ms, moved_ms, summed, trips
from reachline.doors import reach
from reachline.doors.settings import Document
from reachline.doors.units import seconds, text_of_seconds
from reachline.errors import ConfigError, JournalError, Problem
from reachline.model import LineId, Scope, Seconds
from reachline.net.reload import text_of
from reachline.store.segment import Meta
from reachline.store.whatif import Judged, Proposed, Side, judged, segments_since

__all__ = ["command", "told_progress", "unread"]

_NOTHING: Final = Sum()


class _Row(NamedTuple):
    line: LineId
    was: Sum
    would: Sum


def command(
    settings: Annotated[Path, typer.Option("--settings", help="The document to judge by.", metavar="FILE")],
    since: Annotated[str, typer.Option("--since", help="How far back: `7d`, `12h`, `90m`.")] = "7d",
    journal: Annotated[
        Path | None, typer.Option("--journal", help="The journal's directory. Default: the one that FILE names.")
    ] = None,
    cluster: Annotated[list[str] | None, typer.Option("--cluster", help="Only this one; may be repeated.")] = None,
    every_line: Annotated[bool, typer.Option("--all", help="Lines without a difference too.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Judge recorded evidence by other settings, and show what would have been different.

    Changes nothing. Calls went where the recorded weights sent them: what they would have met elsewhere, no journal knows.
    """
    document = document_in(text_of(settings), str(settings))
    wanted = proposed(document, cluster, place=str(settings))
    directory = journal or Path(document.center.journal)
    begin = time.time() - _ago(since)
    with unread(directory), told_progress("judging") as tell:
        found = judged(segments_since(directory, begin), wanted, since=begin, tell=tell)
    for scope in found.unknown:
        print(f"reachline: {scope.cluster}: the journal holds nothing of it", file=sys.stderr)
    if output is Output.JSON:
        write_json(_document(found))
    else:
        _print(found, every_line=every_line)


def proposed(document: Document, clusters: Iterable[str] | None, *, place: str) -> dict[Scope, Proposed]:
    """The document's clusters as a journal is judged by them; ConfigError where one of `clusters` is not among them."""
    chosen = list(clusters or document.clusters)
    for name in chosen:
        if name not in document.clusters:
            hint = f"it has {', '.join(document.clusters)}"
            raise ConfigError(
                Problem(place=place, path="clusters", value=name, rule="there is no such cluster", hint=hint)
            )
    return {
        Scope(cluster=name): Proposed(
            reach.lines(document, name), reach.rules(document, name), reach.vantages(document, name)
        )
        for name in chosen
    }


@contextmanager
def unread(directory: Path) -> Iterator[None]:
    """A journal that cannot be read is a wrong argument, in one line."""
    try:
        yield
    except JournalError as error:
        rule, _, hint = str(error).removeprefix(f"{directory}: ").partition("; ")
        raise ConfigError(Problem(place=str(directory), path="", value="", rule=rule, hint=hint)) from error


@contextmanager
def told_progress(what: str) -> Iterator[Callable[[float], None]]:
    """A bar on standard error where that is a terminal; gone at the end."""
    from rich.console import Console  # noqa: PLC0415  (nothing of it for a script)
    from rich.progress import Progress  # noqa: PLC0415

    shown = Console(stderr=True)
    with Progress(console=shown, transient=True, disable=not shown.is_terminal) as progress:
        task = progress.add_task(what, total=1.0)
        yield lambda done: progress.update(task, completed=done)


def _ago(text: str) -> Seconds:
    found = seconds(text)
    if found is None or not found:
        hint = "write a number and a unit (m, h, d): 7d, 12h, 90m"
        raise ConfigError(Problem(place="what-if", path="--since", value=text, rule="is no duration", hint=hint))
    return found


def _rows(side: Side) -> list[_Row]:
    was, would = (summed(course, side.until_ms, side.faults) for course in (side.recorded, side.proposed))
    return [
        _Row(line, was.get(line, _NOTHING), would.get(line, _NOTHING)) for line in sorted(was.keys() | would.keys())
    ]


def _print(found: Judged, *, every_line: bool) -> None:
    span, screen = found.span, console()
    screen.print(
        f"{_clock(span.first)} to {_clock(span.last)}: {span.reports} line reports, {span.ticks} ticks, "
        f"{span.segments} segments" + (f", {span.gaps} gaps (records a disk refused)" if span.gaps else ""),
        highlight=False,
    )
    for scope, side in found.clusters.items():
        rows = _rows(side)
        moved = moved_ms(side.recorded, side.proposed, side.until_ms) / 1_000
        screen.print(f"\n{scope.cluster}: {moved:,.1f} traffic-seconds go over other lines", highlight=False)
        shown = [row for row in rows if every_line or row.was != row.would]
        if shown:
            show(Output.TABLE, shown, _line_columns(found.meta), document=None)
        else:
            screen.print("every line as recorded")
        if side.faults:
            show(Output.TABLE, _faults(side), _fault_columns(found.meta), document=None)
        for warning in side.warnings:
            screen.print(f"! {warning}", style="yellow", highlight=False)


def _line_columns(meta: Meta) -> list[Column[_Row]]:
    def both(title: str, shown: Callable[[Sum], str]) -> Column[_Row]:
        def cell(row: _Row) -> str:
            was, would = shown(row.was), shown(row.would)
            return was if was == would else f"{was} → {would}"

        return Column(title=title, cell=cell, align="right")

    return [
        Column(title="line", cell=lambda row: row.line),
        both("opened", lambda one: str(one.opens)),
        both("of it false", lambda one: str(one.false_opens)),
        both("open for", lambda one: _span(one.open_ms)),
        both("degraded", lambda one: str(one.degrades)),
        both("for", lambda one: _span(one.degraded_ms)),
        both("first cut", lambda one: "-" if one.first_ms is None else _clock(meta.unix(one.first_ms))),
        both("traffic-seconds", lambda one: f"{one.traffic_ms / 1_000:.1f}"),
    ]


def _faults(side: Side) -> list[dict[str, Any]]:
    return [
        {
            "line": fault.line,
            "from_ms": fault.from_ms,
            "lasted_ms": fault.until_ms - fault.from_ms,
            "acted_ms": acted_ms(side.recorded, fault),
            "would_act_ms": acted_ms(side.proposed, fault),
        }
        for fault in side.faults
    ]


def _fault_columns(meta: Meta) -> list[Column[dict[str, Any]]]:
    def after(value: int | None) -> str:
        return "never" if value is None else _span(value)

    return [
        Column(title="at fault, by hindsight", cell=lambda row: row["line"]),
        Column(title="from", cell=lambda row: _clock(meta.unix(row["from_ms"]))),
        Column(title="for", cell=lambda row: _span(row["lasted_ms"]), align="right"),
        Column(title="acted after", cell=lambda row: after(row["acted_ms"]), align="right"),
        Column(title="would act after", cell=lambda row: after(row["would_act_ms"]), align="right"),
    ]


def _document(found: Judged) -> dict[str, object]:
    span = found.span
    return {
        "from": span.first,
        "to": span.last,
        "segments": span.segments,
        "reports": span.reports,
        "ticks": span.ticks,
        "gaps": span.gaps,
        "clusters": {scope.cluster: _told(side, found.meta) for scope, side in found.clusters.items()},
        "unknown": [scope.cluster for scope in found.unknown],
    }


def _told(side: Side, meta: Meta) -> dict[str, object]:
    rows = _rows(side)
    return {
        "moved_traffic_seconds": moved_ms(side.recorded, side.proposed, side.until_ms) / 1_000,
        "false_trips": {
            "recorded": sum(row.was.false_opens for row in rows),
            "proposed": sum(row.would.false_opens for row in rows),
        },
        "lines": {
            row.line: {"recorded": _numbers(row.was, meta), "proposed": _numbers(row.would, meta)} for row in rows
        },
        "trips": {
            "recorded": _trips(side.recorded, meta),
            "proposed": _trips(side.proposed, meta),
        },
        "faults": [
            {
                "line": row["line"],
                "from": meta.unix(row["from_ms"]),
                "lasted": row["lasted_ms"] / 1_000,
                "acted_after": _seconds(row["acted_ms"]),
                "would_act_after": _seconds(row["would_act_ms"]),
            }
            for row in _faults(side)
        ],
        "warnings": list(side.warnings),
    }


def _trips(course: Any, meta: Meta) -> list[Mapping[str, object]]:
    return [{"at": meta.unix(at_ms), "line": line, "rule": rule} for at_ms, line, rule in trips(course)]


def _numbers(one: Sum, meta: Meta) -> dict[str, object]:
    return {
        "opens": one.opens,
        "false_opens": one.false_opens,
        "degrades": one.degrades,
        "open": one.open_ms / 1_000,
        "degraded": one.degraded_ms / 1_000,
        "traffic_seconds": one.traffic_ms / 1_000,
        "first_cut": None if one.first_ms is None else meta.unix(one.first_ms),
    }


def _seconds(value: int | None) -> Seconds | None:
    return None if value is None else value / 1_000


def _span(ms: int) -> str:
    return text_of_seconds(round(ms / 1_000)) if ms >= 10_000 else text_of_seconds(ms / 1_000)


def _clock(unix: Seconds) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix))
