"""`reachline plan`: who is carried where across regions, before and after, and why; also were a region gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from reachline.cli.asking import CENTER, CenterOption, Refusal, ask
from reachline.cli.render import Column, Output, OutputOption, console, show
from reachline.errors import ConfigError, Problem

__all__ = ["command"]

Row = Mapping[str, Any]


def command(
    without: Annotated[str, typer.Option("--without", metavar="REGION", help="What if this region were gone?")] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be. So it always is: asking changes nothing.")
    ] = True,
    center: CenterOption = CENTER,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show who is carried where, calls a second, before and after the plan across regions, and why.

    With --without REGION: now, and what would become of every cluster if that region were gone.
    """
    del dry_run  # said for the reader's sake
    try:
        document = ask(center, f"/api/v1/plan?{urlencode({'without': without})}")
    except Refusal as refused:
        if refused.status != 404:
            raise
        rule, hint = refused.message, refused.hint
        raise ConfigError(Problem(place="option", path="--without", value=without, rule=rule, hint=hint)) from refused
    rows: Sequence[Row] = document["clusters"]
    if output is Output.TABLE and rows:
        console().print(_headline(document), highlight=False)
    if rows or output is Output.JSON:
        show(output, rows, _columns(), document=document)
    if output is Output.TABLE:
        _print_rest(document)


def _headline(document: Row) -> str:
    gone, rows = document["without"], document["clusters"]
    where = f"without {gone}" if gone else "now"
    if not document["scarce"]:
        return f"{where}: " + ("all is carried by weights" if gone else "weights carry everything, there is no plan")
    if all(not row["enforced"] for row in rows if row["reason"]):
        return f"{where}: the plan is only recorded, calls go by weights"
    shed = sum(row["shed"] for row in rows if row["enforced"])
    return f"{where}: {f'{shed} calls/s are shed' if shed else 'all is carried, some of it elsewhere'}"


def _columns() -> list[Column[Row]]:
    return [
        Column(title="cluster", cell=lambda row: row["cluster"]),
        Column(title="priority", cell=lambda row: str(row["priority"]), align="right"),
        Column(title="calls/s", cell=lambda row: str(row["calls"]), align="right"),
        Column(title="before", cell=lambda row: _places(row["before"])),
        Column(title="after", cell=lambda row: _places(row["after"])),
        Column(title="carried", cell=lambda row: f"{100 * row['admit']:.3g} %", align="right", style=_style),
        Column(title="reason", cell=_reason),
    ]


def _places(calls: Mapping[str, int]) -> str:
    return ", ".join(f"{region or 'no region'} {each}" for region, each in sorted(calls.items()) if each) or "–"


def _style(row: Row) -> str:
    return "red" if row["shed"] else ""


def _reason(row: Row) -> str:
    if not row["reason"]:
        return "–" if row["before"] == row["after"] else "by weight"
    return row["reason"] if row["enforced"] else f"{row['reason']} (not enforced)"


def _print_rest(document: Row) -> None:
    """What regions carry, and who takes no part."""
    regions: Sequence[Row] = document["regions"]
    if regions:
        console().print()
        columns: list[Column[Row]] = [
            Column(title="region", cell=lambda row: row["region"] or "no region"),
            Column(title="room", cell=lambda row: str(row["room"]), align="right"),
            Column(title="before", cell=lambda row: str(row["before"]), align="right"),
            Column(title="after", cell=lambda row: str(row["after"]), align="right"),
        ]
        show(Output.TABLE, regions, columns, document=document)
    for row in document["apart"]:
        console().print(f"{row['cluster']} takes no part: {row['why']}", style="dim", highlight=False)
