"""`reachline proxy FILE`: forward by an Envoy bootstrap until told to stop."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Annotated

import typer

from reachline.cli.documents import bootstrap_in
from reachline.cli.ending import stopped_by_signals
from reachline.cli.logs import LogFormat, LogFormatOption, LogLevelOption, start_logging
from reachline.doors.envoy.chain import Chain
from reachline.net import reload
from reachline.proxy.run import Options, Started, run

__all__ = ["command"]


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An Envoy bootstrap, YAML or JSON.")],
    grace: Annotated[float, typer.Option(help="Seconds for what is under way when it is told to stop.")] = 5.0,
    seed: Annotated[int | None, typer.Option(help="Of all chance, so that a run repeats.")] = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = "info",
) -> None:
    """Run a proxy: listeners, routes and clusters as the document says, picked and judged as in the SDK.

    Ends on SIGINT and SIGTERM once what is under way is over. What of the document is not supported is refused by name.
    """
    start_logging(log_format, log_level)
    chain = bootstrap_in(reload.text_of(file), str(file))
    asyncio.run(_until_signalled(chain, Options(place=str(file), grace=grace, seed=seed)))


async def _until_signalled(chain: Chain, options: Options) -> None:
    with stopped_by_signals(signal.SIGINT, signal.SIGTERM) as stop:
        await run(chain, options, stop=stop, ready=_say)


def _say(started: Started) -> None:
    listeners = ", ".join(f"{name or 'listener'} {address}" for name, address in started.listeners)
    admin = f" (admin: {started.admin})" if started.admin is not None else ""
    print(f"reachline proxy: {listeners}{admin}", flush=True)
