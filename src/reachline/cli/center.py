"""`reachline center FILE`: judge lines and publish weights until told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from reachline.center.reloading import Source
from reachline.center.run import Options, Started, run
from reachline.cli.documents import document_in
from reachline.cli.ending import stopped_by_signals
from reachline.cli.logs import LogFormat, LogFormatOption, LogLevelOption, start_logging
from reachline.doors.settings import Document
from reachline.net import reload

__all__ = ["command"]


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The document: clusters, lines, agents, center.")],
    also: Annotated[
        list[str] | None,
        typer.Option("--also", metavar="ADDRESS", help="One more address for agents: host:port or unix:/path."),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Allow a public address without TLS and authentication.")
    ] = False,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = "info",
) -> None:
    """Run a center: agents report to it, it judges, publishes weights, and keeps a journal.

    Ends cleanly on SIGINT and SIGTERM. The document is read again when its file changes.
    """
    start_logging(log_format, log_level)
    text = reload.text_of(file)
    document = document_in(text, str(file))
    assets = Path(str(files("reachline") / "console"))
    options = Options(
        source=Source(file, text), console=assets, also=tuple(also or ()), insecure=insecure, environ=os.environ
    )
    asyncio.run(_until_signalled(document, options))


async def _until_signalled(document: Document, options: Options) -> None:
    with stopped_by_signals(signal.SIGINT, signal.SIGTERM) as stop:
        await run(document, options, stop=stop, ready=_say)


def _say(started: Started) -> None:
    print(f"reachline center: {started.http} (agents: {', '.join(started.grpc)})", flush=True)
