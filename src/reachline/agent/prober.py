"""Probes the lines of a plan on time and keeps their windows: engine, tempo and windows put together on one loop.

Needs no center: the agent reports what is in the windows, `watch` shows it. Judges nothing.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from random import Random
from typing import Final, NamedTuple, Self

from reachline.agent import trust
from reachline.agent.book import Book
from reachline.agent.jobs import OWN_SERVER, connects
from reachline.agent.leaving import Sources, claims_of
from reachline.agent.pace import Limits, Pace, Skip
from reachline.agent.probed import SLOTS, Probed
from reachline.agent.survey import Surveyor
from reachline.core import tempo
from reachline.model import Clock, Failure, Kind, Seconds
from reachline.net import budget
from reachline.net.engine import Counters, Engine, Job, Phases
from reachline.net.resolve import Resolver
from reachline.talk.secure import is_address
from reachline.wire.frame import LinePlan

__all__ = ["OWN_SERVER", "Attempt", "Prober"]

log = logging.getLogger("reachline.agent")

_AHEAD: Final[Seconds] = 0.05
"""Rounds due this soon go to the engine at once, which starts them to the millisecond: at most 20 wake-ups a second."""
_SLICE: Final = 64
"""Rounds handed over between two looks at other work: half a millisecond."""
_LOOK: Final[Seconds] = 30.0
"""Between two looks at our own addresses, where they are to be found: they change when people change them."""
_NAMED: Final = 16
"""Rounds of a name between two looks at what it means, for its network's bucket: names move in minutes."""
_RECENT: Final = 2
"""Intervals within which another connect of the line must have been answered, for one to be a suspect of its port."""

_UNLIMITED: Final = Limits()


class Attempt(NamedTuple):
    """One attempt as it ended, for those who watch single ones."""

    number: int
    """Of its round…"""
    over: bool
    """…and whether it was the round's last."""
    failure: Failure | None
    rtt_us: int | None
    clock: Clock
    late: bool
    note: str


