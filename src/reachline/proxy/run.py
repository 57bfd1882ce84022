"""The role: one asyncio process that forwards by an Envoy document. Ends when `stop` is set, once what is under way is over.

Start: addresses are taken first (a taken one is a usage error), then clusters are kept; connections are taken once every cluster
has its first endpoints, as in Envoy. End: nothing new is taken, connections end with their answer, what is left is cut off.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple

from reachline.doors.envoy.chain import Chain
from reachline.members import Address
from reachline.model import Seconds
from reachline.net import collector, kernel
from reachline.proxy.admin import Admin
from reachline.proxy.clusters import Clusters
from reachline.proxy.following import Following
from reachline.proxy.listeners import Listeners

__all__ = ["Options", "Started", "run"]

log: Final = logging.getLogger("reachline.proxy")

_FLUSH: Final[Seconds] = 1.0
"""How late a line of a log may be in its file; Envoy's own is ten seconds."""
_LOOK: Final[Seconds] = 0.02
"""Between two looks whether everybody has gone, at the end."""


class Started(NamedTuple):
    """Where a started proxy is reached."""

    listeners: tuple[tuple[str, Address], ...]
    admin: Address | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a start adds to the document."""

    place: str = "envoy"
    """The document's name in messages."""
    grace: Seconds = 5.0
    """For what is under way when it is told to stop."""
    seed: int | None = None
    """Of all chance, so that a run repeats."""


async def run(
    chain: Chain, options: Options, *, stop: asyncio.Event, ready: Callable[[Started], None] = lambda _: None
) -> None:
    """Serves until `stop` is set or its admin is told to quit; ConfigError where an address, a file or a cluster cannot be had."""
    kernel.raise_file_limit()
    collector.calm()  # what a request is made of goes by itself when it ends
    rng = Random(options.seed)
    clusters = Clusters(chain, rng=rng, wall=time.time, place=options.place)
    listeners = Listeners(clusters.get, rng, options.place)
    clusters.moved = listeners.forget
    admin: Admin | None = None
    try:
        following = Following(chain, clusters, listeners, options.place)
        if chain.admin is not None:
            admin = Admin(chain, clusters, listeners, leave=stop.set, reopen=listeners.reopen, rng=rng)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in (clusters.run(), following.run(), _tend(listeners))]
            if admin is not None:
                admin.open()
            await _serve(clusters, following, listeners, admin, stop=stop, ready=ready)
            await _drain(listeners, options.grace)
            for task in tasks:
                task.cancel()
        log.info("proxy_stopped")
    finally:
        listeners.close()
        if admin is not None:
            admin.close()


async def _settled(clusters: Clusters, following: Following) -> None:
    """Until what is named is known, and its endpoints are."""
    await following.settled.wait()
    await clusters.settled.wait()


async def _serve(
    clusters: Clusters,
    following: Following,
    listeners: Listeners,
    admin: Admin | None,
    *,
    stop: asyncio.Event,
    ready: Callable[[Started], None],
) -> None:
    """Until told to stop."""
    stopping, settled = asyncio.create_task(stop.wait()), asyncio.create_task(_settled(clusters, following))
    try:
        await asyncio.wait((stopping, settled), return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            return
        listeners.open()
        found = tuple((each.listener.name, address) for each in listeners.doorways for address in each.addresses)
        if admin is not None:
            admin.is_live = True
        told = ", ".join(f"{name} {address}" for name, address in found)
        log.info("proxy_started", extra={"listeners": told, "clusters": len(clusters.backends)})
        ready(Started(found, None if admin is None else admin.address))
        await stopping
    finally:
        stopping.cancel()
        settled.cancel()


async def _tend(listeners: Listeners) -> None:
    loop = asyncio.get_running_loop()
    flushed = loop.time()
    while True:
        await asyncio.sleep(listeners.pause)
        now = loop.time()
        is_due = now - flushed >= _FLUSH
        listeners.tend(now, flush=is_due)
        flushed = now if is_due else flushed


async def _drain(listeners: Listeners, grace: Seconds) -> None:
    """Nothing new is taken; what is under way may end."""
    loop = asyncio.get_running_loop()
    until = loop.time() + grace
    listeners.drain()
    while loop.time() < until and listeners.is_busy:  # noqa: ASYNC110 - connections are many owners'
        await asyncio.sleep(_LOOK)
