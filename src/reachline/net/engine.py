"""The probe engine: one epoll with a timerfd inside, nested in asyncio, so that one thread runs both loops.

It owns connect, TLS, deadline and close; a talk (`reachline.talk`) only says what to send and what it makes of the answer.
A network failure is data: every start ends in exactly one call of `done`, unless it is cancelled. It refuses to know lines,
windows, plans and centers.

    engine = Engine(done)
    loop.add_reader(engine.fileno(), engine.turn)
    engine.start(Job(token=7, endpoint=endpoint, probe=build(Kind.TCP, endpoint, {})), at=engine.now())
    ...
    loop.remove_reader(engine.fileno())
    engine.close()
"""

from __future__ import annotations

import functools
import random
import select
import time
from collections.abc import Callable
from typing import Final

from reachline.model import Failure, Seconds
from reachline.net import kernel, route
from reachline.net.attempt import NEVER, Attempt, Job, Ready, Route
from reachline.net.clocks import Clocks
from reachline.net.datagram import Datagram
from reachline.net.echo import Echo
from reachline.net.resolve import Answer, Resolver
from reachline.net.result import Counters, Done, Phases
from reachline.net.stream import Stream
from reachline.net.tls import Contexts
from reachline.net.wheel import Wheel
from reachline.talk.way import Way

__all__ = ["Counters", "Done", "Engine", "Job", "Phases"]

STARTS: Final = 64
"""Probes begun a turn: about 1 ms, then it is asyncio's turn again."""
EVENTS: Final = 512
"""Events taken a turn: about 8 ms at the very worst, 1 ms as a rule."""
EXPIRIES: Final = 256
"""Deadlines looked at a turn; most belong to attempts that are over and cost next to nothing."""
_PULSE_NS: Final = 5_000_000
"""While attempts are live we come by at least this often, so that an absence of ours is known for one."""
_SLICE_NS: Final = 4_000_000
"""Handshakes of TLS cost half a millisecond each: a burst of them is spread over turns."""
_NS: Final = 1_000_000_000


