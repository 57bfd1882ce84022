"""The role: one asyncio process that serves an Xray document's inbounds. Ends when `stop` is set, once what is under way is over.

Start: all addresses are taken first (a taken one is a usage error). End: nothing new is taken, connections end by themselves, what
is left after the grace is cut off.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from reachline.doors.observatory.carrying import Carrying
from reachline.doors.observatory.inbounds import Served
from reachline.doors.observatory.matching import Question
from reachline.errors import ConfigError
from reachline.model import Seconds
from reachline.net import binding, collector, kernel
from reachline.net.resolve import Resolver
from reachline.passage.carrier import Carrier, Client
from reachline.passage.guide import Guide
from reachline.passage.traffic import Traffic

__all__ = ["Options", "Passage", "Started", "run"]

log: Final = logging.getLogger("reachline.passage")

_BACKLOG: Final = 1_024
"""Clients that wait to be taken: a burst meets us, not the kernel's bound."""
_MOST_TAKEN: Final = 64
"""Clients taken in one turn: those who are served have their turn too."""
_SWEEP: Final[Seconds] = 0.5
"""Between two looks who is silent: half of the shortest patience that is usual."""
_FULL: Final[Seconds] = 0.1
"""Until clients are taken again after descriptors ran out: some connection ends meanwhile, or does not."""
_LOOK: Final[Seconds] = 0.02
"""Between two looks whether everybody has gone, at the end."""
_MOST_SOCKETS: Final = 1_024
"""Listening sockets: each is a descriptor of its own, and clients need two each."""
_NONE_LEFT: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


