"""Windows into heartbeats: counts for the judge, figures for people, doubt about ourselves."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from reachline.agent.passive import Passive
from reachline.agent.probed import Probed
from reachline.agent.prober import Prober
from reachline.agent.references import is_own
from reachline.agent.selfcheck import SelfCheck
from reachline.model import Seconds
from reachline.wire.frame import MOST_TEXT, SLICE, Detail, Heartbeat, Pacing, Phases, Ports, Report

__all__ = ["Reporter", "pacing_of"]

_DAY: Final = 86_400


class Reporter:
    """Makes one agent's heartbeats. Written by its owner's task."""

    def __init__(
        self, prober: Prober, passive: Passive, trust: SelfCheck, *, agent: str, boot: str, now: Seconds
    ) -> None:
        self._prober, self._passive, self._self, self._agent, self._boot = prober, passive, trust, agent, boot
        self._born = now
        self._sequence = 0

    def slices(self) -> tuple[tuple[str, ...], ...]:
        """The plan's lines in parts of a heartbeat; one empty part where there are none, as a sign of life."""
        watched = dict.fromkeys((*self._prober.lines, *self._passive.lines))
        lines = tuple(line for line in watched if not is_own(line))
        return tuple(lines[at : at + SLICE] for at in range(0, len(lines), SLICE)) or ((),)

    def reports(self, lines: Sequence[str], now: Seconds) -> list[Report]:
        """All kinds of these lines: a line's vote is made from all of them at once. They count as reported with this."""
        self._self.check(now)
        found: list[Report] = []
        for line in lines:
            found += (self._report(probed, now) for probed in self._prober.lines.get(line, ()))
            found += self._passive.report(line, now, void=self._self.is_void)
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
            doubt=self._self.score,
            doubts=self._self.doubts,
            urgent=urgent,
            reports=tuple(reports),
        )

    def _report(self, probed: Probed, now: Seconds) -> Report:
        reading, figures = probed.window.summary(now, void=self._self.is_void)
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
            error=probed.error[:MOST_TEXT] if failed or not reading.counts.attempts else "",
            skipped=probed.skipped,
            lateness_us=probed.lateness_us,
            certificate_days=days,
            interval_ms=round(1_000 * self._prober.every(probed)),
            ports=_ports(probed),
            phases=_phases(probed),
        )
        probed.settle()
        return Report(line=probed.line.line, reading=reading, detail=detail)


def _phases(probed: Probed) -> Phases | None:
    if (found := probed.phases) is None:
        return None
    return Phases(
        resolve_us=found.resolve,
        connect_us=found.connect,
        proxy_us=found.proxy,
        tls_us=found.tls,
        first_us=found.first,
        total_us=found.total,
    )


def _ports(probed: Probed) -> Ports | None:
    """What a survey found, once it says that there is a dead path."""
    found = probed.paths.finding if probed.paths else None
    if found is None or not found.tried:
        return None
    bucket, shift = (found.pattern.bucket, found.pattern.shift) if found.pattern else (None, 0)
    return Ports(dead=found.dead, tried=found.tried, parts=found.parts or 0, bucket=bucket, shift=shift)


def pacing_of(prober: Prober) -> Pacing:
    """How the prober kept its limits; the next one begins anew where it says what was since the last."""
    said = prober.pace.said()
    return Pacing(
        rate_milli=round(1_000 * said.rate),
        stretch_milli=round(1_000 * said.factor),
        skipped=said.skipped,
        shed=prober.shed,
        limit=said.limit,
    )
