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

import select
import time
from collections.abc import Callable
from itertools import count
from typing import Final

from reachline.model import Failure, Seconds
from reachline.net import collector, kernel
from reachline.net.attempt import Attempt, Job, Ready, Route
from reachline.net.clocks import Clocks
from reachline.net.fleet import Fleet
from reachline.net.late import Lateness
from reachline.net.launch import Launcher
from reachline.net.resolve import Resolver
from reachline.net.result import Counters, Done, Phases
from reachline.net.tls import Contexts
from reachline.net.wheel import NEVER, Wheel
from reachline.talk.way import Way

__all__ = ["Counters", "Done", "Engine", "Job", "Phases"]

STARTS: Final = 64
"""Probes begun a turn: about 1 ms, then it is asyncio's turn again."""
EVENTS: Final = 512
"""Events taken a turn: about 8 ms at the very worst, 1 ms as a rule."""
LOOKS: Final = 16
"""Events between two looks at the clock: eight milliseconds of handshakes, half of one of connects."""
EXPIRIES: Final = 256
"""Deadlines looked at a turn; most belong to attempts that are over and cost next to nothing."""
_PULSE: Final[Seconds] = 0.005
"""While attempts within their timeout are live we come by at least this often, so that an absence of ours is known for one."""
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
        silent: Callable[[Job, int], None] | None = None,
        resolver: Resolver | None = None,
        limit: int | None = None,
        pulse: Seconds = _PULSE,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        """`overdue(token)` is called at an attempt's timeout, before its `done(..., late=True)` ends it, `silent(job, port)`
        before the `done` of a connect that nobody answered: the port it left from.

        `resolver` looks up endpoints that are names (on the running loop) and is closed with the engine. `limit` caps
        concurrent attempts, below what RLIMIT_NOFILE minus a reserve allows. A longer `pulse` wakes less, and what no stamp tells is
        true to two pulses. `wall` is the clock of the kernel's stamps.
        """
        self.epoll = select.epoll()
        self.contexts = Contexts()
        self._pulse_ns: Final = round(pulse * _NS)
        self.clocks = Clocks(wall, away=2 * self._pulse_ns)
        self.lateness = Lateness()
        self.done = done
        self.muted: set[int] = set()
        """Tokens of jobs that were cancelled; empty once a turn has dropped them."""
        self.ns = self.clocks.ns
        self._overdue = overdue
        self._silent = silent
        self.limit: Final = kernel.budget(limit)
        """Concurrent attempts at most; further starts are shed."""
        collector.calm()
        self._launcher = Launcher(self, resolver or Resolver())
        self.datagram = self._launcher.datagram
        self.nonce = self._launcher.nonce
        self._echo = self._launcher.echo
        self._pings = self._echo.waiting
        self._fleet = Fleet(self)
        self._lean = self._fleet.live
        self._timer = kernel.Timer()
        self._stamps = kernel.keep_stamps()
        self.epoll.register(self._timer.fileno(), select.EPOLLIN)
        self._starts: Wheel[tuple[int, Job]] = Wheel()
        self._deadlines: Wheel[int] = Wheel()
        self._ready: dict[int, Ready] = {}
        self._attempts: dict[int, Attempt] = {}
        self._taken: list[tuple[int, Job]] = []
        self._turning = False
        self._closed = False
        self._watchful = 0
        self._promised = NEVER
        """When the next turn is due."""
        self._tally = dict.fromkeys(Counters._fields, 0)
        self._started = self._finished = self._turns = 0
        self._serials = count(1)

    def fileno(self) -> int:
        """The epoll's own descriptor, readable when `turn` has work."""
        return self.epoll.fileno()

    def now(self) -> Seconds:
        """CLOCK_MONOTONIC, the same as `loop.time()`: the time of `at`."""
        return self.ns() / _NS

    def start(self, job: Job, *, at: Seconds) -> None:
        """One attempt of `job` at the absolute time `at` (past: as soon as possible), in slots of 1 ms."""
        if self.muted:
            self._sweep()
        due = int(at * _NS)
        self._starts.add(due, (due, job))
        if due < self._timer.armed_ns and not self._turning:
            self.arm()

    def cancel(self, token: int) -> None:
        """Drop all starts and attempts of `token`; `done` is not called for them."""
        self.muted.add(token)
        if len(self.muted) == 1:  # the turn that drops the first one drops them all
            self.arm()

    def address(self, job: Job) -> str:
        """The numeric address the newest attempt went to; empty while the name is not resolved."""
        return self._launcher.address(job)

    def counters(self) -> Counters:
        """A reading of the counters; worst_* begin anew with it."""
        tally = self._tally
        read = Counters(**tally)._replace(
            started=self._started,
            blurred=self.clocks.blurred,
            stepped=self.clocks.stepped,
            finished=self._finished + self._echo.finished + self._fleet.finished,
            turns=self._turns,
            lateness_us=self.lateness.total_us,
            worst_lateness_us=self.lateness.worst_us,
            dropped=self._echo.dropped(),
            live=self._live(),
            waiting=self._starts.size,
        )
        tally["worst_lag_us"] = self.lateness.worst_us = 0
        return read

    def turn(self) -> None:
        """Take what has arrived and start what is due: a bounded slice, never blocking."""
        if self._closed:
            return
        if self.muted:
            self._sweep()
        self._turning = True
        try:
            self._turn()
        finally:
            self._turning = False
            self.arm()

    def close(self) -> None:
        """End all attempts without a result and release every descriptor. Idempotent."""
        if self._closed:
            return
        self._closed = True
        for attempt in tuple(self._attempts.values()):
            self._abandon(attempt)
        self._attempts.clear()
        self._ready.clear()
        self._taken.clear()
        self._starts.clear()
        self._deadlines.clear()
        self._fleet.close()
        self._launcher.close()
        self._timer.close()
        self._stamps.close()
        self.epoll.close()

    # -- one turn -------------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        now = self.ns()
        self._turns += 1
        if self._promised <= now:
            lag = self._tally["lag_us"] = (now - self._promised) // 1_000
            self._tally["worst_lag_us"] = max(self._tally["worst_lag_us"], lag)
        self._begin(now)
        if self._take(self.ns() + _SLICE_NS):
            self._expire()

    def _take(self, until: int) -> bool:
        """Hand events out until the slice is used up; whether that was all, so that no answer waits behind those taken."""
        self.clocks.look(alive=bool(self._attempts or self._pings or self._lean))
        events = self.epoll.poll(0, EVENTS)
        ready, lean, fleet, whole = self._ready, self._lean, self._fleet, len(events) < EVENTS
        for begin in range(0, len(events), LOOKS):
            if begin and self.ns() > until:
                whole = False  # the epoll tells of the others again
                break
            for fd, what in events[begin : begin + LOOKS]:
                if (one := lean.get(fd)) is not None:
                    one[0].heard(fleet, fd, what, one)
                elif (owner := ready.get(fd)) is not None:
                    owner.ready(what)
        fleet.flush()
        return whole

    def _expire(self) -> None:
        now = self.ns()
        self._echo.expire(now)
        self._fleet.expire(now)
        for serial in self._deadlines.take(now, EXPIRIES):
            attempt = self._attempts.get(serial)
            if attempt is None:
                continue
            if attempt.deadline > now:
                self._deadlines.add(attempt.deadline, serial)
            elif attempt.overdue or attempt.verdict is not None or attempt.route is None:
                attempt.ready(0)
            else:
                self.pass_timeout(attempt)

    def pass_timeout(self, attempt: Attempt) -> None:
        """From here on it is late, and only patience ends it: from now, for we may come by long after its timeout."""
        assert attempt.route is not None
        attempt.overdue = True
        attempt.deadline = self.ns() + attempt.route.patience_ns
        self._deadlines.add(attempt.deadline, attempt.serial)
        self.passed(attempt.job.token)

    def passed(self, token: int) -> None:
        """A timeout of the job with this token passed."""
        self._tally["overdue"] += 1
        if self._overdue is not None:
            self._overdue(token)

    def _begin(self, now: int) -> None:
        """Begin what is due: by the lean machine of its route, if there is one and it can, else by the ordinary one."""
        taken = self._taken = self._starts.take(now, STARTS)
        taken.reverse()
        known, room, fleet = self._launcher.known, self.limit - self._live(), self._fleet
        late, touched = self.lateness.of, self._echo.touched
        while taken:
            due, job = taken.pop()
            self._started += 1
            if room <= 0 and (room := self.limit - self._live()) <= 0:
                self._shed(self._ordinary(job, due))
                continue
            room -= 1
            way = known.get(id(job))
            if way is None or way.until <= now:
                self._launch(job, due, None)
            elif way.course is not None:
                fleet.pending[way.course].append((way, due))
            elif (lot := way.lot) is not None:
                if not lot.starts:
                    touched.append(lot)
                lot.starts.append((way, late(now - due)))
            else:
                self._launch(job, due, way)
        for way, due in fleet.launch():
            self._launch(way.job, due, way)
        self._echo.flush()

    def _ordinary(self, job: Job, due: int) -> Attempt:
        now = self.ns()
        return Attempt(job, next(self._serials), self.lateness.of(now - due), now)

    def _launch(self, job: Job, due: int, way: Route | None) -> None:
        """By the ordinary machine."""
        attempt = self._ordinary(job, due)
        self._attempts[attempt.serial] = attempt
        self._launcher.launch(attempt, way, attempt.began)

    def _live(self) -> int:
        return len(self._attempts) + len(self._lean) + len(self._pings)

    # -- what machines use ----------------------------------------------------------------------------------------------

    def watch(self, attempt: Ready, fd: int, events: int) -> None:
        """Call `attempt.ready` when the descriptor is ready."""
        self._ready[fd] = attempt
        self.epoll.register(fd, events)

    def unwatch(self, fd: int) -> None:
        """Not any more."""
        if self._ready.pop(fd, None) is not None:
            self.epoll.unregister(fd)

    def expect(self, attempt: Attempt, deadline: int) -> None:
        """The attempt's time is up at `deadline`."""
        attempt.deadline = deadline
        self._watchful = max(self._watchful, deadline)
        self._deadlines.add(deadline, attempt.serial)

    def reconnect(self, attempt: Attempt) -> None:
        """Close the attempt's descriptor and connect anew by TCP, within the same deadline."""
        self._release(attempt)
        assert attempt.route is not None
        self._launcher.stream.begin(attempt, attempt.route)

    def silent(self, attempt: Attempt) -> None:
        """No SYN was answered: whoever listens hears from which port it went; behind a proxy that says nothing of the endpoint."""
        sock, job = attempt.sock, attempt.job
        if self._silent is not None and sock is not None and not job.hops and job.token not in self.muted:
            self._silent(job, sock.getsockname()[1])

    def settle(self, attempt: Attempt, failure: Failure | None, took_us: int) -> None:
        """End the attempt: its descriptor is closed, its result leaves. `took_us` decides whether it was late."""
        attempt.over = True
        if attempt.verdict is not None:
            failure, took_us, attempt.note = attempt.verdict
        self._attempts.pop(attempt.serial, None)
        self._release(attempt)
        attempt.speech = None  # they know each other: without this only the collector could free them
        way = attempt.route
        late = attempt.overdue or (way is not None and took_us > way.timeout_us)
        self._finished += 1
        job = attempt.job
        if self.muted and job.token in self.muted:
            return
        self.done(
            job.token, failure, attempt.rtt, attempt.clock, late, attempt.sent, attempt.lost,
            attempt.status, attempt.note, attempt.lateness_us, attempt.phases,
        )  # fmt: skip

    def leave(self, attempt: Attempt) -> None:
        """The attempt goes on as something else."""
        attempt.over = True
        self._attempts.pop(attempt.serial, None)

    def enlist(self, attempt: Attempt) -> None:
        """An attempt that was lean goes on as an ordinary one; it has a descriptor already, and this is watched."""
        assert attempt.route is not None
        attempt.serial = next(self._serials)
        attempt.step = self.datagram.step if attempt.route.way is Way.DATAGRAM else self._launcher.stream.step
        self._attempts[attempt.serial] = self._ready[attempt.fd] = attempt
        self._deadlines.add(attempt.deadline, attempt.serial)

    # -- ours -----------------------------------------------------------------------------------------------------------

    def _release(self, attempt: Attempt) -> None:
        if (sock := attempt.sock) is not None:
            self._ready.pop(attempt.fd, None)
            attempt.sock = None
            sock.close()

    def _abandon(self, attempt: Attempt) -> None:
        attempt.over = True
        self._release(attempt)

    def _shed(self, attempt: Attempt) -> None:
        self._tally["shed"] += 1
        attempt.note = f"more than {self.limit} attempts at once"
        self.settle(attempt, Failure.AGENT, 0)

    def _sweep(self) -> None:
        gone = self.muted
        self._starts.sweep(lambda start: start[1].token not in gone)
        self._taken[:] = [start for start in self._taken if start[1].token not in gone]
        self._fleet.cancel(gone)
        for attempt in [live for live in self._attempts.values() if live.job.token in gone]:
            del self._attempts[attempt.serial]
            self._abandon(attempt)
        self._echo.cancel(gone)
        for token in gone:
            self._launcher.forget(token)
        gone.clear()

    def arm(self) -> None:
        """Set the timer for whatever comes first (past: at once); the pulse may come anywhere within its time."""
        if self._turning or self._closed:
            return
        soonest = min(
            self._starts.next_ns(), self._deadlines.next_ns(), self._echo.flights.next_ns(), self._fleet.next_ns()
        )
        soonest = 1 if self.muted else soonest
        armed, now = self._timer.armed_ns, self.ns()
        if (
            (self._attempts or self._pings or self._lean)
            and now < max(self._watchful, self._echo.until, self._fleet.until)
            and soonest > now + self._pulse_ns
        ):
            if now < armed <= now + self._pulse_ns:
                return
            soonest = now + self._pulse_ns
        self._promised = max(now, soonest)
        # One that has fired stays readable until it is set anew, and setting it for the past costs 20 us.
        if soonest != armed and (soonest > now or armed > now):
            self._timer.arm(soonest)
