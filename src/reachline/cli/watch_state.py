"""What `watch` knows of each target: the newest attempts, the figures, and a state judged by the center's own rules.

One vantage, no breaker: what the center would call failed often enough to trip is UNHEALTHY here. A judge's tick is one
round, so patience is counted in rounds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from reachline.agent.probed import Probed
from reachline.agent.prober import Attempt, Prober
from reachline.cli.watch_targets import Target
from reachline.core import words
from reachline.core.judge import NEW, judge, wants_trip
from reachline.core.rules import Rules
from reachline.core.window import Figures
from reachline.core.zone import verdict
from reachline.doors import reach
from reachline.model import Failure, Gate, Health, Reading, Seconds, VantageId, Vote, Zone
from reachline.net.engine import Phases

__all__ = ["HISTORY", "Bar", "Sight", "Watch", "Watched", "watch_rules"]

HISTORY: Final = 60
"""Attempts a sparkline shows at most: a minute at the default interval."""
_ALONE: Final = VantageId("watch")
_DEFAULTS: Final = 'clusters: {watch: {lines: ["tcp://127.0.0.1:1"]}}'


class Bar(NamedTuple):
    """One attempt in a sparkline; `rtt` None: no answer that counts, a gap."""

    rtt: Seconds | None
    late: bool = False


class Sight(NamedTuple):
    """One target now, in seconds and shares; None: not known (yet)."""

    target: str
    rounds: int
    state: str
    reason: str
    ok: bool | None
    """How the newest round ended."""
    failure: str | None
    rtt: Seconds | None
    """Of the newest round."""
    clock: str | None
    """Where `rtt` comes from."""
    last: Seconds | None
    """The newest RTT there was."""
    loss: float | None
    sent: int
    lost: int
    attempts: int
    failed: int
    ewma: Seconds | None
    p50: Seconds | None
    p95: Seconds | None
    jitter: Seconds | None
    address: str
    resolve: Seconds | None = None
    """Where the time of the newest round went, for kinds that are more than a connect. To the first proxy is `connect`…"""
    connect: Seconds | None = None
    proxy: Seconds | None = None
    """…and from there to the last one's word that the target is reached."""
    tls: Seconds | None = None
    first: Seconds | None = None
    total: Seconds | None = None


def watch_rules(interval: Seconds) -> Rules:
    """The default rules of a document, but that one round is enough for a first opinion: a person waits for it."""
    rules = reach.rules(reach.read(_DEFAULTS, name="defaults"), "watch")
    limits = tuple(limit._replace(minimum=1) if limit.metric == "connect" else limit for limit in rules.limits)
    return replace(rules, limits=limits, tick_ms=round(1_000 * interval))


