"""Probes the lines of a plan on time and keeps their windows: engine, tempo and windows put together on one loop.

Needs no center: the agent reports what is in the windows, `watch` shows it. Judges nothing.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from random import Random
from typing import Final, NamedTuple, Self

from reachline.agent import trust
from reachline.agent.probed import SLOTS, Probed, jobs_of
from reachline.core import tempo
from reachline.core.ring import Columns
from reachline.core.window import Window, max_age
from reachline.doors.addresses import parse_target
from reachline.errors import ConfigError
from reachline.model import Clock, Endpoint, Failure, Kind, Seconds
from reachline.net.engine import Engine, Job, Phases
from reachline.net.resolve import Resolver
from reachline.wire.frame import LinePlan, ProbePlan

__all__ = ["OWN_SERVER", "Attempt", "Prober"]

OWN_SERVER: Final = "dns://"
"""The target of a line that asks the agent's own name server."""

log = logging.getLogger("reachline.agent")

_AHEAD: Final[Seconds] = 0.05
"""Rounds due this soon go to the engine at once, which starts them to the millisecond: at most 20 wake-ups a second."""
_SPARE: Final[Seconds] = 0.1
"""Of the rate's time that may be saved up: rounds that fall together start together, and a second has a tenth more at most."""
_SLICE: Final = 64
"""Rounds handed over between two looks at other work: half a millisecond."""

