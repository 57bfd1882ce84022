"""One agent under virtual time: production's tempo, rounds, windows, quick opinion and doubt; only the sockets are the world's."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Final, NamedTuple

from reachline.agent import trust
from reachline.agent.jobs import endpoint_of, jobs_of
from reachline.agent.leaving import Leaving
from reachline.agent.probed import SLOTS, Probed
from reachline.core import tempo
from reachline.core.window import Columns, Window, max_age
from reachline.model import HELPERS, Failure, Kind, LineId, Reading, Seconds, Zone
from reachline.simulate.contender import STEP_MS, Wish
from reachline.simulate.contender import Probed as Result
from reachline.wire.frame import Hint, LinePlan, Plan, ProbePlan

__all__ = ["Agent", "Beat"]

_URGENT_MS: Final = 1_000
"""Between two heartbeats for a change (`agent.run`)."""
_BOOTED: Final[Seconds] = 86_400.0
"""How long ago an agent's machine may have been started."""
_OK, _ERROR = 200, 503
_BASE: Final = 20
"""Bits of a token that are the probe's own; above stands the agent's number."""


class Beat(NamedTuple):
    """One heartbeat on its way."""

    agent: str
    readings: tuple[tuple[LineId, Reading], ...]
    doubt: int
    ends_round: bool


