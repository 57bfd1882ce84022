"""One line by one kind: its plan, its jobs for the engine, its rounds in flight, its window. Written by its `Prober`."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from reachline.agent.jobs import connects
from reachline.agent.leaving import Leaving
from reachline.core import tempo
from reachline.core.bucket import Claim
from reachline.core.paths import Paths
from reachline.core.window import MINIMUM, SLOW, Window
from reachline.model import Seconds, Zone
from reachline.net.engine import Job, Phases
from reachline.wire.frame import LinePlan, ProbePlan

__all__ = ["SLOTS", "Probed"]

SLOTS: Final = 8
"""Rounds of one line in flight at most, each with a token of its own: an engine's result names its round by it."""


_PLAINLY: Final = Leaving()


def _most_rounds(plan: ProbePlan) -> int:
    wait, every = (plan.timeout_ms + plan.patience_ms) / 1_000, plan.suspect_interval_ms / 1_000
    return min(SLOTS, tempo.overlap(wait, every))


class Probed:
    """What the prober knows of one line and kind. `base` … `base + SLOTS - 1` are its tokens."""

    __slots__ = (
        "_jobs",
        "_left",
        "_most",
        "asks",
        "base",
        "claims",
        "doubted",
        "due",
        "error",
        "expires",
        "failing",
        "hinted",
        "kind",
        "last",
        "lateness_us",
        "leaving",
        "line",
        "number",
        "numbers",
        "passed",
        "paths",
        "phases",
        "place",
        "plan",
        "skipped",
        "window",
        "zone",
    )

    def __init__(
        self,
        line: LinePlan,
        plan: ProbePlan,
        window: Window,
        *,
        base: int,
        jobs: tuple[Job, ...] = (),
        leaving: Leaving = _PLAINLY,
    ) -> None:
        self.line, self.plan, self.kind, self.window, self.base = line, plan, plan.kind, window, base
        self.leaving, self.number, self.numbers = leaving, 0, [0]
        """Of `numbers` each is the round that a slot holds or held last. A second slot is made when rounds first overlap."""
        self.claims: tuple[Claim, ...] = ()
        """What each of its rounds asks of the agent's buckets."""
        self.place = tempo.phase(line.line)
        self.due: tempo.Due | None = None
        """The appointment for its next round."""
        self.last: Seconds | None = None
        """Grid point of the newest round that began."""
        self.hinted = False
        """The center holds the line for not healthy."""
        self.doubted: Seconds = 0.0
        """Until then it is in doubt, for a lost packet or a turn of our own opinion."""
        self.failing: Seconds | None = None
        """When the first round ended of those that all failed since; None: the newest got through."""
        self.passed: Seconds = 0.0
        """When somebody last answered a connect."""
        self.paths: Paths | None = None
        """What is known of the paths behind it; None: nothing speaks for a dead one."""
        self.asks = 0
        """Attempts in 1000 s at the interval that applies now, as the prober last counted them."""
        self.zone = Zone.N
        """Our own quick opinion (`trust.advisory`)."""
        self.error = ""
        """The newest failure in words."""
        self.expires: int | None = None
        """When the peer's certificate ends, unix seconds."""
        self.phases: Phases | None = None
        """Where the time of the newest attempt went, for kinds that are more than a connect."""
        self.skipped = 0
        """Rounds left out since the last report…"""
        self.lateness_us = 0
        """…and how late the latest of those that began."""
        self._left = [0]
        """Attempts of each slot's round that have not ended."""
        self._most = _most_rounds(plan)
        self._jobs = [jobs]
        """By slot, then by source. Empty: the plan cannot be carried out, and `error` says why."""

    @property
    def can_run(self) -> bool:
        """Whether there is anything to send."""
        return bool(self._jobs[0])

    @property
    def job(self) -> Job | None:
        """One of its jobs."""
        return self._jobs[0][0] if self.can_run else None

    @property
    def jobs(self) -> tuple[Job, ...]:
        """One for each way to leave."""
        return self._jobs[0]

    @property
    def is_connecting(self) -> bool:
        """Whether its attempts are TCP connections."""
        return self.can_run and connects(self._jobs[0][0].probe)

    @property
    def host(self) -> str:
        """Whom its packets go to first, as the plan writes it."""
        job = self._jobs[0][0]
        return (job.hops[0].endpoint if job.hops else job.endpoint).host

    @property
    def tokens(self) -> range:
        """Those in use."""
        return range(self.base, self.base + len(self._jobs))

    def every(self, factor: float, now: Seconds) -> Seconds:
        """The interval now: shorter while the line is in doubt, longer once it is long dead.

        A line that is out of traffic can wait: its cooldown is longer than any interval.
        """
        plan, is_out = self.plan, self.window.is_out
        failing = self.hinted or (self.window.rounds.last_ok is not True and not is_out)
        doubted = now < self.doubted and not is_out
        usual, suspect = plan.interval_ms / 1_000, plan.suspect_interval_ms / 1_000
        return tempo.interval(usual, suspect, failing=failing, doubted=doubted, dead=self._is_dead(now), factor=factor)

    def _is_dead(self, now: Seconds) -> bool:
        """Long dead, and its window still holds what any limit asks for at the slower pace."""
        if self.failing is None or now - self.failing < tempo.DEAD:
            return False
        return tempo.SLOWER * (MINIMUM + 1) * self.plan.interval_ms / 1_000 <= self.window.shape[1] * self.plan.burst

    def learn(self, now: Seconds, *, answered: bool, lost: bool) -> None:
        """What the newest attempt means for the pace, once it is in the window. `lost`: a connect lost a packet."""
        if (lost and self.window.rounds.last_ok) or self.window.fresh_slow >= SLOW:
            self.doubted = now + tempo.DOUBT
        if answered:
            self.passed = now
        if self.window.rounds.last_ok is not False:
            self.failing = None
        elif self.failing is None:
            self.failing = now

    def turn(self, zone: Zone, now: Seconds) -> None:
        """Our own opinion of it turned; the first one is no turn."""
        if self.zone is not Zone.N:
            self.doubted = now + tempo.DOUBT
        self.zone = zone

    def follow(self, line: LinePlan, plan: ProbePlan) -> None:
        """Another plan that differs in nothing but what counts as slow."""
        self.line, self.plan = line, plan
        self.window.slow_us, self.window.crawl_us = plan.slow_us, plan.crawl_us

    def inherit(self, before: Probed) -> None:
        """Go on where the same line stood under another plan."""
        self.number, self.zone, self.last = before.number, before.zone, before.last
        self.doubted, self.failing, self.passed = before.doubted, before.failing, before.passed

    @property
    def is_full(self) -> bool:
        """Whether as many rounds are in flight as may be."""
        return sum(left > 0 for left in self._left) >= self._most

    def begin(self) -> tuple[Job, ...]:
        """The attempts of one more round, alternating over the ways to leave."""
        slot = self._free_slot()
        self.number += 1
        self.numbers[slot], self._left[slot] = self.number, self.plan.burst
        jobs = self._jobs[slot]
        return tuple(jobs[(self.number + attempt) % len(jobs)] for attempt in range(self.plan.burst))

    def ended(self, slot: int, lateness_us: int, phases: Phases | None) -> bool:
        """One attempt of the round in `slot` ended; whether it was the round's last."""
        self.lateness_us = max(self.lateness_us, lateness_us)
        self.phases = phases
        if phases is not None and phases.expires is not None:
            self.expires = phases.expires
        self._left[slot] -= 1
        return not self._left[slot]

    def settle(self) -> None:
        """A report is on its way: what comes now belongs to the next one."""
        self.window.settle()
        self.skipped = self.lateness_us = 0

    def _free_slot(self) -> int:
        if 0 in self._left:
            return self._left.index(0)
        slot = len(self._jobs)
        self._jobs.append(tuple(replace(job, token=self.base + slot) for job in self._jobs[0]))
        self._left.append(0)
        self.numbers.append(0)
        return slot
