"""What one agent may send, and what it left out: its total rate, a bucket for each network and source address, its ports.

Rounds beyond a bucket start later within their interval; those that would start after it are skipped and counted, and the
bucket's name says that the agent itself was the cause. Sends nothing and waits for nothing.
"""

from __future__ import annotations

import heapq
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from reachline.core import tempo
from reachline.core.bucket import SPARE, Buckets, Claim
from reachline.model import Ratio, Seconds

__all__ = ["Close", "Limits", "Pace", "Said", "Skip"]

log = logging.getLogger("reachline.agent")

_TOLD: Final = 3
"""Buckets named in one log event and report: who reads it looks at the fullest ones."""


class Close(StrEnum):
    """How a probe's connection is closed: FIN leaves our port in TIME_WAIT for a minute, RST shows as an error at the target."""

    AUTO = "auto"
    FIN = "fin"
    RST = "rst"


class Skip(StrEnum):
    """Why a round was left out."""

    LATE = "late"
    OVERLAP = "overlap"
    NETWORK = "network"
    SOURCE = "source"
    PORTS = "ports"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one agent may send; None: as much as there is to send."""

    rate: float | None = None
    """Attempts a second, over all lines…"""
    network: float | None = None
    """…to one /24 or /48…"""
    source: float | None = None
    """…from one own address."""
    attempts: int | None = None
    """At once."""
    close: Close = Close.AUTO


class Said(NamedTuple):
    """How the agent kept its limits, since it began."""

    rate: float
    """Attempts a second that all lines ask for now, as stretched."""
    factor: float
    skipped: dict[str, int]
    """Rounds left out, by cause."""
    limit: str
    """The bucket that kept most rounds from starting since this was last asked, in words; empty where none did."""


class Pace:
    """One agent's limits and what they did. Written by its prober."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.factor: Ratio = 1.0
        """By how much all intervals are stretched; 1: not at all."""
        self.free: Seconds = 0.0
        """From when on the total rate allows another attempt, by what had left when this was last asked."""
        self.skipped: Counter[str] = Counter()
        self._put_off: list[tuple[Seconds, int]] = []
        """(start, attempts) of rounds that a bucket put off. The rate counts them once they leave: nobody waits for them before."""
        self._buckets = Buckets()
        self._asked = 0
        """Attempts in 1000 s that all lines ask for, each at the interval that applies to it now."""
        self._refused: Counter[str] = Counter()
        self._told: Ratio = 1.0

    def tally(self, change: int) -> None:
        """A line asks for more, or less, attempts in 1000 s; all stretch alike where the sum is above the rate."""
        self._asked += change
        if self.limits.rate is not None:
            self.factor = tempo.stretch((self._asked / 1_000,), self.limits.rate)

    def admit(self, claims: Sequence[Claim], at: Seconds, until: Seconds, attempts: int) -> Seconds | None:
        """When a round due `at` may start, by all its buckets and the total rate; None: not `until` then, and it is counted."""
        start = self._buckets.take(claims, at, until) if claims else at
        if isinstance(start, str):
            self.skipped[start.partition(" ")[0]] += 1
            self._refused[start] += 1
            return None
        if self.limits.rate is None:
            return start
        self._settle(at)
        if start > max(at, self.free):
            heapq.heappush(self._put_off, (start, attempts))
            return start
        begin = max(start, self.free)
        self._spend(start, attempts)
        return begin

    def has_room(self, claims: Sequence[Claim], now: Seconds) -> bool:
        """Whether one more attempt may go at once, beside all rounds; it is taken then. Nothing is counted where not."""
        single = [claim._replace(attempts=1) for claim in claims]
        self._settle(now)
        if self.limits.rate is not None and self.free > now:
            return False
        if isinstance(self._buckets.take(single, now, now), str):
            return False
        self._spend(now, 1)
        return True

    def _settle(self, now: Seconds) -> None:
        """Counts what was put off until now."""
        while self._put_off and self._put_off[0][0] <= now:
            self._spend(*heapq.heappop(self._put_off))

    def _spend(self, at: Seconds, attempts: int) -> None:
        """Attempts that leave at this moment take their share of the total rate."""
        if self.limits.rate is not None:
            self.free = max(self.free, at - SPARE) + attempts / self.limits.rate

    def skip(self, cause: Skip, rounds: int = 1) -> None:
        """Rounds were left out."""
        if rounds:
            self.skipped[cause] += rounds

    def tell(self, probes: int) -> None:
        """Says so where all intervals are stretched by another factor than last told."""
        if self.factor != self._told:
            self._told = self.factor
            log.warning("intervals_stretched", extra={"factor": round(self.factor, 3), "probes": probes})

    def said(self) -> Said:
        """The state of things; buckets that refused since the last call are named, here and in the log."""
        refused = self._refused.most_common(_TOLD)
        self._refused.clear()
        for name, rounds in refused:
            log.warning("rounds_skipped", extra={"limit": name, "rounds": rounds})
        return Said(
            rate=self._asked / 1_000 / self.factor,
            factor=self.factor,
            skipped=dict(self.skipped),
            limit=refused[0][0] if refused else "",
        )
