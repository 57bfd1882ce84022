"""An observatory on the probe engine: what its machine asks for is sent by way of each outbound, and told when it ended.

Knows no document and no balancer. Whatever the machine decides is the machine's; what an answer is worth is not looked at here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from itertools import count
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from reachline.core.observing.protocol import Observer
from reachline.core.observing.values import Ask, Purpose, Result, Status, Told
from reachline.model import Clock, Endpoint, Failure, Kind, Seconds
from reachline.net.attempt import Job
from reachline.net.calendar import Calendar
from reachline.net.engine import Engine
from reachline.net.resolve import Resolver
from reachline.net.result import Phases
from reachline.net.wheel import NEVER
from reachline.talk import build
from reachline.talk.hop import Hop
from reachline.talk.secure import is_address

__all__ = ["Observing", "Outlet"]

_NS: Final = 1_000_000_000
_WHOLE_BODY: Final = 16 << 20
"""Bytes of a body that is read to its end; what is longer is taken for whole."""
_ANY: Final = "100-599"
"""Every status is an answer: the machine says which of them pass."""
_PULSE: Final[Seconds] = 0.05
"""Of the engine: what is not stamped by the kernel is told in tenths of a second."""
_PORTS: Final = {"http": 80, "https": 443}
_LONGEST: Final = 60 * _NS
"""Of one wait: nothing is due later that would not be looked at again."""


class Outlet(NamedTuple):
    """How connections leave by an outbound."""

    hops: tuple[Hop, ...] = ()
    """Proxies to go through, the first hop first; none: straight."""
    source: str = ""
    interface: str = ""


_STRAIGHT: Final = Outlet()


class Observing:
    """One machine with its engine. Written by the loop that runs it.

    async with asyncio.TaskGroup() as tasks:
        observing = Observing(machine, outlets)
        tasks.create_task(observing.run())
    """

    def __init__(
        self,
        machine: Observer,
        outlets: Mapping[str, Outlet | None],
        *,
        told: Callable[[Told], None] | None = None,
        grain: int = 0,
        limit: int | None = None,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        """`outlets` are the outbounds by tag; None: whatever goes there fails at once. `limit` caps requests in flight.

        What is due later waits for the next multiple of `grain`, nanoseconds since the start, so that requests begin in
        batches: one by one, each finds the processor's caches full of something else and costs twice as much. 0: nothing waits.
        """
        self._machine: Final = machine
        self._told = told
        self._grain: Final = max(grain, 1)
        self._limit = limit
        self._outlets = dict(outlets)
        self._wall: Final = wall
        self._calendar: Final = Calendar()
        self._offset: Final = wall() - time.monotonic_ns()
        """From monotonic time to the wall's at the start: a clock that is set moves no deadline."""
        self._born: Final = self.now()
        self._asks: dict[int, tuple[Ask, Job, Outlet]] = {}
        """What is in flight and by which way, by its job's token."""
        self._idle: dict[tuple[str, str], list[Job]] = {}
        """Jobs of scheduled requests that are not in flight, by tag and URL: a route is worked out once."""
        self._tokens = count(1)
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        """Wakes…"""
        self._woken = NEVER
        """…at this time of the machine's."""
        self._engine: Engine | None = None

    def now(self) -> int:
        """The machine's time: nanoseconds since 1970, never backwards."""
        return time.monotonic_ns() + self._offset

    def statuses(self) -> tuple[Status, ...]:
        """What is known now."""
        return self.dated(self._machine.statuses(self.now()))

    def dated(self, statuses: tuple[Status, ...]) -> tuple[Status, ...]:
        """The machine's statuses by the wall clock of today, which may have been set since the start."""
        return self._calendar.dated(statuses, self._wall() - self.now())

    def outbounds(self, outlets: Mapping[str, Outlet | None]) -> None:
        """These outbounds exist from now on. One that leaves another way under its old tag is a new one."""
        gone = [key for key in self._idle if key[0] and outlets.get(key[0]) != self._outlets.get(key[0])]
        for job in [job for key in gone for job in self._idle.pop(key)]:
            self._forget(job)
        before, self._outlets = self._outlets, dict(outlets)
        same = tuple(tag for tag, outlet in outlets.items() if tag not in before or before[tag] == outlet)
        now = self.now()
        if len(same) < len(outlets):
            self._machine.outbounds(same, now)
        self._machine.outbounds(tuple(outlets), now)
        self._await()

    def check(self) -> None:
        """Ask every outbound now, beside the schedule."""
        self._machine.check(self.now())
        self._await()

    def called(self, tag: str, passed: bool) -> None:
        """A connection of somebody's by this outbound was made, or could not be for a reason that is not its target's."""
        self._tell(self._machine.called(tag, passed, self.now()))
        self._await()

    async def run(self) -> None:
        """Asks until it is cancelled; what is in flight then is given up."""
        loop = asyncio.get_running_loop()
        resolver = Resolver()
        engine = self._engine = Engine(self._done, resolver=resolver, limit=self._limit, pulse=_PULSE)
        loop.add_reader(engine.fileno(), engine.turn)
        try:
            self._machine.outbounds(tuple(self._outlets), self.now())
            while True:
                self._wake.clear()
                if asks := self._machine.due(self.now()):
                    for ask in asks:
                        self._start(engine, ask)
                    engine.turn()
                self._await()
                await self._wake.wait()
                self._woken = NEVER
        finally:
            loop.remove_reader(engine.fileno())
            engine.close()
            resolver.close()
            self._engine = None
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _await(self) -> None:
        """Wake at the machine's deadline; nothing to do where that is not sooner than what is awaited already."""
        deadline, now = self._machine.deadline(), self.now()
        if deadline is None or deadline > now + _LONGEST:
            deadline = now + _LONGEST
        elif deadline > now:
            deadline += (self._born - deadline) % self._grain
        if deadline >= self._woken or self._engine is None:
            return
        self._woken = deadline
        if self._timer is not None:
            self._timer.cancel()
        # One that has passed waits for a turn of the loop too: a machine that always has something to ask is not alone here.
        at = (deadline - self._offset) / _NS
        self._timer = asyncio.get_running_loop().call_at(at, self._wake.set)

    def _start(self, engine: Engine, ask: Ask) -> None:
        """One connection of its own, by a job that nothing else in flight has, so that an end is told of the right request."""
        outlet = self._outlets.get(ask.tag) if ask.tag else _STRAIGHT
        if outlet is None:
            self._ended(ask, Result(ok=False, reason="io: read/write on closed pipe"))
            return
        idle = self._idle.get((ask.tag, ask.url)) if ask.purpose is not Purpose.RECHECK else None
        job = idle.pop() if idle else self._job(ask, outlet)
        self._asks[job.token] = ask, job, outlet
        engine.start(job, at=engine.now())

    def _job(self, ask: Ask, outlet: Outlet) -> Job:
        endpoint = _endpoint(ask.url)
        limit = _WHOLE_BODY if ask.reads_body else 0
        probe = build(Kind.HTTP, endpoint, {"method": ask.method, "expect": _ANY, "limit": limit})
        return Job(
            token=next(self._tokens),
            endpoint=endpoint,
            probe=probe,
            timeout=ask.timeout / _NS,
            patience=0.0,
            hops=outlet.hops,
            source=outlet.source,
            interface=outlet.interface,
        )

    def _done(  # noqa: PLR0917  (the engine's signature)
        self,
        token: int,
        failure: Failure | None,
        rtt_us: int | None,
        clock: Clock,
        late: bool,
        sent: int,
        lost: int,
        status: int,
        note: str,
        lateness_us: int,
        phases: Phases | None,
        /,
    ) -> None:
        """The whole time of a request counts, from its start to the end of its answer, but for what we ourselves wasted of it."""
        del rtt_us, clock, sent, lost, lateness_us
        ask, job, outlet = self._asks.pop(token)
        now = self._outlets.get(ask.tag) if ask.tag else _STRAIGHT
        # The patience of re-checks is seldom twice the same, and an outbound may have changed meanwhile.
        if ask.purpose is Purpose.RECHECK or (now is not outlet and now != outlet):
            self._forget(job)
        else:
            self._idle.setdefault((ask.tag, ask.url), []).append(job)
        took = phases.pure if phases is not None else None
        ok = failure in (None, Failure.STATUS) and not late and took is not None
        reason = "" if ok else note or ("timeout" if late or failure is None else failure.name.lower())
        self._ended(
            ask, Result(ok=ok, rtt=(took or 0) * 1_000, status=status, reason=reason, ours=failure is Failure.AGENT)
        )

    def _forget(self, job: Job) -> None:
        if self._engine is not None:
            self._engine.cancel(job.token)

    def _ended(self, ask: Ask, result: Result) -> None:
        self._tell(self._machine.ended(ask.serial, result, self.now()))
        self._await()

    def _tell(self, told: tuple[Told, ...]) -> None:
        if self._told is not None:
            for each in told:
                self._told(each)


def _endpoint(url: str) -> Endpoint:
    """Of a URL that its door has checked."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    family = (6 if ":" in host else 4) if is_address(host) else 0
    return Endpoint(scheme=parts.scheme, host=host, port=parts.port or _PORTS[parts.scheme], path=path, family=family)