Key = tuple[str, Kind]


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
        sources: Sequence[str] = (),
        rate: float | None = None,
        rounds: int | None = None,
    ) -> None:
        """`ended` hears of every attempt, `changed` when our own quick opinion of a line did.

        `rate` caps attempts a second; `rounds` ends the probing of each line after so many.
        """
        self._rounds = rounds
        self._rng, self._tell, self._changed, self._sources, self._rate = rng, ended, changed, tuple(sources), rate
        self._columns = Columns()
        self._probes: dict[Key, Probed] = {}
        self._by_base: dict[int, Probed] = {}
        self.lines: dict[str, tuple[Probed, ...]] = {}
        """All kinds of each line, in the plan's order. Not to be written."""
        self._bases = count(0, SLOTS)
        self._queue: list[tuple[Seconds, int, tempo.Due, Probed]] = []
        """Appointments by time; one is void once the line has another."""
        self._order = count()
        self._timer: asyncio.TimerHandle | None = None
        self._factor = self._told = 1.0
        self._asked = 0
        """Attempts in 1000 s that all lines ask for, each at the interval that applies to it now; kept where there is a rate."""
        self._free: Seconds = 0.0
        """From when on the rate allows another attempt."""
        self._armed: Seconds = 0.0
        self._worst_late: Seconds = 0.0

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._resolver = Resolver()
        self._engine = Engine(self._done, resolver=self._resolver)
        self._loop.add_reader(self._engine.fileno(), self._engine.turn)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._timer:
            self._timer.cancel()
        self._loop.remove_reader(self._engine.fileno())
        self._engine.close()
        self._resolver.close()

    # -- what to do --------------------------------------------------------------------------------------------------------

    def adopt(self, lines: Iterable[LinePlan], *, at_once: bool = False) -> None:
        """Probe these lines from now on and no others. What stays as it was goes on undisturbed; a line that goes the same
        way with other numbers keeps its window. `at_once`: new ones begin now, not at their place in the interval. Passive
        plans are left alone: nothing is sent for them.
        """
        active = ((line, plan) for line in lines for plan in line.probes if plan.kind is not Kind.PASSIVE)
        wanted = {(line.line, plan.kind): (line, plan) for line, plan in active}
        gone = {key: probed for key, probed in self._probes.items() if wanted.get(key) != (probed.line, probed.plan)}
        for key, probed in gone.items():
            self._stop(key, probed)
        new = [key for key in wanted if key not in self._probes]
        begun = [self._begin(*wanted[key], gone.pop(key, None)) for key in new]
        for probed in gone.values():
            probed.window.close()
        self.lines = {
            line: tuple(self._probes[line, kind] for kind in kinds) for line, kinds in _by_line(wanted).items()
        }
        # Only now is it known by how much all intervals are stretched.
        for probed in begun:
            self._enter(probed, at_once=at_once)
        self._tell_pace()

    def suspect(self, lines: Iterable[str], *, out: Iterable[str] = ()) -> None:
        """These lines, and no others, are held for not healthy by the center; those that are `out` get no traffic."""
        suspects, opened = frozenset(lines), frozenset(out)
        turned = []
        for probed in self._probes.values():
            said = (probed.line.line in suspects, probed.line.line in opened)
            if (probed.hinted, probed.window.is_out) != said:
                probed.hinted, probed.window.is_out = said
                self._count(probed)
                turned.append(probed)
        for probed in turned:
            self._reschedule(probed)
        self._tell_pace()

    def revoke(self, since: Seconds) -> None:
        """Take back all that ended after `since`: our own end was broken."""
        for probed in self._probes.values():
            probed.window.revoke(since)

    # -- what is there -----------------------------------------------------------------------------------------------------

    @property
    def factor(self) -> float:
        """By how much all intervals are stretched to stay within the rate; 1: not at all."""
        return self._factor

    def address(self, probed: Probed) -> str:
        """The numeric address in use; empty while it is not known."""
        return self._engine.address(probed.job) if probed.job else ""

    def worst_late(self) -> Seconds:
        """How late our own timers fired at worst since this was last asked."""
        worst, self._worst_late = self._worst_late, 0.0
        return max(worst, self._engine.counters().worst_lateness_us / 1e6)

    # -- plans -------------------------------------------------------------------------------------------------------------

    def _begin(self, line: LinePlan, plan: ProbePlan, before: Probed | None) -> Probed:
        base = next(self._bases)
        jobs, error = self._jobs(line, plan, base)
        window, is_same = self._window(line, plan, before)
        probed = Probed(line, plan, window, base=base, jobs=jobs)
        probed.error = error
        if before and is_same:
            probed.number, probed.zone, probed.hinted, probed.last = (
                before.number,
                before.zone,
                before.hinted,
                before.last,
            )
        self._probes[line.line, plan.kind] = self._by_base[base] = probed
        self._count(probed)
        return probed

    def _enter(self, probed: Probed, *, at_once: bool) -> None:
        """Its first round."""
        if at_once and probed.last is None and probed.can_run:
            now = self._loop.time()
            # Its grid point is set half an interval on, so that the next round keeps that distance at least.
            self._appoint(probed, tempo.Due(now, now + probed.every(self._factor) / 2))
        else:
            self._reschedule(probed)

    def _window(self, line: LinePlan, plan: ProbePlan, before: Probed | None) -> tuple[Window, bool]:
        """The window to go on with, and whether it is the one there was: same endpoint, same way, same question."""
        age, alpha = max_age(plan.interval_ms / 1_000, plan.max_age_ms / 1_000), line.alpha_milli / 1_000
        if before and before.window.shape == (plan.window, age) and _way(before.line, before.plan) == _way(line, plan):
            before.window.alpha = alpha
            return before.window, True
        if before:
            before.window.close()
        return Window(self._columns, plan.kind, size=plan.window, age=age, alpha=alpha), False

    def _jobs(self, line: LinePlan, plan: ProbePlan, base: int) -> tuple[tuple[Job, ...], str]:
        """The jobs, or why there are none: a line that cannot be probed is reported as such, and the others go on."""
        try:
            return jobs_of(line, plan, _endpoint(line), self._sources, token=base), ""
        except (ConfigError, ValueError) as error:
            log.warning("probe_refused", extra={"line": line.line, "kind": plan.kind.value, "reason": str(error)})
            return (), str(error)

    def _stop(self, key: Key, probed: Probed) -> None:
        del self._probes[key], self._by_base[probed.base]
        probed.due = None
        self._tally(probed, 0)
        for token in probed.tokens:
            self._engine.cancel(token)

    def _count(self, probed: Probed) -> None:
        """What it asks for at the interval that applies now; all intervals stretch alike where the sum is above our rate."""
        if self._rate is not None and probed.can_run:
            self._tally(probed, round(1_000 * probed.plan.burst / probed.every(1.0)))

    def _tally(self, probed: Probed, asks: int) -> None:
        self._asked, probed.asks = self._asked + asks - probed.asks, asks
        if self._rate is not None:
            self._factor = tempo.stretch((self._asked / 1_000,), self._rate)

    def _tell_pace(self) -> None:
        if self._factor != self._told:
            self._told = self._factor
            log.warning("intervals_stretched", extra={"factor": round(self._factor, 3), "probes": len(self._probes)})

    def _allowed(self, at: Seconds, attempts: int) -> Seconds:
        """When a round due `at` may start by the rate, which it takes its share of."""
        if self._rate is None:
            return at
        start = max(at, self._free)
        self._free = max(self._free, at - _SPARE) + attempts / self._rate
        return start

    # -- time --------------------------------------------------------------------------------------------------------------

    def _reschedule(self, probed: Probed) -> None:
        """Its next round by what is known now; an earlier appointment is void."""
        self._count(probed)
        if probed.can_run and (self._rounds is None or probed.number < self._rounds):
            every, now = probed.every(self._factor), self._loop.time()
            self._appoint(probed, tempo.next_due(probed.place, every, probed.last, now, self._rng))

    def _appoint(self, probed: Probed, due: tempo.Due) -> None:
        probed.due = due
        probed.skipped += due.skipped
        heapq.heappush(self._queue, (due.at, next(self._order), due, probed))
        self._arm()

    def _arm(self) -> None:
        if not self._queue:
            return
        at = max(self._queue[0][0], self._free) - _AHEAD
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
            if not self._queue or max(self._queue[0][0], self._free) > now + _AHEAD:
                break
            *_, due, probed = heapq.heappop(self._queue)
            if probed.due is due:
                self._start(probed, due, now)
        self._arm()

    def _start(self, probed: Probed, due: tempo.Due, now: Seconds) -> None:
        every = probed.every(self._factor)
        if now - due.grid > every:
            due = tempo.next_due(probed.place, every, probed.last, now, self._rng)
            probed.skipped += due.skipped
        probed.last = due.grid
        jobs = probed.begin()
        at = self._allowed(due.at, len(jobs))
        for job in jobs:
            self._engine.start(job, at=at)
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
        if (probed := self._by_base.get(token - slot)) is None:
            return
        window, number = probed.window, probed.numbers[slot]
        now, was_ok = self._loop.time(), window.rounds.last_ok
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
        over = probed.ended(slot, lateness_us, phases.expires if phases else None)
        if window.rounds.last_ok is not was_ok:
            self._reschedule(probed)
        self._opine(probed)
        if self._tell:
            self._tell(probed, Attempt(number, over, failure, rtt_us, clock, late, note))

    def _opine(self, probed: Probed) -> None:
        rounds = probed.window.rounds
        zone = trust.advisory(probed.zone, rounds.known, rounds.ok)
        if zone is not probed.zone:
            probed.zone = zone
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


def _by_line(keys: Iterable[Key]) -> dict[str, list[Kind]]:
    lines: dict[str, list[Kind]] = {}
    for line, kind in keys:
        lines.setdefault(line, []).append(kind)
    return lines


def _way(line: LinePlan, plan: ProbePlan) -> tuple[object, ...]:
    return line.target, line.via, line.source, line.interface, line.family, plan.options


def _endpoint(line: LinePlan) -> Endpoint:
    """The target with its family; a `dns://` one may leave the server to the agent (an empty host)."""
    if line.target == OWN_SERVER:
        return Endpoint(scheme="dns", host="", port=53)
    endpoint = parse_target(line.target)
    return replace(endpoint, family=line.family) if line.family else endpoint
