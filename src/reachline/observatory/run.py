"""The role: observes, answers, follows its document's changes until `stop` is set."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple

from reachline.doors.observatory import Settings
from reachline.errors import ConfigError, Problem
from reachline.observatory.answers import methods, variables
from reachline.observatory.metrics import metrics
from reachline.observatory.running import Running

__all__ = ["Options", "Started", "run"]

log: Final = logging.getLogger("reachline.observatory")
_EVERY: Final = frozenset(("ObservatoryService", "RoutingService"))


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
    rng: Random = field(default_factory=Random)


async def run(
    settings: Settings,
    options: Options,
    *,
    stop: asyncio.Event,
    changes: AsyncIterator[Settings] | None = None,
    stats: Callable[[], Mapping[str, object]] = dict,
    ready: Callable[[Started, Running], None] = lambda *_: None,
) -> None:
    """ConfigError where an address cannot be had. Addresses stay as they were at the start; everything else follows `changes`."""
    running = Running(settings, options.rng)
    async with AsyncExitStack() as stack:
        started = await _served(stack, settings, options, running, stats)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        own = [tasks.create_task(running.run())]
        if changes is not None:
            own.append(tasks.create_task(_followed(running, changes)))
        ready(started, running)
        await stop.wait()
        for task in own:
            task.cancel()


async def _served(
    stack: AsyncExitStack,
    settings: Settings,
    options: Options,
    running: Running,
    stats: Callable[[], Mapping[str, object]],
) -> Started:
    at = options.metrics or ("" if settings.metrics is None else settings.metrics.listen)
    api = options.api or ("" if settings.api is None else settings.api.listen)
    for path, address in (("metrics.listen", at), ("api.listen", api)):
        _checked(address, path, options.place)
    page = (
        await stack.enter_async_context(metrics(at, lambda: variables(running, stats()), place=options.place))
        if at
        else None
    )
    if not api:
        return Started(page, None)
    from reachline.net.unary import answering  # noqa: PLC0415  (gRPC, which a document without an api goes without)

    wanted = _EVERY if options.api or settings.api is None else frozenset(settings.api.services)
    port = await stack.enter_async_context(answering(api, methods(running, wanted), place=options.place))
    return Started(page, port)


def _checked(address: str, path: str, place: str) -> None:
    host, _, port = address.rpartition(":")
    if address and not (host and port.isdecimal() and int(port) <= 65_535):
        rule, hint = "must be host:port", "127.0.0.1:11111"
        raise ConfigError(Problem(place=place, path=path, value=repr(address), rule=rule, hint=hint))


async def _followed(running: Running, changes: AsyncIterator[Settings]) -> None:
    async for settings in changes:
        running.swap(settings)
        log.info("document_changed", extra={"outbounds": len(settings.outbounds)})
