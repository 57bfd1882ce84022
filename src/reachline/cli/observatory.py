"""`reachline observatory FILE…`: observe the outbounds of an Xray document and answer as Xray's interfaces do."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from reachline.cli.documents import texts
from reachline.cli.ending import stopped_by_signals
from reachline.cli.following import followed, refusals
from reachline.cli.lists import lists
from reachline.cli.logs import LogFormat, LogFormatOption, LogLevelOption, start_logging
from reachline.errors import ConfigError, Problem

if TYPE_CHECKING:
    from reachline.doors.observatory import Changes, Settings, Source
    from reachline.doors.observatory.conditions import Geodata
    from reachline.doors.observatory.matching import Question, Router
    from reachline.net.resolve import Resolver
    from reachline.observatory.handlers import Handlers
    from reachline.observatory.run import Options, Started
    from reachline.observatory.running import Running

__all__ = ["command"]


class _Document(NamedTuple):
    """As it was read, with what it was read from."""

    sources: Sequence[Source]
    settings: Settings


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
    geodata: Annotated[Path | None, typer.Option(help="Directory of geosite.dat and geoip.dat, for TestRoute.")] = None,
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
    handlers = _handlers(files, remarks=remarks, strict=bool(compat))
    _warn(handlers.current)
    options = Options(place=str(files[0]), metrics=metrics, api=api, steer=steer, rng=Random(seed))
    asyncio.run(_until_signalled(handlers, options, files, remarks=remarks, load=lists(files[0], geodata)))


def _handlers(files: Sequence[Path], *, remarks: str, strict: bool) -> Handlers[_Document]:
    from reachline.doors.observatory import read  # noqa: PLC0415  (light help)
    from reachline.observatory.handlers import Handlers  # noqa: PLC0415  (light help)

    def read_(sources: Sequence[Source], changes: Changes) -> _Document:
        settings = read(sources, remarks=remarks or None, strict=strict, changes=changes)
        return _Document(sources, settings)

    return Handlers(_sources(files), read_, lambda found: found.settings, remarks=remarks or None)


def _sources(files: Sequence[Path]) -> list[Source]:
    from reachline.doors.observatory import Source  # noqa: PLC0415  (light help)

    return [Source(*each) for file in files for each in texts(file)]


def _warn(document: _Document) -> None:
    for each in document.settings.warnings:
        print(f"warning: {each}", file=sys.stderr)
    if document.settings.observatory is None:
        print("warning: nothing is observed: add observatory or burstObservatory", file=sys.stderr)


async def _until_signalled(
    handlers: Handlers[_Document], options: Options, files: Sequence[Path], *, remarks: str, load: Geodata
) -> None:
    from reachline.observatory.handling import outbound_methods  # noqa: PLC0415  (light help)
    from reachline.observatory.run import run  # noqa: PLC0415  (light help)

    made: list[Running] = []
    testing = _Testing(handlers, lambda: made[0], lambda found: _router(found, load, remarks))

    def ready(started: Started, running: Running) -> None:
        made.append(running)
        handlers.apply = lambda found: running.swap(found.settings)
        _say(started)

    with stopped_by_signals(signal.SIGINT, signal.SIGTERM) as stop, closing(testing):
        await run(
            handlers.settings,
            options,
            stop=stop,
            changes=_changes(handlers, files),
            route=testing.route,
            handlers=outbound_methods(handlers),
            ready=ready,
        )


def _router(document: _Document, load: Geodata, remarks: str) -> Router:
    from reachline.doors.observatory.carrying import read_router  # noqa: PLC0415  (light help)

    return read_router(document.sources, document.settings, load=load, remarks=remarks or None)


class _Testing:
    """TestRoute, which nobody may ever ask: the rules are read when somebody does, and again when the document is another."""

    def __init__(
        self,
        handlers: Handlers[_Document],
        running: Callable[[], Running],
        router: Callable[[_Document], Router],
    ) -> None:
        self._handlers = handlers
        self._running = running
        self._read = router
        self._resolver: Resolver | None = None
        self._known: tuple[_Document, Router] | None = None

    async def route(self, question: Question) -> str:
        """The outbound of a connection; LookupError where no rule gives one, and where a rule cannot be had here."""
        from reachline.net.resolve import Resolver  # noqa: PLC0415  (as above)
        from reachline.passage.routes import Routes  # noqa: PLC0415  (as above)

        self._resolver = self._resolver or Resolver()
        router = await self._router()
        return await Routes(lambda: router, self._running(), self._resolver).outbound_of(question)

    async def _router(self) -> Router:
        document = self._handlers.current
        if self._known is None or self._known[0] is not document:
            try:
                self._known = document, await asyncio.to_thread(self._read, document)
            except ConfigError as error:
                raise LookupError("; ".join(map(str, error.problems))) from error
        return self._known[1]

    def close(self) -> None:
        """Nobody asks any more."""
        if self._resolver is not None:
            self._resolver.close()


async def _changes(handlers: Handlers[_Document], files: Sequence[Path]) -> AsyncIterator[Settings]:
    """The whole document, whenever one of its files is another; files that come into a directory later are not looked for."""
    async for sources in followed(handlers.sources, lambda: _sources(files)):
        with refusals():
            document = await handlers.reread(sources)
            _warn(document)
            yield document.settings


def _say(started: Started) -> None:
    parts = [f"{name} port {port}" for name, port in zip(("metrics", "api"), started, strict=True) if port is not None]
    print(f"reachline observatory: {', '.join(parts) or 'nothing is served: --metrics, --api'}", flush=True)
