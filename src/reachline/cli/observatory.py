"""`reachline observatory FILE…`: observe the outbounds of an Xray document and answer as Xray's interfaces do."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated

import typer

from reachline.cli.documents import texts
from reachline.cli.ending import stopped_by_signals
from reachline.cli.following import followed
from reachline.cli.logs import LogFormat, LogFormatOption, LogLevelOption, start_logging
from reachline.errors import ConfigError, Problem

if TYPE_CHECKING:
    from reachline.doors.observatory import Settings
    from reachline.observatory.run import Options, Started
    from reachline.observatory.running import Running

__all__ = ["command"]


def command(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Xray documents, merged in this order, or a directory.")
    ],
    metrics: Annotated[str, typer.Option(help="host:port of /debug/vars in place of the document's.")] = "",
    api: Annotated[str, typer.Option(help="host:port of the gRPC services in place of the document's.")] = "",
    steer: Annotated[
        str, typer.Option(help="host:port of a running Xray's api: its balancers follow what is judged here.")
    ] = "",
    remarks: Annotated[str, typer.Option(help="Of a list of documents, the one of this name.")] = "",
    compat: Annotated[str, typer.Option(help="strict: observers and balancers exactly as Xray's.")] = "",
    seed: Annotated[int | None, typer.Option(help="Of all chance, so that a run repeats.")] = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = "info",
) -> None:
    """Observe the outbounds of an Xray document; /debug/vars and gRPC answer at the addresses of its `metrics` and `api`.

    The document is read again when it changes; one that is wrong changes nothing. Ends on SIGINT and SIGTERM.
    """
    from reachline.observatory.run import Options  # noqa: PLC0415  (light help)

    start_logging(log_format, log_level)
    if compat not in {"", "strict"}:
        raise ConfigError(Problem(place="observatory", path="--compat", value=repr(compat), rule="must be strict"))
    settings = _read(files, remarks=remarks, strict=bool(compat))
    options = Options(place=str(files[0]), metrics=metrics, api=api, steer=steer, rng=Random(seed))
    asyncio.run(_until_signalled(settings, options, files, remarks))


def _read(files: Sequence[Path], *, remarks: str, strict: bool) -> Settings:
    from reachline.doors.observatory import Source, read  # noqa: PLC0415  (light help)

    sources = [Source(*each) for file in files for each in texts(file)]
    settings = read(sources, remarks=remarks or None, strict=strict)
    for each in settings.warnings:
        print(f"warning: {each}", file=sys.stderr)
    if settings.observatory is None:
        print("warning: nothing is observed: add observatory or burstObservatory", file=sys.stderr)
    return settings


async def _until_signalled(settings: Settings, options: Options, files: Sequence[Path], remarks: str) -> None:
    from reachline.observatory.run import run  # noqa: PLC0415  (light help)

    with stopped_by_signals(signal.SIGINT, signal.SIGTERM) as stop:
        changed = _changes(files, remarks=remarks, strict=settings.strict)
        await run(settings, options, stop=stop, changes=changed, ready=_say)


def _changes(files: Sequence[Path], *, remarks: str, strict: bool) -> AsyncIterator[Settings]:
    """The whole document, whenever one of its files is another; files that come into a directory later are not looked for."""
    paths = [name for file in files for name, _ in texts(file)]
    return followed(paths, lambda: _read(files, remarks=remarks, strict=strict))


def _say(started: Started, _: Running) -> None:
    parts = [f"{name} port {port}" for name, port in zip(("metrics", "api"), started, strict=True) if port is not None]
    print(f"reachline observatory: {', '.join(parts) or 'nothing is served: --metrics, --api'}", flush=True)