class Started(NamedTuple):
    """Where a started passage is reached, with the tag of each inbound."""

    inbounds: tuple[tuple[str, tuple[str, int]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a start adds to the document."""

    place: str = "xray"
    """The document's name in messages."""
    grace: Seconds = 5.0
    """For what is under way when it is told to stop."""
    most: int | None = None
    """Connections at once, None: as many as descriptors allow."""


class Passage:
    """The running role, for whoever shows it."""

    def __init__(self, carrying: Carrying, guide: Guide, options: Options) -> None:
        self._options: Final = options
        self._inbounds: Final = carrying.inbounds
        self._traffic: Final = Traffic(carrying.counted)
        self._resolver: Final = Resolver()
        self._carrier: Final = Carrier(carrying, guide, self._traffic, self._resolver)
        self._loop: Final = asyncio.get_running_loop()
        self._sockets: Final[list[tuple[socket.socket, Served]]] = []
        self._is_deaf = False
        self._added = 0
        """Inbounds that came over the API so far."""
        self._tasks: asyncio.TaskGroup | None = None
        self._serving = 0
        # Each takes two descriptors.
        self._most: Final = max(1, options.most or kernel.budget(None) // 2)
        try:
            for served in carrying.inbounds:
                self._bind(served)
        except BaseException:
            self.close()
            raise

    @property
    def addresses(self) -> Started:
        """Where it listens."""
        return Started(tuple((served.tag, sock.getsockname()[:2]) for sock, served in self._sockets))

    @property
    def connections(self) -> int:
        """Those of now, with those that still ask."""
        return self._serving + len(self._carrier.splices)

    def stats(self) -> dict[str, dict[str, dict[str, int]]]:
        """The value of `stats` in `/debug/vars`."""
        return self._traffic.stats()

    def events(self) -> dict[str, int]:
        """What happened so far, by name."""
        return dict(self._traffic.events)

    def swap(self, carrying: Carrying) -> None:
        """Rules, outbounds and patience are these from now on; inbounds stay as they were at the start, accounts with them."""
        if carrying.inbounds != self._inbounds:
            log.warning("inbounds_wait_for_restart")
        self._carrier.swap(carrying)

    async def outbound_of(self, question: Question) -> str:
        """The tag of the one that a connection would go by now; LookupError, in Xray's words, where no rule gives one."""
        return await self._carrier.routes.outbound_of(question)

    def listening(self) -> tuple[tuple[Served, tuple[int, ...]], ...]:
        """Inbounds with the ports that they have."""
        found: dict[str, tuple[Served, list[int]]] = {}
        for sock, served in self._sockets:
            found.setdefault(served.place, (served, []))[1].append(sock.getsockname()[1])
        return tuple((served, tuple(ports)) for served, ports in found.values())

    def listen(self, served: Served) -> None:
        """Take clients there too, until the end. LookupError where its tag is taken, ConfigError where its address is."""
        if self._is_deaf:
            raise LookupError("nobody is taken any more")
        if served.tag and any(each.tag == served.tag for _, each in self._sockets):
            raise LookupError(f"existing tag found: {served.tag}")
        if len(self._sockets) + len(served.ports) > _MOST_SOCKETS:
            raise LookupError(f"at most {_MOST_SOCKETS} ports are listened at")
        self._added += 1
        served = served._replace(place=f"api.inbounds[{self._added}]")
        for sock in self._bind(served):
            if self._tasks is not None:
                self._loop.add_reader(sock, self._take, sock, served)

    def unlisten(self, tag: str) -> bool:
        """Take none any more there; connections that are made stay. False: there is no such inbound."""
        gone = [sock for sock, served in self._sockets if served.tag == tag]
        self._sockets[:] = [each for each in self._sockets if each[1].tag != tag]
        for sock in gone:
            self._loop.remove_reader(sock)
            sock.close()
        return bool(gone)

    def _bind(self, served: Served) -> list[socket.socket]:
        """All of its ports or none."""
        with ExitStack() as taken:
            made = [taken.enter_context(_listening(served, port, self._options.place)) for port in served.ports]
            taken.pop_all()
        self._sockets.extend((sock, served) for sock in made)
        return made

    async def serve(self) -> None:
        """Take clients until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for sock, served in self._sockets:
                self._loop.add_reader(sock, self._take, sock, served)
            try:
                while True:
                    await asyncio.sleep(_SWEEP)
                    self._carrier.sweep(self._loop.time())
            finally:
                self.deafen()

    def deafen(self) -> None:
        """Take no more clients."""
        self._is_deaf, self._tasks = True, None
        for sock, _ in self._sockets:
            self._loop.remove_reader(sock)
            sock.close()
        self._sockets.clear()

    def close(self) -> None:
        """End everything at once."""
        self.deafen()
        self._carrier.close()
        self._resolver.close()

    def _take(self, listener: socket.socket, served: Served) -> None:
        for _ in range(_MOST_TAKEN):
            try:
                sock, address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in _NONE_LEFT:
                    self._traffic.events["no_descriptors"] += 1
                    self._loop.remove_reader(listener)
                    self._loop.call_later(_FULL, self._resume, listener, served)
                    return
                raise
            self._begin(sock, served, address)

    def _resume(self, listener: socket.socket, served: Served) -> None:
        if self._tasks is not None and listener.fileno() >= 0:
            self._loop.add_reader(listener, self._take, listener, served)

    def _begin(self, sock: socket.socket, served: Served, address: tuple[str, int]) -> None:
        if self._tasks is None or self.connections >= self._most:
            self._traffic.events["too_many"] += 1
            sock.close()
            return
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            local = sock.getsockname()
        except OSError:  # it has gone already
            sock.close()
            return
        self._traffic.events["connections"] += 1
        self._serving += 1
        client = Client(sock, served, address[:2], local[:2])
        task = self._tasks.create_task(self._carrier.serve(client))
        task.add_done_callback(self._served)

    def _served(self, _: asyncio.Task[None]) -> None:
        self._serving -= 1


def _listening(served: Served, port: int, place: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in served.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((served.host, port))
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        at = f"{served.host}:{port}"
        raise ConfigError(binding.refused(error, at, path=served.place, place=place)) from error
    return sock


async def run(
    carrying: Carrying,
    guide: Guide,
    options: Options,
    *,
    stop: asyncio.Event,
    beside: tuple[Coroutine[Any, Any, None], ...] = (),
    ready: Callable[[Started, Passage], None] = lambda *_: None,
) -> None:
    """Serves until `stop` is set, with `beside` running as long; ConfigError where an address cannot be had."""
    kernel.raise_file_limit()
    collector.calm()
    try:
        passage = Passage(carrying, guide, options)
    except BaseException:
        for each in beside:
            each.close()  # never begun, and not to be missed
        raise
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(each) for each in (passage.serve(), *beside)]
            ready(passage.addresses, passage)
            log.info("passage_started", extra={"inbounds": len(carrying.inbounds), "outbounds": len(carrying.ways)})
            await stop.wait()
            await _drained(passage, options.grace)
            for task in running:
                task.cancel()
        log.info("passage_stopped", extra=passage.events())
    finally:
        passage.close()


async def _drained(passage: Passage, grace: Seconds) -> None:
    """Nothing new is taken; what is under way may end."""
    passage.deafen()
    loop = asyncio.get_running_loop()
    until = loop.time() + grace
    while passage.connections and loop.time() < until:  # noqa: ASYNC110 - connections are many owners'
        await asyncio.sleep(_LOOK)
