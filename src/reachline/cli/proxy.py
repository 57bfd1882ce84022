"""`reachline proxy FILE`: forward by an Envoy bootstrap, or carry by an Xray document, until told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated

import typer

from reachline.cli.documents import bootstrap_in, kind_of, texts
from reachline.cli.ending import stopped_by_signals
from reachline.cli.following import followed, refusals
from reachline.cli.lists import lists
from reachline.cli.logs import LogFormat, LogFormatOption, LogLevelOption, start_logging
from reachline.errors import ConfigError, Problem
from reachline.net import reload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reachline.doors.envoy.chain import Chain
    from reachline.doors.observatory import Changes, Source
    from reachline.doors.observatory.carrying import Carrying
    from reachline.doors.observatory.matching import Question
    from reachline.observatory.handlers import Handlers
    from reachline.observatory.run import Started as Answered
    from reachline.passage.run import Passage
    from reachline.passage.run import Started as Reached
    from reachline.proxy.run import Options, Started

__all__ = ["command"]

log = logging.getLogger(__name__)


def command(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="An Envoy bootstrap (YAML or JSON), or an Xray document.")
    ],
    grace: Annotated[float, typer.Option(help="Seconds for what is under way when it is told to stop.")] = 5.0,
    seed: Annotated[int | None, typer.Option(help="Of all chance, so that a run repeats.")] = None,
    remarks: Annotated[str, typer.Option(help="Of a list of Xray documents, the one of this name.")] = "",
    compat: Annotated[str, typer.Option(help="strict: observers and balancers exactly as Xray's.")] = "",
    geodata: Annotated[Path | None, typer.Option(help="Directory of geosite.dat and geoip.dat.")] = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = "info",
) -> None:
    """Run a proxy: listeners, routes and clusters of an Envoy bootstrap, or inbounds, rules and outbounds of an Xray document.

    Ends on SIGINT and SIGTERM once what is under way is over. What of the document is not supported is refused by name.
    """
    start_logging(log_format, log_level)
    text = "" if file.is_dir() else reload.text_of(file)
    if file.is_dir() or kind_of(text) == "observatory":
        handlers = _handlers(file, remarks=remarks, compat=compat, geodata=geodata)
        asyncio.run(_carried(file, handlers, grace=grace, seed=seed))
        return
    if remarks or compat or geodata is not None:
        rule = "are of Xray documents, and this is none"
        raise ConfigError(Problem(place=str(file), path="--remarks, --compat, --geodata", value="", rule=rule))
    from reachline.proxy.run import Options  # noqa: PLC0415  (the other role needs none of it)

    chain = bootstrap_in(text, str(file))
    asyncio.run(_until_signalled(chain, Options(place=str(file), grace=grace, seed=seed)))


async def _until_signalled(chain: Chain, options: Options) -> None:
    from reachline.proxy.run import run  # noqa: PLC0415  (as above)

    with stopped_by_signals(signal.SIGINT, signal.SIGTERM) as stop:
        await run(chain, options, stop=stop, ready=_say)


def _say(started: Started) -> None:
    listeners = ", ".join(f"{name or 'listener'} {address}" for name, address in started.listeners)
    admin = f" (admin: {started.admin})" if started.admin is not None else ""
    print(f"reachline proxy: {listeners}{admin}", flush=True)


def _handlers(file: Path, *, remarks: str, compat: str, geodata: Path | None) -> Handlers[Carrying]:
    """The document, read now and whenever it or what came over the API changed."""
    from reachline.doors.observatory.carrying import read_carrying  # noqa: PLC0415  (as above)
    from reachline.observatory.handlers import Handlers  # noqa: PLC0415  (as above)

    if compat not in {"", "strict"}:
        raise ConfigError(Problem(place="proxy", path="--compat", value=repr(compat), rule="must be strict"))
    load = lists(file, geodata)

    def read(sources: Sequence[Source], changes: Changes) -> Carrying:
        return read_carrying(sources, load=load, remarks=remarks or None, strict=bool(compat), changes=changes)

    return Handlers(_sources(file), read, lambda found: found.settings, remarks=remarks or None)


def _sources(file: Path) -> list[Source]:
    from reachline.doors.observatory import Source  # noqa: PLC0415  (as above)

    return [Source(*each) for each in texts(file)]


def _warn(carrying: Carrying) -> None:
    for each in carrying.warnings:
        print(f"warning: {each}", file=sys.stderr)


async def _carried(file: Path, handlers: Handlers[Carrying], *, grace: float, seed: int | None) -> None:
    """One object observes and chooses; the connection path, `metrics` and `api` are three that ask it."""
    from reachline.observatory import run as observatory  # noqa: PLC0415  (as above)
    from reachline.observatory.handling import inbound_methods, outbound_methods  # noqa: PLC0415  (as above)
    from reachline.observatory.running import Running  # noqa: PLC0415  (as above)
    from reachline.passage.run import Options, run  # noqa: PLC0415  (as above)

    carrying, place = handlers.current, str(file)
    _warn(carrying)
    running = Running(carrying.settings, Random(seed))
    made: list[Passage] = []

    def swap(changed: Carrying) -> None:
        running.swap(changed.settings)
        made[0].swap(changed)
        log.info("document_changed", extra={"outbounds": len(changed.ways)})

    async def follow() -> None:
        async for sources in followed(handlers.sources, lambda: _sources(file)):
            with refusals():
                swap(await handlers.reread(sources))
                _warn(handlers.current)

    def ready(reached: Reached, passage: Passage) -> None:
        made.append(passage)
        handlers.apply = swap
        _say_inbounds(reached, answered)

    def stats() -> Mapping[str, object]:
        return made[0].stats() if made else {}

    async def route(question: Question) -> str:
        return await _begun(made).outbound_of(question)

    with stopped_by_signals(signal.SIGINT, signal.SIGTERM) as stop:
        options = observatory.Options(place=place)
        methods = outbound_methods(handlers) | inbound_methods(lambda: _begun(made))
        async with observatory.served(
            running, carrying.settings, options, stats=stats, route=route, handlers=methods
        ) as answered:
            beside = (running.run(), follow())
            await run(carrying, running, Options(place=place, grace=grace), stop=stop, beside=beside, ready=ready)


def _begun(made: Sequence[Passage]) -> Passage:
    if not made:
        raise LookupError("it has not begun yet")
    return made[0]


def _say_inbounds(reached: Reached, answered: Answered) -> None:
    parts = [f"{tag or 'inbound'} {host}:{port}" for tag, (host, port) in reached.inbounds]
    parts += [
        f"{name} port {port}" for name, port in zip(("metrics", "api"), answered, strict=True) if port is not None
    ]
    print(f"reachline proxy: {', '.join(parts)}", flush=True)
