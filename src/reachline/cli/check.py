"""`reachline check now FILE…`: each outbound that an Xray document observes is asked at once, and what is known then is printed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reachline.cli.documents import directory
from reachline.cli.render import Column, Output, OutputOption, show
from reachline.errors import ConfigError, Problem
from reachline.model import Seconds
from reachline.net import kernel, reload

if TYPE_CHECKING:
    from reachline.core.observing import Status, Told
    from reachline.doors.observatory import Settings

__all__ = ["app", "now"]

app = typer.Typer(
    add_completion=False, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False,
    help="Ask outbounds at once.", context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


@app.callback()
def _group() -> None:
    """A group also while it has one command."""


@app.command("now")
def now(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Xray documents, merged in this order, or a directory.")
    ],
    remarks: Annotated[str, typer.Option(help="Of a list of documents, the one of this name.")] = "",
    within: Annotated[
        Seconds, typer.Option(min=1.0, max=3600.0, help="Seconds until it is told what is known.")
    ] = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Ask every outbound that the document observes, now, and print who is well.

    A failure is looked into by a few quick requests, as the observers do. Exit code: 0 all are well, 1 not, 2 usage.
    """
    from reachline.doors.observatory import Source, debug_vars, observed, read  # noqa: PLC0415  (light help)

    texts = [
        each for file in files for each in (directory(file) if file.is_dir() else [(str(file), reload.text_of(file))])
    ]
    settings = read([Source(*each) for each in texts], remarks=remarks or None)
    if settings.observatory is None:
        rule, hint = "is needed: nothing is observed without it", "add observatory or burstObservatory"
        raise ConfigError(Problem(place=str(files[0]), path="observatory", value="", rule=rule, hint=hint))
    for each in settings.warnings:
        print(f"warning: {each}", file=sys.stderr)
    selectors = settings.observatory.rules.selectors
    wanted = [tag for tag in observed(settings) if tag.startswith(tuple(selectors))]
    known = {each.tag: each for each in asyncio.run(_asked(settings, frozenset(wanted), within))}
    rows = [(tag, known.get(tag)) for tag in sorted(wanted, key=str.encode)]
    document = {"observatory": debug_vars(known.values()), "unknown": [tag for tag, found in rows if found is None]}
    show(output, rows, _COLUMNS, document=document)
    if not all(found is not None and found.alive for _, found in rows):
        raise typer.Exit(1)


async def _asked(settings: Settings, wanted: frozenset[str], within: Seconds) -> Sequence[Status]:
    """What is known once all are settled, or when the time is over."""
    from reachline.observatory.running import Running  # noqa: PLC0415  (light help)

    kernel.raise_file_limit()
    settled = asyncio.Event()

    left = set(wanted)

    def told(each: Told) -> None:
        if each.changed:
            left.discard(each.tag)
        if not left:
            settled.set()

    running = Running(settings, told=told)
    task = asyncio.create_task(running.run())
    try:
        async with asyncio.timeout(within):
            await (settled.wait() if wanted else asyncio.sleep(0))
    except TimeoutError:
        pass  # what is known by now is told
    finally:
        task.cancel()
        await asyncio.wait((task,))
    return running.statuses() or ()


Row = tuple[str, "Status | None"]


def _said(row: Row) -> str:
    found = row[1]
    return "unknown" if found is None else "alive" if found.alive else "dead"


def _delay(row: Row) -> str:
    found = row[1]
    return f"{found.delay} ms" if found is not None and found.alive else "–"


_COLUMNS: list[Column[Row]] = [
    Column(title="OUTBOUND", cell=lambda row: row[0]),
    Column(title="STATE", cell=_said),
    Column(title="DELAY", cell=_delay, align="right"),
    Column(title="REASON", cell=lambda row: row[1].reason if row[1] is not None else "no answer yet"),
]
