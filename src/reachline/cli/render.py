"""How every command shows data: one table for people, one JSON document for scripts. Knows no line and no center.

`-o json` is stable and complete; `-o table` is for reading. On a terminal tables have colour (unless `NO_COLOR` is set) and fit
its width; elsewhere they are plain text, one row a line, never cut.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, Generic, Literal, TypeVar

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = [
    "Column",
    "Output",
    "OutputOption",
    "console",
    "milliseconds",
    "number",
    "percent",
    "show",
    "style_of",
    "table",
    "write_json",
]

Row = TypeVar("Row")

_PLAIN_WIDTH: Final = 100_000
"""Wide enough that no cell of a plain table is ever cut."""


class Output(StrEnum):
    """What `-o` may name."""

    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[Output, typer.Option("-o", "--output", help="How to print: for people or for scripts.")]
"""The annotation of a command's `output` parameter; its default is `Output.TABLE`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(Generic[Row]):
    """One column: its heading, and the text of a row's cell. `style` names a colour for that row, or nothing."""

    title: str
    cell: Callable[[Row], str]
    align: Literal["left", "right"] = "left"
    style: Callable[[Row], str] | None = None


def show(
    output: Output, rows: Sequence[Row], columns: Sequence[Column[Row]], *, document: object, title: str = ""
) -> None:
    """Prints `document` as JSON, or `rows` as a table, as `output` says."""
    match output:
        case Output.JSON:
            write_json(document)
        case Output.TABLE:
            console().print(table(rows, columns, title=title))


def write_json(document: object, *, compact: bool = False) -> None:
    """One JSON document on standard output, UTF-8 as it is; `compact` is one line, for streams."""
    text = json.dumps(document, ensure_ascii=False, indent=None if compact else 2, allow_nan=False)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def console(*, stderr: bool = False) -> Console:
    """Where tables go. rich reads NO_COLOR and TERM itself; without a terminal the width is boundless."""
    from rich.console import Console  # noqa: PLC0415  (keeps `--help` light)

    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream, highlight=False, width=None if stream.isatty() else _PLAIN_WIDTH, soft_wrap=False)


def table(rows: Iterable[Row], columns: Sequence[Column[Row]], *, title: str = "") -> Table:
    """`rows` under their headings, without lines: it stays readable when copied into a ticket."""
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    grid = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        grid.add_column(column.title, justify=column.align, no_wrap=column.align == "right")
    for row in rows:
        grid.add_row(*(Text(each.cell(row), style=each.style(row) if each.style else "") for each in columns))
    return grid


_STYLES: Final = {
    "healthy": "green",
    "closed": "green",
    "degraded": "yellow",
    "ramp": "yellow",
    "half_open": "yellow",
    "unhealthy": "red",
    "open": "red",
    "unknown": "dim",
}


def style_of(state: str) -> str:
    """The colour of a health or breaker word; nothing for a word it does not know. Colour never says it alone."""
    return _STYLES.get(state.lower(), "")


def milliseconds(seconds: float | None) -> str:
    """A duration in seconds as people read it: `0.43 ms`, `12.3 ms`, `350 ms`, `1.20 s`; a dash where unknown."""
    if seconds is None:
        return "–"
    if seconds >= 1:
        return f"{seconds:.2f} s"
    value = seconds * 1_000
    digits = 2 if value < 1 else 1 if value < 100 else 0
    return f"{value:.{digits}f} ms"


def percent(ratio: float | None) -> str:
    """A share as people read it: `0 %`, `0.4 %`, `12 %`; a dash where unknown."""
    if ratio is None:
        return "–"
    value = ratio * 100
    return f"{value:.1f} %" if 0 < value < 10 else f"{value:.0f} %"


def number(value: float | None) -> str:
    """A count or weight without a needless `.0`; a dash where unknown."""
    return "–" if value is None else f"{value:g}"
