"""`reachline incidents`: faults from the first bad verdict to full weight, as a center's decisions tell them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from reachline.cli.asking import CENTER, CenterOption, Refusal, ask
from reachline.cli.render import Column, Output, OutputOption, console, show
from reachline.core import words
from reachline.errors import ConfigError, Problem
from reachline.model import Seconds

__all__ = ["command"]

Row = Mapping[str, Any]


def command(
    line: Annotated[str, typer.Argument(metavar="[LINE]", help="Only those of this line.")] = "",
    lasting: Annotated[bool, typer.Option("--lasting", help="Only those that are not over.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=2_000, help="At most so many, the newest.")] = 30,
    center: CenterOption = CENTER,
    output: OutputOption = Output.TABLE,
) -> None:
    """List incidents, newest first: when a fault began, how soon it was detected and traffic moved, when full weight was back.

    Faults of lines that share a provider or a group are one incident.
    """
    query = urlencode({"line": line, "lasting": str(lasting).lower(), "limit": limit})
    try:
        document = ask(center, f"/api/v1/incidents?{query}")
    except Refusal as refused:
        if refused.status != 404:
            raise
        problem = Problem(place="incidents", path="", value="", rule=refused.message, hint=refused.hint)
        raise ConfigError(problem) from refused
    rows: Sequence[Row] = document["incidents"]
    if output is Output.TABLE and not rows:
        console().print("no incident is known" + (" that lasts" if lasting else ""))
        return
    show(output, rows, _columns(time.time()), document=document)
    if output is Output.TABLE:
        console().print(f"\n{_means(document['times'])}", style="dim", highlight=False)


def _columns(now: Seconds) -> list[Column[Row]]:
    return [
        Column(title="incident", cell=lambda row: row["name"]),
        Column(title="state", cell=_state, style=lambda row: "" if row["state"] != "lasts" else "yellow"),
        Column(title="began", cell=lambda row: _clock(row["began"], now)),
        Column(title="detected", cell=lambda row: _after(row["detect"]), align="right"),
        Column(title="moved", cell=lambda row: _after(row["act"]), align="right"),
        Column(title="restored", cell=lambda row: _after(row["restore"]), align="right"),
        Column(title="opened", cell=lambda row: str(row["opened"]), align="right"),
        Column(title="weight", cell=lambda row: f"≥ {row['least']}", align="right"),
        Column(title="rule", cell=lambda row: row["rule"]),
        Column(title="not enforced", cell=lambda row: ", ".join(row["unenforced"]) or "–"),
    ]


def _state(row: Row) -> str:
    lines = f", {len(row['lines'])} lines" if len(row["lines"]) > 1 else ""
    return f"{row['worst']}, {row['state']}{lines}"


def _after(seconds: Seconds | None) -> str:
    return "–" if seconds is None else f"+{words.duration(round(1_000 * seconds))}"


def _means(times: Row) -> str:
    def shown(name: str) -> str:
        return "–" if times[name] is None else words.duration(round(1_000 * times[name]))

    lasting = f", {times['lasting']} of them last" if times["lasting"] else ""
    return (
        f"{times['total']} incidents{lasting}; on average detected after {shown('mttd')}, traffic moved after {shown('mtta')}, "
        f"full weight after {shown('mttr')}"
    )


def _clock(unix: Seconds, now: Seconds) -> str:
    """Local time; with its date where that is not today's."""
    moment, today = time.localtime(unix), time.localtime(now)
    is_today = (moment.tm_year, moment.tm_yday) == (today.tm_year, today.tm_yday)
    return time.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M", moment)
