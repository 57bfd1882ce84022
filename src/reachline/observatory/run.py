"""The role: observes, answers, follows its document's changes until `stop` is set."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType
from typing import Final, NamedTuple

from reachline.doors.observatory import Settings
from reachline.errors import ConfigError, Problem
from reachline.observatory.answers import Method, Route, methods, variables
from reachline.observatory.entries import Entries
from reachline.observatory.metrics import metrics
from reachline.observatory.running import Running

__all__ = ["Options", "Started", "run", "served"]

log: Final = logging.getLogger("reachline.observatory")
_EVERY: Final = frozenset(("ObservatoryService", "RoutingService", "HandlerService"))
_NONE: Final[Mapping[str, Method]] = MappingProxyType({})


class Started(NamedTuple):
    """Ports of what is served; None: not served."""

    metrics: int | None
    api: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a start adds to the document."""

    place: str = "xray"
    metrics: str = ""
    """`host:port`, empty: as the document says."""
    api: str = ""
    """Likewise; the document's `services` hold for its own address."""
    steer: str = ""
    """`host:port` of a running core's `api`, which is driven; empty: none."""
    rng: Random = field(default_factory=Random)


async def run(
    settings: Settings,
    options: Options,
    *,
    stop: asyncio.Event,
    changes: AsyncIterator[Settings] | None = None,
    stats: Callable[[], Mapping[str, object]] = dict,
    route: Route | None = None,
    handlers: Mapping[str, Method] = _NONE,
    ready: Callable[[Started, Running], None] = lambda *_: None,
) -> None:
    """ConfigError where an address cannot be had. Addresses stay as they were at the start; everything else follows `changes`."""
    _checked(options.steer, "--steer", options.place)
    running = Running(settings, options.rng)
    answered = served(running, settings, options, stats=stats, route=route, handlers=handlers)
    async with answered as started, asyncio.TaskGroup() as tasks:
        own = [tasks.create_task(running.run())]
        if changes is not None:
            own.append(tasks.create_task(_followed(running, changes)))
        if options.steer:
            from reachline.observatory.steering import Steering  # noqa: PLC0415  (gRPC, as below)

            own.append(tasks.create_task(Steering(options.steer, running.balancers, running.targets).run()))
        ready(started, running)
        await stop.wait()
        for task in own:
            task.cancel()


@asynccontextmanager
async def served(
    running: Running,
    settings: Settings,
    options: Options,
    *,
    stats: Callable[[], Mapping[str, object]] = dict,
    route: Route | None = None,
    handlers: Mapping[str, Method] = _NONE,
) -> AsyncIterator[Started]:
    """Answer for what somebody else runs, inside the block; ConfigError as above."""
    at = options.metrics or ("" if settings.metrics is None else settings.metrics.listen)
    api = options.api or ("" if settings.api is None else settings.api.listen)
    for path, address in (("metrics.listen", at), ("api.listen", api)):
        _checked(address, path, options.place)
    entries = Entries(running.shown)

    async def variables_now() -> bytes:
        return variables(await entries.current(), stats())

    async with AsyncExitStack() as stack:
        page = await stack.enter_async_context(metrics(at, variables_now, place=options.place)) if at else None
        port = None
        if api:
            from reachline.net.unary import answering  # noqa: PLC0415  (gRPC, which a document without an api goes without)

            wanted = _EVERY if options.api or settings.api is None else frozenset(settings.api.services)
            port = await stack.enter_async_context(
                answering(api, methods(running, entries, wanted, route=route, handlers=handlers), place=options.place)
            )
        stack.callback(entries.stop)
        if at or api:
            entries.follow()
        yield Started(page, port)


def _checked(address: str, path: str, place: str) -> None:
    host, _, port = address.rpartition(":")
    if address and not (host and port.isdecimal() and int(port) <= 65_535):
        rule, hint = "must be host:port", "127.0.0.1:11111"
        raise ConfigError(Problem(place=place, path=path, value=repr(address), rule=rule, hint=hint))


async def _followed(running: Running, changes: AsyncIterator[Settings]) -> None:
    async for settings in changes:
        running.swap(settings)
        log.info("document_changed", extra={"outbounds": len(settings.outbounds)})