class Engine:
    """Probes many endpoints at once from one thread. Written by the thread that calls `turn`, nobody else."""

    def __init__(
        self,
        done: Done,
        *,
        overdue: Callable[[int], None] | None = None,
        resolver: Resolver | None = None,
        limit: int | None = None,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        """`overdue(token)` is called at an attempt's timeout, before its `done(..., late=True)` ends it.

        `resolver` looks up endpoints that are names (on the running loop) and is closed with the engine. `limit` caps
        concurrent attempts, below what RLIMIT_NOFILE minus a reserve allows. `wall` is the clock of the kernel's stamps.
        """
        self.epoll = select.epoll()
        self.contexts = Contexts()
        self.clocks = Clocks(wall)
        self.ns = self.clocks.ns
        self._done = done
        self._overdue = overdue
        self._resolver = resolver or Resolver()
        self._limit = kernel.budget(limit)
        self._chance = random.SystemRandom()
        self._stream = Stream(self)
        self._datagram = Datagram(self)
        self._echo = Echo(self, self._chance.getrandbits(16))
        self._timer = kernel.Timer()
        self.epoll.register(self._timer.fileno(), select.EPOLLIN)
        self._starts: Wheel[tuple[int, Job]] = Wheel()
        self._deadlines: Wheel[Attempt] = Wheel()
        self._ready: dict[int, Ready] = {}
        self._attempts: set[Attempt] = set()
        self._routes: dict[int, Route] = {}
        self._cancelled: set[int] = set()
        self._taken: list[tuple[int, Job]] = []
        self._turning = False
        self._closed = False
        self._tally = dict.fromkeys(Counters._fields, 0)
        self._started = self._finished = self._turns = self._lateness = self._worst_lateness = 0

    def fileno(self) -> int:
        """The epoll's own descriptor, readable when `turn` has work."""
        return self.epoll.fileno()

    def now(self) -> Seconds:
        """CLOCK_MONOTONIC, the same as `loop.time()`: the time of `at`."""
        return self.ns() / _NS

    @property
    def limit(self) -> int:
        """Concurrent attempts at most; further starts are shed."""
        return self._limit

    def start(self, job: Job, *, at: Seconds) -> None:
        """One attempt of `job` at the absolute time `at` (past: as soon as possible), in slots of 1 ms."""
        if self._cancelled:
            self._sweep()
        due = int(at * _NS)
        self._starts.add(due, (due, job))
        if not self._turning and ((armed := self._timer.armed_ns) is None or due < armed):
            self._arm()

    def cancel(self, token: int) -> None:
        """Drop all starts and attempts of `token`; `done` is not called for them."""
        self._cancelled.add(token)
        if not self._turning:
            self._arm()

    def address(self, job: Job) -> str:
        """The numeric address the newest attempt went to; empty while the name is not resolved."""
        found = self._routes.get(job.token)
        return found.address[0] if found is not None and found.job is job else ""

    def counters(self) -> Counters:
        """A reading of the counters; worst_* begin anew with it."""
        tally = self._tally
        read = Counters(**tally)._replace(
            started=self._started,
            blurred=self.clocks.blurred,
            stepped=self.clocks.stepped,
            finished=self._finished,
            turns=self._turns,
            lateness_us=self._lateness,
            worst_lateness_us=self._worst_lateness,
            live=len(self._attempts),
            waiting=self._starts.size,
        )
        tally["worst_lag_us"] = self._worst_lateness = 0
        return read

    def turn(self) -> None:
        """Take what has arrived and start what is due: a bounded slice, never blocking."""
        if self._closed:
            return
        if self._cancelled:
            self._sweep()
        self._turning = True
        try:
            self._turn()
        finally:
            self._turning = False
            if not self._closed:
                self._arm()

    def close(self) -> None:
        """End all attempts without a result and release every descriptor. Idempotent."""
        if self._closed:
            return
        self._closed = True
        for attempt in tuple(self._attempts):
            attempt.over = True
            self._release(attempt)
        self._attempts.clear()
        self._ready.clear()
        self._taken.clear()
        self._starts.sweep(_nothing)
        self._deadlines.sweep(_nothing)
        self._echo.close()
        self._resolver.close()
        self._timer.close()
        self.epoll.close()

    # -- one turn -------------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        now = self.ns()
        self._turns += 1
        if (armed := self._timer.armed_ns) is not None and armed <= now:
            lag = self._tally["lag_us"] = (now - armed) // 1_000
            self._tally["worst_lag_us"] = max(self._tally["worst_lag_us"], lag)
        if self._take(now + _SLICE_NS):
            self._expire()
        self._begin()

    def _take(self, until: int) -> bool:
        """Hand events out until the slice is used up; whether that was all, so that no answer waits behind those taken."""
        self.clocks.look(alive=bool(self._attempts))
        events = self.epoll.poll(0, EVENTS)
        ready = self._ready
        for count, (fd, what) in enumerate(events):
            if not count & 15 and count and self.ns() > until:
                return False  # the epoll tells of the others again
            if (owner := ready.get(fd)) is not None:
                owner.ready(what)
        return len(events) < EVENTS

    def _expire(self) -> None:
        now = self.ns()
        for attempt in self._deadlines.take(now, EXPIRIES):
            if attempt.over:
                continue
            if attempt.deadline > now:
                self._deadlines.add(attempt.deadline, attempt)
            elif attempt.overdue or attempt.verdict is not None or attempt.route is None:
                attempt.step(attempt, 0)
            else:
                self._pass_timeout(attempt, attempt.route)

    def _pass_timeout(self, attempt: Attempt, way: Route) -> None:
        """From here on it is late, and only patience ends it."""
        attempt.overdue = True
        attempt.deadline += way.patience_ns
        self._deadlines.add(attempt.deadline, attempt)
        self._tally["overdue"] += 1
        if self._overdue is not None:
            self._overdue(attempt.job.token)

    def _begin(self) -> None:
        taken = self._taken = self._starts.take(self.ns(), STARTS)
        taken.reverse()
        while taken:
            due, job = taken.pop()
            now = self.ns()
            late = (now - due) // 1_000
            self._started += 1
            self._lateness += late
            self._worst_lateness = max(self._worst_lateness, late)
            attempt = Attempt(job, late, now, self._unnamed)
            if len(self._attempts) >= self._limit:
                self._shed(attempt)
                continue
            self._attempts.add(attempt)
            way = self._routes.get(job.token)
            if way is not None and way.job is job and way.until > now:
                self._launch(attempt, way)
            else:
                self._find(attempt, now)

    def _launch(self, attempt: Attempt, way: Route) -> None:
        attempt.route = way
        if way.way is Way.STREAM:
            if not way.bare:
                if not self._is_prepared(attempt):
                    return
                attempt.talk = attempt.job.probe.talk(attempt.job.endpoint, self._nonce())
            self._stream.begin(attempt, way)
        elif way.way is Way.DATAGRAM:
            attempt.talk = attempt.job.probe.talk(attempt.job.endpoint, self._nonce())
            self._datagram.begin(attempt, way)
        else:
            self._echo.begin(attempt, way, self._nonce())
        if not attempt.over:
            attempt.deadline = deadline = attempt.began + way.timeout_ns
            self._deadlines.add(deadline, attempt)

    def _is_prepared(self, attempt: Attempt) -> bool:
        """Whether its TLS can be set up at all: asked before a packet leaves, and paid for before the clock runs."""
        secure = attempt.job.probe.secure
        try:
            if secure is not None:
                self.contexts.of(secure, verify=secure.verify)
        except OSError as error:
            attempt.note = f"TLS cannot be set up: {error.strerror or error}"
            self.settle(attempt, Failure.AGENT, 0)
            return False
        return True

    # -- names ----------------------------------------------------------------------------------------------------------

    def _find(self, attempt: Attempt, now: int) -> None:
        """Launch by a new route, or leave the attempt with the resolver."""
        job = attempt.job
        found = route.numeric(job, now)
        if found is None:
            host, family = job.probe.where(job.endpoint).host, route.family_of(job)
            answer = self._resolver.cached(host, family)
            if answer is None or (not answer.addresses and answer.until * _NS <= now):
                attempt.deadline = now + round((job.timeout + job.patience) * _NS)
                self._deadlines.add(attempt.deadline, attempt)
                self._resolver.ask(host, family, functools.partial(self._resolved, attempt))
                return
            found = route.route(job, answer, now)
        self._go(attempt, found)

    def _resolved(self, attempt: Attempt, answer: Answer) -> None:
        """The resolver's word, on the loop, outside a turn."""
        if attempt.over or self._closed:
            return
        now = self.ns()
        attempt.resolved_us = (now - attempt.began) // 1_000
        self._go(attempt, route.route(attempt.job, answer, now))
        if not self._turning:
            self._arm()

    def _go(self, attempt: Attempt, found: Route | str) -> None:
        if isinstance(found, str):
            self._routes.pop(attempt.job.token, None)
            attempt.note = found
            self.settle(attempt, Failure.RESOLVE, 0)
            return
        self._routes[attempt.job.token] = found
        self._launch(attempt, found)

    def _unnamed(self, attempt: Attempt, events: int) -> None:
        """No word from the resolver within the time."""
        del events
        attempt.note = "the name server does not answer"
        self.settle(attempt, Failure.RESOLVE, 0)

    # -- what machines use ----------------------------------------------------------------------------------------------

    def watch(self, attempt: Attempt, events: int) -> None:
        """Call the attempt's step when its descriptor is ready."""
        self._ready[attempt.fd] = attempt
        self.epoll.register(attempt.fd, events)

    def adopt(self, fd: int, owner: Ready, events: int) -> None:
        """Watch a descriptor that serves many attempts."""
        self._ready[fd] = owner
        self.epoll.register(fd, events)

    def disown(self, fd: int) -> None:
        """Watch it no more."""
        if self._ready.pop(fd, None) is not None:
            self.epoll.unregister(fd)

    def reconnect(self, attempt: Attempt) -> None:
        """Close the attempt's descriptor and connect anew by TCP, within the same deadline."""
        self._release(attempt)
        assert attempt.route is not None
        self._stream.begin(attempt, attempt.route)

    def settle(self, attempt: Attempt, failure: Failure | None, took_us: int) -> None:
        """End the attempt: its descriptor is closed, its result leaves. `took_us` decides whether it was late."""
        attempt.over = True
        if attempt.verdict is not None:
            failure, took_us, attempt.note = attempt.verdict
        self._attempts.discard(attempt)
        self._release(attempt)
        way = attempt.route
        late = attempt.overdue or (way is not None and took_us > way.timeout_us)
        self._finished += 1
        job = attempt.job
        if self._cancelled and job.token in self._cancelled:
            return
        self._done(
            job.token, failure, attempt.rtt, attempt.clock, late, attempt.sent, attempt.lost,
            attempt.status, attempt.note, attempt.lateness_us, attempt.phases,
        )  # fmt: skip

    # -- ours -----------------------------------------------------------------------------------------------------------

    def _release(self, attempt: Attempt) -> None:
        if (sock := attempt.sock) is not None:
            self._ready.pop(attempt.fd, None)
            attempt.sock = None
            sock.close()
        elif attempt.key:
            self._echo.forget(attempt)

    def _shed(self, attempt: Attempt) -> None:
        self._tally["shed"] += 1
        attempt.note = f"more than {self._limit} attempts at once"
        self.settle(attempt, Failure.AGENT, 0)

    def _sweep(self) -> None:
        gone = self._cancelled
        self._starts.sweep(lambda start: start[1].token not in gone)
        self._taken[:] = [start for start in self._taken if start[1].token not in gone]
        for attempt in [live for live in self._attempts if live.job.token in gone]:
            attempt.over = True
            self._attempts.discard(attempt)
            self._release(attempt)
        for token in gone:
            self._routes.pop(token, None)
        gone.clear()

    def _nonce(self) -> int:
        """64 bits nobody can guess: a fresh id and a fresh token each time."""
        return self._chance.getrandbits(64) or 1

    def _arm(self) -> None:
        """Set the timer for whatever comes first (past: at once); the pulse may come anywhere within its time."""
        soonest = 1 if self._cancelled else min(self._starts.next_ns() or NEVER, self._deadlines.next_ns() or NEVER)
        armed, now = self._timer.armed_ns or NEVER, self.ns()
        if self._attempts and soonest > now + _PULSE_NS:
            if now < armed <= now + _PULSE_NS:
                return
            soonest = now + _PULSE_NS
        if soonest != armed or armed <= now:
            self._timer.arm(None if soonest == NEVER else soonest)


def _nothing(_: object) -> bool:
    return False