class Agent:
    """One vantage. Written by the contender."""

    def __init__(
        self, name: str, number: int, plan: Plan, *, rng: Random, send: Callable[[Wish, int, int], None], now_ms: int
    ) -> None:
        self.name, self._number, self._rng, self._send = name, number, rng, send
        self.plan = plan
        self._ahead: Seconds = rng.uniform(0.0, _BOOTED)
        """Its monotonic clock began at another time than ours: rounds of two agents do not fall together."""
        self.score = 0
        self.wake_ms = 0
        """Nothing is to be done before."""
        self._columns = Columns()
        self._order = count()
        self._queue: list[tuple[Seconds, int, tempo.Due, Probed]] = []
        self._probed: dict[str, list[Probed]] = {}
        self._by_base: dict[int, Probed] = {}
        self._wishes: dict[int, Wish] = {}
        self._said: dict[int, Reading] = {}
        """What each window gave when it was last reported."""
        self._urgent: dict[str, None] = {}
        self._calm_ms = 0
        self._bad: set[str] = set()
        self._were_bad: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
        place = tempo.phase(f"{name}/heartbeat")
        self._beat_ms = now_ms + round(place * plan.heartbeat_ms)
        bases = count(0, SLOTS)
        for line in plan.lines:
            for each in line.probes:
                self._begin(line, each, next(bases), self._clock(now_ms))

    def _clock(self, now_ms: int) -> Seconds:
        return now_ms / 1_000 + self._ahead

    def _ms(self, at: Seconds) -> int:
        return round(1_000 * (at - self._ahead))

    # -- probes --------------------------------------------------------------------------------------------------------------------

    def _begin(self, line: LinePlan, plan: ProbePlan, base: int, now: Seconds) -> None:
        age = max_age(plan.interval_ms / 1_000, plan.max_age_ms / 1_000)
        window = Window(self._columns, plan.kind, size=plan.window, age=age, alpha=line.alpha_milli / 1_000)
        window.slow_us, window.crawl_us = plan.slow_us, plan.crawl_us
        leaving = Leaving()
        jobs = jobs_of(line, plan, endpoint_of(line), leaving, token=base)
        probed = Probed(line, plan, window, base=base, jobs=jobs, leaving=leaving)
        self._probed.setdefault(line.line, []).append(probed)
        self._by_base[base] = probed
        give_up = plan.timeout_ms + plan.patience_ms
        self._wishes[base] = Wish(self.name, line.line.partition("/")[2], plan.kind, plan.interval_ms, give_up)
        self._reschedule(probed, now)

    def _reschedule(self, probed: Probed, now: Seconds) -> None:
        due = tempo.next_due(probed.place, probed.every(1.0, now), probed.last, now, self._rng)
        probed.due = due
        heapq.heappush(self._queue, (due.at, next(self._order), due, probed))
        self.wake_ms = 0

    def begin_rounds(self, now_ms: int) -> None:
        """Hand over what begins within the next step."""
        now, queue = self._clock(now_ms), self._queue
        ahead = self._clock(now_ms + STEP_MS)
        while queue and queue[0][0] < ahead:
            at, _, due, probed = heapq.heappop(queue)
            if probed.due is not due:
                continue
            probed.last = due.grid
            if not probed.is_full:
                gap = tempo.gap(probed.every(1.0, now), probed.plan.burst)
                for place, job in enumerate(probed.begin()):
                    token = self._number << _BASE | job.token
                    self._send(self._wishes[probed.base], self._ms(at + place * gap), token)
            self._reschedule(probed, now)

    def ended(self, result: Result) -> None:
        """One attempt is over."""
        token = result.token & (1 << _BASE) - 1
        slot = token % SLOTS
        probed = self._by_base[token - slot]
        window, now, lost = probed.window, self._clock(result.at_ms), result.syn_lost
        unanswered = result.failure is Failure.TIMEOUT
        took_us = result.rtt_us or 0
        late = unanswered or took_us > 1_000 * probed.plan.timeout_ms
        was = window.rounds.last_ok, probed.doubted
        window.record(
            now,
            result.failure,
            result.kernel_us,
            late=late,
            sent=max(1, lost if unanswered else lost + 1),
            lost=lost,
            status=_status(probed.kind, result.failure),
            number=probed.numbers[slot],
            burst=probed.plan.burst,
        )
        probed.ended(slot, 0, None)
        probed.learn(now, answered=result.failure is None, lost=lost > 0 and probed.is_connecting)
        zone = trust.advisory(probed.zone, window.rounds.known, window.rounds.ok)
        if zone is not probed.zone:
            probed.turn(zone, now)
            self._turned(probed.line.line)
        if window.rounds.last_ok is not was[0] or was[1] < now < probed.doubted:
            self._reschedule(probed, now)

    def hint(self, hint: Hint, now_ms: int) -> None:
        """What the center says of lines."""
        now = self._clock(now_ms)
        suspects, out = frozenset(hint.suspects), frozenset(hint.open)
        for line, probes in self._probed.items():
            for probed in probes:
                was = probed.hinted, probed.window.is_out
                probed.hinted, probed.window.is_out = line in suspects, line in out
                if (probed.hinted, probed.window.is_out) != was:
                    self._reschedule(probed, now)

    # -- heartbeats ----------------------------------------------------------------------------------------------------------------

    def beats(self, now_ms: int) -> list[Beat]:
        """Heartbeats that are due."""
        found: list[Beat] = []
        if now_ms >= self._beat_ms:
            self._beat_ms += self.plan.heartbeat_ms
            self._look()
            found.append(self._beat([*self._probed], now_ms, ends_round=True))
        elif self._urgent and now_ms >= self._calm_ms:
            lines = list(self._urgent)
            self._urgent.clear()
            self._calm_ms = now_ms + _URGENT_MS
            found.append(self._beat(lines, now_ms, ends_round=False))
        begins = self._ms(self._queue[0][0]) - STEP_MS if self._queue else self._beat_ms
        urgent = self._calm_ms if self._urgent else self._beat_ms
        self.wake_ms = min(self._beat_ms, begins, urgent)
        return found

    def hurry(self, now_ms: int) -> None:
        """A center took us: it gets a whole round at once."""
        self._beat_ms = self.wake_ms = now_ms

    def _beat(self, lines: list[str], now_ms: int, *, ends_round: bool) -> Beat:
        readings, now = [], self._clock(now_ms)
        for line in lines:
            for probed in self._probed[line]:
                reading = probed.window.reading(now, self._said.get(probed.base))
                probed.settle()
                self._said[probed.base] = reading
                readings.append((LineId(line), reading))
        return Beat(self.name, tuple(readings), self.score, ends_round)

    # -- doubt (`agent.selfcheck`, without host and references) ----------------------------------------------------------------------

    def _turned(self, line: str) -> None:
        zones = [probed.zone for probed in self._probed[line] if probed.kind not in HELPERS]
        (self._bad.add if Zone.F in zones else self._bad.discard)(line)
        self._urgent[line] = None
        self.wake_ms = 0

    def _look(self) -> None:
        bad, before = frozenset(self._bad), self._were_bad
        self._were_bad = (before[1], bad)
        groups = [frozenset(self._probed[line][0].line.groups) for line in sorted(bad - before[0])]
        at_once = trust.at_once(groups, len(self._probed))
        if at_once:
            self._were_bad = (bad, bad)
        self.score = trust.doubt(self.score, trust.MOST if at_once else 0)


def _status(kind: Kind, failure: Failure | None) -> int:
    if kind is not Kind.HTTP or failure not in {None, Failure.STATUS}:
        return 0
    return _OK if failure is None else _ERROR


def numbered(token: int) -> int:
    """The number of the agent that an attempt is of."""
    return token >> _BASE
