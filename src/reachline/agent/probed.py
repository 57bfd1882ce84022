"""One line by one kind: its plan, its jobs for the engine, its rounds in flight, its window. Written by its `Prober`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from reachline.core import tempo
from reachline.core.window import Window
from reachline.doors import outbounds
from reachline.model import Endpoint, Seconds, Zone
from reachline.net.engine import Job
from reachline.talk import build, hop
from reachline.wire.frame import LinePlan, ProbePlan

__all__ = ["SLOTS", "Probed", "jobs_of"]

SLOTS: Final = 8
"""Rounds of one line in flight at most, each with a token of its own: an engine's result names its round by it."""


def jobs_of(
    line: LinePlan, plan: ProbePlan, endpoint: Endpoint, sources: Sequence[str], *, token: int
) -> tuple[Job, ...]:
    """What the engine does for one attempt, once for each source; ConfigError or ValueError where the plan is wrong."""
    probe = build(plan.kind, endpoint, plan.options)
    hops = outbounds.hops(line.via)
    if hops and (reason := hop.why_not(plan.kind)):
        raise ValueError(f"{reason}; it is not sent directly instead")
    return tuple(
        Job(
            token=token,
            endpoint=endpoint,
            probe=probe,
            timeout=plan.timeout_ms / 1_000,
            patience=plan.patience_ms / 1_000,
            source=source,
            interface=line.interface,
            hops=hops,
        )
        for source in ((line.source,) if line.source else tuple(sources) or ("",))
    )


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
        "due",
        "error",
        "expires",
        "hinted",
        "kind",
        "last",
        "lateness_us",
        "line",
        "number",
        "numbers",
        "place",
        "plan",
        "skipped",
        "window",
        "zone",
    )

    def __init__(
        self, line: LinePlan, plan: ProbePlan, window: Window, *, base: int, jobs: tuple[Job, ...] = ()
    ) -> None:
        self.line, self.plan, self.kind, self.window, self.base = line, plan, plan.kind, window, base
        self.place = tempo.phase(line.line)
        self.due: tempo.Due | None = None
        """The appointment for its next round."""
        self.last: Seconds | None = None
        """Grid point of the newest round that began."""
        self.hinted = False
        self.asks = 0
        """Attempts in 1000 s at the interval that applies now, as the prober last counted them."""
        self.zone = Zone.N
        """Our own quick opinion (`trust.advisory`)."""
        self.error = ""
        """The newest failure in words."""
        self.expires: int | None = None
        """When the peer's certificate ends, unix seconds."""
        self.skipped = 0
        """Rounds left out since the last report…"""
        self.lateness_us = 0
        """…and how late the latest of those that began."""
        self.number = 0
        self.numbers = [0]
        """The round that each slot holds or held last. A second slot is made when rounds first overlap."""
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
    def tokens(self) -> range:
        """Those in use."""
        return range(self.base, self.base + len(self._jobs))

    def every(self, factor: float) -> Seconds:
        """The interval now: shorter while the center holds the line for not healthy, or our newest round did not get through.

        A line that is out of traffic can wait: its cooldown is longer than any interval.
        """
        plan, failed = self.plan, self.window.rounds.last_ok is not True and not self.window.is_out
        usual, suspect = plan.interval_ms / 1_000, plan.suspect_interval_ms / 1_000
        return tempo.interval(usual, suspect, hinted=self.hinted, failed=failed, factor=factor)

    def begin(self) -> tuple[Job, ...]:
        """The attempts of one more round, alternating over the sources; empty, and counted, where too many are in flight."""
        if sum(left > 0 for left in self._left) >= self._most:
            self.skipped += 1
            return ()
        slot = self._free_slot()
        self.number += 1
        self.numbers[slot], self._left[slot] = self.number, self.plan.burst
        jobs = self._jobs[slot]
        return tuple(jobs[(self.number + attempt) % len(jobs)] for attempt in range(self.plan.burst))

    def ended(self, slot: int, lateness_us: int, expires: int | None) -> bool:
        """One attempt of the round in `slot` ended; whether it was the round's last."""
        self.lateness_us = max(self.lateness_us, lateness_us)
        self.expires = self.expires if expires is None else expires
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