class Watched:
    """One target's row. Written by `Watch`."""

    def __init__(self, target: Target, rules: Rules) -> None:
        self.target = target
        self.history: deque[Bar] = deque(maxlen=HISTORY)
        self.newest: Attempt | None = None
        self.reading, self.figures = Reading(kind=target.kind), Figures()
        self.rounds = 0
        self.paths = ""
        """What is known of a dead path among equal ones, in words."""
        self.phases = Phases()
        self._rules = rules
        self._row = NEW
        self._vote: Vote | None = None
        self._zone = Zone.N
        self._held: dict[str, int] = {}
        self._decides = frozenset({target.kind})
        """Kinds that only help elsewhere decide here: they are all there is."""

    @property
    def health(self) -> Health:
        return self._row.health

    def ended(self, attempt: Attempt, reading: Reading, figures: Figures) -> None:
        """One more round: its only attempt ended."""
        self.newest, self.reading, self.figures = attempt, reading, figures
        answered = attempt.failure is None and attempt.rtt_us is not None
        self.history.append(
            Bar(attempt.rtt_us / 1e6 if answered and attempt.rtt_us is not None else None, attempt.late)
        )
        self.rounds += 1
        if attempt.failure is not Failure.AGENT:
            self._judge()

    def _judge(self) -> None:
        rules = self._rules
        found = verdict(_ALONE, (self.reading,), self._held, rules, decides=self._decides)
        self._zone, self._vote, self._held = found.zone, found.vote, dict(found.held)
        row = judge(
            self._row, found.zone, rules.tick_ms, gate=Gate.CLOSED, patience=rules.patience, faults=rules.faults
        )
        if row.health is Health.UNKNOWN and found.zone is Zone.H:
            row = row._replace(health=Health.HEALTHY)
        # Patience for a lone vantage protects traffic from being moved by one; here nothing is moved.
        if wants_trip(row, rules.patience, lone=False):
            row = row._replace(health=Health.UNHEALTHY)
        self._row = row

    @property
    def reason(self) -> str:
        """Why the state is what it is, with the counts behind it; empty while all is well."""
        if self.newest is None:
            return "waiting for the first answer"
        said = [self._fault()] if self.newest.failure is not None or self.newest.late else []
        if self._vote and self._zone in (Zone.D, Zone.F):
            said.append(_told(self._vote))
        elif self.health in (Health.DEGRADED, Health.UNHEALTHY):
            said.append(f"recovering: {self._row.good} of {self._rules.patience.recover} good rounds")
        said.append(self.paths)
        return "; ".join(filter(None, said))

    def _fault(self) -> str:
        newest = self.newest
        if newest is None:
            return ""
        if newest.failure is None:
            return "answered too late"
        return newest.note or newest.failure.name.lower()

    def sight(self, address: str) -> Sight:
        """All of it as values."""
        newest, reading = self.newest, self.reading
        counts = reading.counts
        return Sight(
            target=self.target.text,
            rounds=self.rounds,
            state=self.health.name.lower(),
            reason=self.reason,
            ok=None if newest is None else newest.failure is None and not newest.late,
            failure=_failure(newest),
            rtt=None if newest is None else _seconds(newest.rtt_us),
            clock=None if newest is None or newest.rtt_us is None else newest.clock.name.lower(),
            last=_seconds(self.figures.last_us),
            loss=reading.lost / reading.sent if reading.sent else None,
            sent=reading.sent,
            lost=reading.lost,
            attempts=counts.attempts,
            failed=counts.attempts - counts.ok,
            ewma=_seconds(reading.ewma_us),
            p50=_seconds(reading.p50_us),
            # The judge's P95 counts unanswered attempts as endless; people get that of answers, with the loss beside it.
            p95=_seconds(self.figures.p95_us),
            jitter=_seconds(reading.jitter_us),
            address=address,
            resolve=_seconds(self.phases.resolve),
            connect=_seconds(self.phases.connect),
            proxy=_seconds(self.phases.proxy),
            tls=_seconds(self.phases.tls),
            first=_seconds(self.phases.first),
            total=_seconds(self.phases.total),
        )


class Watch:
    """All targets. Written by the prober's callback."""

    def __init__(self, targets: Sequence[Target], rules: Rules, *, count: int | None) -> None:
        self.rows = {target.text: Watched(target, rules) for target in targets}
        self.count = count

    def ended(self, probed: Probed, attempt: Attempt, now: Seconds) -> Watched:
        """An attempt is in its window; the row it belongs to."""
        row = self.rows[probed.line.line]
        row.paths, row.phases = _paths(probed), probed.phases or Phases()
        row.ended(attempt, *probed.window.summary(now))
        probed.settle()
        return row

    @property
    def is_done(self) -> bool:
        """Whether every target had its rounds."""
        return self.count is not None and self.rounds >= self.count

    @property
    def rounds(self) -> int:
        """How many rounds every target has had."""
        return min(row.rounds for row in self.rows.values())

    @property
    def is_well(self) -> bool:
        """Whether every target is healthy."""
        return all(row.health is Health.HEALTHY for row in self.rows.values())

    def sights(self, prober: Prober) -> list[Sight]:
        """Every target now, in the order given."""
        return [self.sight(row, prober) for row in self.rows.values()]

    @staticmethod
    def sight(row: Watched, prober: Prober) -> Sight:
        """One target now."""
        (probed,) = prober.lines[row.target.text]
        return row.sight(prober.address(probed))


def _paths(probed: Probed) -> str:
    found = probed.paths.finding if probed.paths else None
    if found is None or not found.tried:
        return ""
    bucket, shift = (found.pattern.bucket, found.pattern.shift) if found.pattern else (None, 0)
    return words.paths(found.dead, found.tried, parts=found.parts or 0, bucket=bucket, shift=shift)


def _told(vote: Vote) -> str:
    """What was measured against which limit; of connecting only how often, for what went wrong is said before it."""
    if vote.metric.endswith((".connect", ".resolve")):
        return f"{vote.numerator} of the last {vote.denominator} rounds ok"
    return words.vote(vote)


def _failure(newest: Attempt | None) -> str | None:
    if newest is None:
        return None
    if newest.failure is not None:
        return newest.failure.name.lower()
    return "late" if newest.late else None


def _seconds(microseconds: int | None) -> Seconds | None:
    return None if microseconds is None else microseconds / 1e6