class Prober:
    """All probes of one process. Written by its loop's thread; `async with` is its life."""

    def __init__(
        self,
        *,
        rng: Random,
        ended: Callable[[Probed, Attempt], None] | None = None,
        changed: Callable[[Probed], None] | None = None,
        found: Callable[[Probed], None] | None = None,
        sources: Sequence[str] = (),
        limits: Limits = _UNLIMITED,
        rounds: int | None = None,
    ) -> None:
        """`ended` hears of every attempt, `changed` when our own quick opinion of a line did, `found` of what else is worth a
        report at once: a dead path behind it, or its repair, and what may add up (in plans that say what is slow).

        `sources` are addresses or a word (`doors.addresses`); none: the route decides. `rounds` ends the probing of each line after so many.
        """
        self._rounds = rounds
        self._rng, self._tell, self._changed = rng, ended, changed
        self._found = found or _nobody
        self.pace = Pace(limits)
        self._book = Book(self, sources=sources, close=limits.close)
        self._suspects = self._out = frozenset[str]()
        self._queue: list[tuple[Seconds, int, tempo.Due, Probed]] = []
        """Appointments by time; one is void once the line has another."""
        self._order = count()
        self._gone: list[int] = []
        """Tokens of probes that are not in the book any more, to be cancelled."""
        self._timer: asyncio.TimerHandle | None = None
        self._look: asyncio.TimerHandle | None = None
        self._armed: Seconds = 0.0
        self._worst_late: Seconds = 0.0

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._resolver = Resolver()
        self._engine = Engine(self._done, silent=self._silent, resolver=self._resolver, limit=self.pace.limits.attempts)
        self._surveyor = Surveyor(self._engine, self.pace, rng=self._rng, ports=budget.ports().usable, told=self._found)
        self._loop.add_reader(self._engine.fileno(), self._engine.turn)
        self._look = self._loop.call_later(_LOOK, self._look_around)
        return self

    async def __aexit__(self, *_: object) -> None:
        for timer in (self._timer, self._look):
            if timer:
                timer.cancel()
        self._book.close()
        self._surveyor.close()
        self._loop.remove_reader(self._engine.fileno())
        self._engine.close()
        self._resolver.close()

    # -- what to do --------------------------------------------------------------------------------------------------------

    def adopt(self, lines: Iterable[LinePlan], *, at_once: bool = False, sources: Sequence[str] | None = None) -> None:
        """Probe these lines from now on and no others. What stays as it was goes on undisturbed; a line that goes the same
        way with other numbers keeps its window. `at_once`: new ones begin now, not at their place in the interval. `sources`:
        in place of those there were. Passive plans are left alone: nothing is sent for them.

        A few dozen lines are taken up at once, more of them slice by slice, so that nothing else waits for milliseconds.
        """
        if sources is not None:
            self._book.sources = Sources(sources)
        self._book.adopt(tuple(lines), at_once=at_once)

    def suspect(self, lines: Iterable[str], *, out: Iterable[str] = ()) -> None:
        """These lines, and no others, are held for not healthy by the center; those that are `out` get no traffic."""
        before = self._suspects, self._out
        self._suspects, self._out = frozenset(lines), frozenset(out)
        turned = [
            probed
            for line in (before[0] ^ self._suspects) | (before[1] ^ self._out)
            for probed in self.lines.get(line, ())
        ]
        for probed in turned:
            self._mark(probed)
            self._count(probed)
        for probed in turned:
            self._reschedule(probed)
        self.settled()

    def revoke(self, since: Seconds) -> None:
        """Take back all that ended after `since`: our own end was broken."""
        for probed in self._book.by_base.values():
            probed.window.revoke(since)

    # -- what is there -----------------------------------------------------------------------------------------------------

    @property
    def lines(self) -> Mapping[str, tuple[Probed, ...]]:
        """All kinds of each line, in the plan's order."""
        return self._book.lines

    @property
    def is_adopting(self) -> bool:
        """Whether the newest plan is still being taken up."""
        return self._book.is_adopting

    @property
    def factor(self) -> float:
        """By how much all intervals are stretched to stay within the rate; 1: not at all."""
        return self.pace.factor

    @property
    def shed(self) -> int:
        """Attempts that were not made since the start, for too many were under way."""
        return self._counters().shed

    def every(self, probed: Probed) -> Seconds:
        """The interval of a line now, as stretched."""
        return probed.every(self.pace.factor, self._loop.time())

    def address(self, probed: Probed) -> str:
        """The numeric address in use; empty while it is not known."""
        return next(filter(None, map(self._engine.address, probed.jobs)), "")

    def worst_late(self) -> Seconds:
        """How late our own timers fired at worst since this was last asked."""
        self._counters()
        worst, self._worst_late = self._worst_late, 0.0
        return worst

    def _counters(self) -> Counters:
        """The engine's; what it forgets with the reading is kept here."""
        read = self._engine.counters()
        self._worst_late = max(self._worst_late, read.worst_lateness_us / 1e6)
        return read

    # -- what begins and ends ----------------------------------------------------------------------------------------------

    def began(self, probed: Probed) -> None:
        """It is in the book; its first round is not due yet."""
        self._mark(probed)
        self._claim(probed)
        self._count(probed)

    def enter(self, probed: Probed, *, at_once: bool) -> None:
        """All of its plan is in the book: its first round may come."""
        if at_once and probed.last is None and probed.can_run:
            now = self._loop.time()
            # Its grid point is set half an interval on, so that the next round keeps that distance at least.
            self._appoint(probed, tempo.Due(now, now + self.every(probed) / 2))
        else:
            self._reschedule(probed)

    def stopped(self, probed: Probed) -> None:
        """It is no longer in the book."""
        probed.due = None
        self._surveyor.forget(probed)
        self._tally(probed, 0)
        self._gone += probed.tokens

    def settled(self) -> None:
        """The newest plan is in the book, whole. Only now are attempts dropped that it does not ask for: the engine looks through
        all that wait, and once is enough.
        """
        for token in self._gone:
            self._engine.cancel(token)
        self._gone.clear()
        self.pace.tell(len(self._book.by_base))

    def _mark(self, probed: Probed) -> None:
        """What the center says of its line."""
        probed.hinted, probed.window.is_out = probed.line.line in self._suspects, probed.line.line in self._out

    def _claim(self, probed: Probed) -> None:
        """What its rounds ask of our buckets, by what is known of its address."""
        if (job := probed.job) is None:
            return
        address = self.address(probed)
        claims = claims_of(job, probed.plan, probed.leaving, self.pace.limits, address=address)
        if probed.leaving.full and connects(job.probe):
            claims += (self._book.outflow.claim(probed.line, probed.plan, probed.leaving),)
        probed.claims = claims

    def _count(self, probed: Probed) -> None:
        """What it asks for at the interval that applies now; all intervals stretch alike where the sum is above our rate."""
        if probed.can_run:
            self._tally(probed, round(1_000 * probed.plan.burst / probed.every(1.0, self._loop.time())))

    def _tally(self, probed: Probed, asks: int) -> None:
        self.pace.tally(asks - probed.asks)
        probed.asks = asks

    def _look_around(self) -> None:
        """Are our own addresses others than they were?"""
        self._look = self._loop.call_later(_LOOK, self._look_around)
        self._book.look()

    # -- time --------------------------------------------------------------------------------------------------------------

    def _reschedule(self, probed: Probed) -> None:
        """Its next round by what is known now; an earlier appointment is void."""
        self._count(probed)
        if probed.can_run and (self._rounds is None or probed.number < self._rounds):
            every, now = self.every(probed), self._loop.time()
            self._appoint(probed, tempo.next_due(probed.place, every, probed.last, now, self._rng))

    def _appoint(self, probed: Probed, due: tempo.Due) -> None:
        probed.due = due
        heapq.heappush(self._queue, (due.at, next(self._order), due, probed))
        self._arm()

    def _skip(self, probed: Probed, cause: Skip, rounds: int) -> None:
        probed.skipped += rounds
        self.pace.skip(cause, rounds)

    def _arm(self) -> None:
        if not self._queue:
            return
        at = max(self._queue[0][0], self.pace.free) - _AHEAD
        if self._timer is None or at < self._timer.when():
            if self._timer:
                self._timer.cancel()
            self._armed = self._loop.time()
            self._timer = self._loop.call_at(at, self._fire)

    def _fire(self) -> None:
        """Hand over what is due now, at most a slice of it."""
        now, timer = self._loop.time(), self._timer
        self._timer = None
        if timer:
            self._worst_late = max(self._worst_late, now - max(timer.when(), self._armed))
        for _ in range(_SLICE):
            if not self._queue or max(self._queue[0][0], self.pace.free) > now + _AHEAD:
                break
            *_, due, probed = heapq.heappop(self._queue)
            if probed.due is due:
                self._start(probed, due, now)
        self._arm()

    def _start(self, probed: Probed, due: tempo.Due, now: Seconds) -> None:
        every, burst = self.every(probed), probed.plan.burst
        if now - due.grid > every:
            # From the round that is late: a line that had none yet would be put off as if it were new.
            due = tempo.next_due(probed.place, every, due.grid - every, now, self._rng)
            self._skip(probed, Skip.LATE, due.skipped)
            if due.at > now + _AHEAD:
                # Started now it would move the rate's next moment there, and all others would wait for it.
                self._appoint(probed, due)
                return
        probed.last = due.grid
        if probed.number % _NAMED == 1 and not is_address(probed.host):
            self._claim(probed)
        if probed.is_full:
            self._skip(probed, Skip.OVERLAP, 1)
        elif (at := self.pace.admit(probed.claims, due.at, due.grid + every, burst)) is None:
            probed.skipped += 1
        else:
            gap = tempo.gap(every, burst)
            for number, job in enumerate(probed.begin()):
                self._engine.start(job, at=at + number * gap)
        self._reschedule(probed)

    # -- results -----------------------------------------------------------------------------------------------------------

    def _done(  # noqa: PLR0917  the engine hands over scalars: an object for each result costs a fifth of the speed
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
        slot = token % SLOTS
        if token < 0:
            self._surveyor.ended(token, failure)
            return
        if (probed := self._book.by_base.get(token - slot)) is None:
            return
        window, number = probed.window, probed.numbers[slot]
        now, was = self._loop.time(), (window.rounds.last_ok, probed.doubted)
        window.record(
            now,
            failure,
            rtt_us,
            clock=clock,
            late=late,
            sent=sent,
            lost=lost,
            status=status,
            number=number,
            burst=probed.plan.burst,
        )
        if failure is not None or late:
            probed.error = note or _WORDS.get(failure, "answered too late")
        over = probed.ended(slot, lateness_us, phases)
        probed.learn(now, answered=failure is None, lost=lost > 0 and probed.is_connecting)
        self._opine(probed, now)
        if window.rounds.last_ok is not was[0] or was[1] < now < probed.doubted:
            self._reschedule(probed)
        if over and window.is_telling:
            self._found(probed)
        if self._tell:
            self._tell(probed, Attempt(number, over, failure, rtt_us, clock, late, note))

    def _silent(self, job: Job, port: int) -> None:
        """Nobody answered a connect from this port. Does anybody answer the others of its line?"""
        probed = self._book.by_base.get(job.token - job.token % SLOTS) if job.token >= 0 else None
        if probed is None or probed.kind is not Kind.TCP or not probed.window.rounds.last_ok:
            return
        if self._loop.time() - probed.passed < _RECENT * self.every(probed):
            self._surveyor.suspect(probed, job, port)

    def _opine(self, probed: Probed, now: Seconds) -> None:
        rounds = probed.window.rounds
        zone = trust.advisory(probed.zone, rounds.known, rounds.ok)
        if zone is not probed.zone:
            probed.turn(zone, now)
            if self._changed:
                self._changed(probed)


_WORDS: Final[Mapping[Failure | None, str]] = {
    Failure.TIMEOUT: "no answer",
    Failure.REFUSED: "connection refused",
    Failure.RESET: "connection reset",
    Failure.UNREACHABLE: "unreachable",
    Failure.RESOLVE: "name does not resolve",
    Failure.TLS: "TLS failed",
    Failure.PROXY: "the proxy refused",
    Failure.PROTOCOL: "the peer broke its protocol",
    Failure.STATUS: "unexpected status",
    Failure.AGENT: "this agent could not probe",
}


def _nobody(_: Probed) -> None:
    """Nobody listens."""
