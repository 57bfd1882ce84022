"""`reachline up FILE`: a center and its agents on this machine, with the console; `--demo` adds a world to watch."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final

import typer

from reachline.cli.documents import document_in
from reachline.cli.ending import stopped_by_signals
from reachline.cli.lined import lines_of
from reachline.cli.logs import LogFormat, LogFormatOption, LogLevelOption, start_logging
from reachline.compose import Demo, Setup, Up, up
from reachline.doors.settings import Document
from reachline.errors import ConfigError, Problem
from reachline.net import reload

__all__ = ["command"]

_WORLD: Final = "reachline.testing.demo"


def command(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="The document: clusters with their lines; agents and center where you like."
        ),
    ] = None,
    door: Annotated[
        Path | None,
        typer.Option("--door", metavar="FILE", help="An Xray document in its place: its observed outbounds are lines."),
    ] = None,
    remarks: Annotated[str, typer.Option(help="Of a list of Xray documents, the one of this name.")] = "",
    demo: Annotated[
        bool, typer.Option("--demo", help="Play a story: services with faults, callers, and what to look at.")
    ] = False,
    story: Annotated[
        Path | None, typer.Option("--story", metavar="FILE", help="Another story for --demo (see testing/story.yaml).")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65_535, help="Console and API, in place of the document's port; 0: any."),
    ] = None,
    agents_port: Annotated[
        int | None, typer.Option("--agents-port", min=0, max=65_535, help="Agents from elsewhere (gRPC), likewise.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Allow a public address without TLS and authentication.")
    ] = False,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = "warning",
) -> None:
    """Run a center and its agents on this machine, until Ctrl-C.

    Agents are the document's `agents:`, or one named `local`. A document is three lines at least: clusters:, a name with
    lines:, and a list of URLs. `--door` takes an Xray document in its place. `--demo` plays examples/quickstart.yaml: watch a line go bad and come back.
    """
    if story is not None and not demo:
        raise ConfigError(Problem(place="--story", path="", value=str(story), rule="is for --demo", hint="add --demo"))
    start_logging(log_format, log_level)
    source = _source(file, door, remarks=remarks, demo=demo)
    text = reload.text_of(source)
    read = None if door is None else _lines(door, remarks, port, agents_port)
    document = _with_ports(document_in(text, str(source)), port, agents_port) if read is None else read(text)
    setup = Setup(
        source=source,
        text=text,
        read=read,
        console=Path(str(files("reachline") / "console")),
        environ=os.environ,
        insecure=insecure,
        demo=Demo(module=_WORLD, story=story) if demo else None,
        log_level=log_level,
        log_format=log_format.value,
    )
    asyncio.run(_until_signalled(document, setup))


def _source(file: Path | None, door: Path | None, *, remarks: str, demo: bool) -> Path:
    """The one file that is named."""
    rule, path = "", "--door"
    if file is None and door is None:
        path, rule = "FILE", "is needed, or --door with an Xray document"
    elif file is not None and door is not None:
        rule = "takes the place of FILE: name one of them"
    elif door is None and remarks:
        path, rule = "--remarks", "is for --door"
    elif door is not None and demo:
        rule = "is not for --demo, whose world is its own"
    found = file or door
    if rule or found is None:
        raise ConfigError(Problem(place="up", path=path, value="", rule=rule))
    return found


def _lines(door: Path, remarks: str, http: int | None, grpc: int | None) -> Callable[[str], Document]:
    read = lines_of(door, remarks=remarks)
    return lambda text: _with_ports(read(text), http, grpc)


def _with_ports(document: Document, http: int | None, grpc: int | None) -> Document:
    """The document with the ports that the command line names."""
    ports = {"http": http, "grpc": grpc}
    asked = {
        name: f"{getattr(document.center, name).rpartition(':')[0]}:{port}"
        for name, port in ports.items()
        if port is not None
    }
    return document.model_copy(update={"center": document.center.model_copy(update=asked)}) if asked else document


async def _until_signalled(document: Document, setup: Setup) -> None:
    with stopped_by_signals(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as stop:
        await up(document, setup, stop=stop, ready=lambda reached: _greet(reached, setup), say=_say)


def _greet(reached: Up, setup: Setup) -> None:
    lines = "1 line" if reached.lines == 1 else f"{reached.lines} lines"
    agents = ", ".join(name.removeprefix("agent ") for name in reached.agents)
    _say(f"Reachline is up: {lines}, watched by {agents}.")
    _say(f"  console   {reached.http}/")
    _say("  terminal  reachline status, reachline explain LINE")
    _say(f"  journal   {reached.journal}{' (goes when the demo ends)' if setup.demo else ''}")
    _say("  end       Ctrl-C\n")


def _say(text: str) -> None:
    print(text, flush=True)
