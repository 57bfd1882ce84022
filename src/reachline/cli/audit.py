"""`reachline audit`: what people did at a center, newest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from reachline.cli.asking import CENTER, CenterOption, ask
from reachline.cli.render import Column, Output, OutputOption, show

__all__ = ["command"]


def command(
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000, help="How many.")] = 50,
    center: CenterOption = CENTER,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show who did what: orders, drills, log-ins, and what was refused; from where, and what came of it.

    Takes the role of an admin where the center knows people (REACHLINE_TOKEN).
    """
    document = ask(center, f"/api/v1/audit?limit={limit}")
    show(output, document["deeds"], _COLUMNS, document=document)


_COLUMNS: Sequence[Column[dict[str, Any]]] = (
    Column(title="at", cell=lambda row: row["at"][:19].replace("T", " ")),
    Column(title="who", cell=lambda row: row["who"] or "–"),
    Column(title="from", cell=lambda row: row["address"]),
    Column(title="what", cell=lambda row: row["what"]),
    Column(title="status", cell=lambda row: str(row["status"])),
)
