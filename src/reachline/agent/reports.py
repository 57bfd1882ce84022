"""Windows into heartbeats: counts for the judge, figures for people, doubt about ourselves."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from reachline.agent import trust
from reachline.agent.passive import Passive
from reachline.agent.probed import Probed
from reachline.agent.prober import Prober
from reachline.model import Kind, Seconds
from reachline.wire.frame import SLICE, Detail, Heartbeat, LinePlan, ProbePlan, Report

__all__ = ["Reporter", "reference_plans"]

_REFERENCE: Final = "~reference/"
"""Begins the id of a line that is our own: no cluster's name can."""
_EVERY_MS: Final = 1_000
"""Of a reference target. One failed round must be known before a line's three are, or we would report our own fault."""
_DAY: Final = 86_400


def reference_plans(targets: Sequence[str]) -> tuple[LinePlan, ...]:
    """How the targets near the agent are probed: one attempt a second, given up after one."""
    return tuple(
        LinePlan(
            line=f"{_REFERENCE}{target}",
            target=target,
            probes=(
                ProbePlan(
                    kind=_kind(target),
                    interval_ms=_EVERY_MS,
                    suspect_interval_ms=_EVERY_MS,
                    timeout_ms=_EVERY_MS,
                    patience_ms=0,
                ),
            ),
        )
        for target in targets
    )


def _kind(target: str) -> Kind:
    scheme = target.partition(":")[0]
    return Kind(scheme) if scheme in ("icmp", "dns") else Kind.TCP


class Reporter:
    """Makes one agent's heartbeats. Written by its owner's task."""

    def __init__(self, prober: Prober, passive: Passive, *, agent: str, boot: str, now: Seconds) -> None:
        self._prober, self._passive, self._agent, self._boot, self._born = prober, passive, agent, boot, now
        self._sequence = self._doubt = 0
        self._sure: Seconds = now
        """Until then the reference targets answered, if there are any."""
        self.is_void = False
        """Whether our own end is broken."""

    def slices(self) -> tuple[tuple[str, ...], ...]:
        """The plan's lines in parts of a heartbeat; one empty part where there are none, as a sign of life."""
        watched = dict.fromkeys((*self._prober.lines, *self._passive.lines))
        lines = tuple(line for line in watched if not line.startswith(_REFERENCE))
        return tuple(lines[at : at + SLICE] for at in range(0, len(lines), SLICE)) or ((),)

    def look(self, now: Seconds) -> None:
        """Once a heartbeat: how far are we to be trusted? Ends of a cut are found here, and its samples taken back."""
        self._doubt = trust.doubt(self._doubt, round(1e6 * self._prober.worst_late()))
        self._check(now)

    def reports(self, lines: Sequence[str], now: Seconds) -> list[Report]:
        """All kinds of these lines: a line's vote is made from all of them at once. They count as reported with this."""
        self._check(now)
        found: list[Report] = []
        for line in lines:
            found += (self._report(probed, now) for probed in self._prober.lines.get(line, ()))
            found += self._passive.report(line, now, void=self.is_void)
        return found

    def heartbeat(
        self, reports: Sequence[Report], *, part: tuple[int, int], now: Seconds, urgent: bool = False
    ) -> Heartbeat:
        """The next heartbeat in sequence."""
        self._sequence += 1
        return Heartbeat(
            agent=self._agent,
            boot=self._boot,
            sequence=self._sequence,
            part=part,
            sent_ms=round(1_000 * (now - self._born)),
            doubt=self._doubt,
            urgent=urgent,
            reports=tuple(reports),
        )

    def _check(self, now: Seconds) -> None:
        references = [probes[0] for line, probes in self._prober.lines.items() if line.startswith(_REFERENCE)]
        was_void, self.is_void = self.is_void, trust.is_cut_off(probed.window.rounds.last_ok for probed in references)
        if was_void and not self.is_void:
            self._prober.revoke(self._sure)
            self._passive.revoke(self._sure)
        if not self.is_void:
            # An answered round began at most its interval and its timeout ago; only until then we are sure.
            self._sure = max(self._sure, now - 2 * _EVERY_MS / 1_000)

    def _report(self, probed: Probed, now: Seconds) -> Report:
        reading, figures = probed.window.summary(now, void=self.is_void)
        failed = reading.counts.attempts != reading.counts.ok
        days = None if probed.expires is None else int((probed.expires - time.time()) // _DAY)
        detail = Detail(
            p95_answered_us=figures.p95_us,
            last_us=figures.last_us,
            clock=figures.clock.value,
            codes=figures.codes,
            histogram=figures.histogram,
            handshake_lost=figures.handshake_lost,
            address=self._prober.address(probed),
            error=probed.error if failed or not reading.counts.attempts else "",
            skipped=probed.skipped,
            lateness_us=probed.lateness_us,
            certificate_days=days,
        )
        probed.settle()
        return Report(line=probed.line.line, reading=reading, detail=detail)
