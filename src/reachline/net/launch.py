"""Getting an attempt off: its name, its route, its TLS set up, its machine begun. Knows nothing of time but `now`."""

from __future__ import annotations

import functools
import os
import struct
from collections.abc import Set as AbstractSet
from typing import Final, Protocol

from reachline.model import Failure
from reachline.net import route as routing
from reachline.net.attempt import Attempt, Home, Job, Route
from reachline.net.datagram import Datagram
from reachline.net.echo import Echo
from reachline.net.resolve import Answer, Resolver
from reachline.net.result import Done
from reachline.net.stream import Stream
from reachline.net.wheel import NEVER
from reachline.talk.dns import DnsTalk
from reachline.talk.secure import is_address
from reachline.talk.way import Way

__all__ = ["Launcher", "Pad"]

_NS: Final = 1_000_000_000
_KEPT: Final = 8
"""Jobs of one token whose routes are kept: from four addresses, each by two ways to choose a port."""
_DRAWN: Final = struct.Struct("=512Q")
"""Tokens drawn from the kernel's chance at once: a system call for each would be dearer than all else of a datagram."""


class Pad(Home, Protocol):
    """The engine as the launcher sees it."""

    @property
    def done(self) -> Done:
        """How results leave."""

    @property
    def muted(self) -> AbstractSet[int]:
        """Tokens of jobs whose results do not leave any more."""

    def expect(self, attempt: Attempt, deadline: int) -> None:
        """The attempt's time is up at `deadline`."""

    def leave(self, attempt: Attempt) -> None:
        """The attempt goes on as something else."""

    def passed(self, token: int) -> None:
        """A timeout of the job with this token passed."""

    def arm(self) -> None:
        """Something was begun outside a turn."""


class Launcher:
    """Routes by token and the three machines. Written by the engine's thread only."""

    __slots__ = ("_nonces", "_pad", "_resolver", "_routes", "datagram", "echo", "known", "stream")

    def __init__(self, pad: Pad, resolver: Resolver) -> None:
        self._pad = pad
        self._resolver = resolver
        self._nonces: list[int] = []
        self._routes: dict[int, tuple[Route, ...]] = {}
        self.known: dict[int, Route] = {}
        """The route that each job took last, by the job's identity: they live as long as each other."""
        self.stream = Stream(pad)
        self.datagram = Datagram(pad)
        self.echo = Echo(pad, pad.done, overdue=pad.passed, muted=pad.muted, tokens=self.nonces)

    def address(self, job: Job) -> str:
        """The numeric address the newest attempt went to; empty while there was none, or where only a proxy knows it."""
        if (found := self.known.get(id(job))) is None:
            return ""
        if not found.places:
            return found.address[0]
        return host if is_address(host := found.places[-1][0]) else ""

    def launch(self, attempt: Attempt, route: Route | None, now: int) -> None:
        """By its route where that is known, else by what its name means; the attempt may wait for that word."""
        if route is not None:
            self._go(attempt, route)
            return
        self._look_up(attempt, {}, now)

    def forget(self, token: int) -> None:
        """The token is not probed any more."""
        self._keep(token, ())

    def close(self) -> None:
        """Release shared sockets, give lookups up."""
        self.echo.close()
        self._resolver.close()

    def _look_up(self, attempt: Attempt, known: dict[routing.Name, Answer], now: int) -> None:
        """Its route by what its names mean; the attempt waits for the first one that is not known. `known` came meanwhile."""
        for name in routing.names(attempt.job):
            if name in known:
                continue
            answer = self._resolver.cached(*name)
            if answer is None or (not answer.addresses and answer.until * _NS <= now):
                attempt.step = self._unnamed
                if attempt.deadline == NEVER:
                    self._pad.expect(attempt, now + round((attempt.job.timeout + attempt.job.patience) * _NS))
                self._resolver.ask(*name, functools.partial(self._resolved, attempt, known, name))
                return
            known[name] = answer
        self._take(attempt, routing.route(attempt.job, known, now))

    def _resolved(
        self, attempt: Attempt, known: dict[routing.Name, Answer], name: routing.Name, answer: Answer
    ) -> None:
        """The resolver's word, on the loop, outside a turn."""
        if attempt.over:
            return
        now = self._pad.clocks.ns()
        attempt.resolved_us = (now - attempt.began) // 1_000
        known[name] = answer
        self._look_up(attempt, known, now)
        self._pad.arm()

    def _unnamed(self, attempt: Attempt, events: int) -> None:
        """No word from the resolver within the time."""
        del events
        attempt.note = "the name server does not answer"
        self._pad.settle(attempt, Failure.RESOLVE, 0)

    def _take(self, attempt: Attempt, found: Route | str) -> None:
        if isinstance(found, str):
            self.forget(attempt.job.token)
            attempt.note = found
            self._pad.settle(attempt, Failure.RESOLVE, 0)
            return
        if found.way is Way.ECHO:
            found = self.echo.aimed(found)
        if found.job.port > 0:
            self._go(attempt, found)  # one port, one attempt: its route is not asked for again
            return
        others = [route for route in self._routes.get(found.job.token, ()) if route.job is not found.job]
        self._keep(found.job.token, (*others[1 - _KEPT :], found))
        self._go(attempt, found)

    def _keep(self, token: int, routes: tuple[Route, ...]) -> None:
        """These are the routes of this token."""
        for old in self._routes.pop(token, ()):
            del self.known[id(old.job)]
        if routes:
            self._routes[token] = routes
            self.known |= {id(route.job): route for route in routes}

    def _go(self, attempt: Attempt, route: Route) -> None:
        attempt.route = route
        if not self._is_prepared(attempt):
            return
        if route.way is Way.ECHO:
            self._pad.leave(attempt)
            self._pad.clocks.sync()
            self.echo.add(route, attempt.lateness_us)
            self.echo.flush()
            return
        nonce = self.nonce()
        talk = route.job.probe.talk(route.job.endpoint, nonce)
        attempt.talk = talk.over_stream() if isinstance(talk, DnsTalk) and route.places else talk
        match route.way:
            case Way.CONNECT | Way.STREAM:
                self.stream.begin(attempt, route)
            case Way.DATAGRAM:
                self.datagram.begin(attempt, route)
        if not attempt.over:
            self._pad.expect(attempt, attempt.began + route.timeout_ns)

    def _is_prepared(self, attempt: Attempt) -> bool:
        """Whether its TLS can be set up at all: asked before a packet leaves, and paid for before the clock runs."""
        job = attempt.job
        if job.probe.secure is None and not job.hops:
            return True
        try:
            for secure in (job.probe.secure, *(hop.secure for hop in job.hops)):
                if secure is not None:
                    self._pad.contexts.of(secure, verify=secure.verify)
        except (OSError, ValueError) as error:
            attempt.note = f"TLS cannot be set up: {getattr(error, 'strerror', None) or error}"
            self._pad.settle(attempt, Failure.AGENT, 0)
            return False
        return True

    def nonce(self) -> int:
        """64 bits nobody can guess, never 0: a fresh id and a fresh token each time."""
        if not self._nonces:
            self._draw()
        return self._nonces.pop()

    def nonces(self, count: int) -> list[int]:
        """As many as that, at most a few dozen."""
        if len(self._nonces) < count:
            self._draw()
        drawn = self._nonces[-count:]
        del self._nonces[-count:]
        return drawn

    def _draw(self) -> None:
        self._nonces += filter(None, _DRAWN.unpack(os.urandom(_DRAWN.size)))
