"""One other agent as this one sees it: questions, answers, intervals, what they say. Knows no socket and no loop."""

from __future__ import annotations

from collections import deque
from typing import Final

from reachline.core.direction import INTERVALS, LENGTH_MS, Finding, Interval, find
from reachline.net.stamped import Address
from reachline.wire.frame import MeshReport, Peer
from reachline.wire.mesh import Reply
from reachline.wire.mesh_sides import Asking

__all__ = ["INTERVAL_MS", "Seen", "interval_of"]

INTERVAL_MS: Final = LENGTH_MS
"""An interval's length: the lowest of 25 probes is the path's own delay but for steady load."""
_PROBES: Final = 25
"""Probes an interval holds at least: a slow pace makes intervals longer, not poorer."""
_SILENT_INTERVALS: Final = 12
"""A minute, longer than a restart takes…"""
_SELDOM: Final = 5
"""…and then once a second is soon enough to find an agent back."""


def interval_of(every_ms: int, least_ms: int) -> int:
    """The length of an interval at this pace, in ms."""
    return max(least_ms, _PROBES * every_ms)


class Seen:
    """One peer. Written by its prober."""

    __slots__ = (
        "address",
        "asked_us",
        "asking",
        "closes_us",
        "error",
        "family",
        "finding",
        "heard_us",
        "intervals",
        "length_ms",
        "opened_us",
        "peer",
        "turns",
    )

    def __init__(self, peer: Peer, asking: Asking, now_us: int) -> None:
        self.peer, self.asking = peer, asking
        self.family = 0
        """Of its address; 0 while that is not known."""
        self.address: Address = ("", 0)
        self.error = ""
        """Why nothing can be sent now."""
        self.heard_us: int | None = None
        self.asked_us = self.opened_us = self.closes_us = now_us
        """Since when it is asked by this key; when the interval began, and when it ends."""
        self.length_ms = INTERVAL_MS
        self.turns = 0
        self.intervals: deque[Interval] = deque(maxlen=INTERVALS)
        self.finding = Finding()

    def heard(self, reply: Reply, at_us: int, *, is_timed: bool) -> bool:
        """A reply that is sealed; whether it is news."""
        is_news = self.asking.heard(reply, at_us, is_timed=is_timed)
        if is_news:
            self.heard_us = max(at_us, self.heard_us or 0)
        return is_news

    def renew(self, peer: Peer, asking: Asking, now_us: int) -> None:
        """It is to be asked anew, by another key: losses count from the first answer on, and silence from now."""
        self.peer, self.asking, self.asked_us = peer, asking, now_us

    def is_new(self, now_us: int) -> bool:
        """Whether it may not have had the time to answer: nobody calls that silence."""
        is_heard = self.heard_us is not None and self.heard_us >= self.asked_us
        return not is_heard and now_us - self.asked_us < 1_000 * self.length_ms

    def is_silent(self, now_us: int) -> bool:
        """Whether it did not answer for a minute, or as much longer as its intervals are."""
        quiet_us = now_us - max(self.heard_us or 0, self.asked_us)
        return quiet_us > _SILENT_INTERVALS * 1_000 * max(self.length_ms, INTERVAL_MS)

    def rests(self, now_us: int) -> bool:
        """Whether this turn is left out: who is silent is asked a fifth as often."""
        self.turns += 1
        return self.is_silent(now_us) and self.turns % _SELDOM > 0

    def close(self, now_us: int, *, length_ms: int, void: bool) -> None:
        """The interval is over, the next one has `length_ms`: what do all of them say?"""
        now_ms, self.length_ms = now_us // 1_000, length_ms
        self.intervals.append(self.asking.close(now_ms, void=void))
        self.finding = find(self.intervals, now_ms, held=self.finding.loss, length_ms=length_ms)
        self.opened_us, self.closes_us = now_us, now_us + length_ms * 1_000

    def report(self, now_us: int, asked_ms: int | None) -> MeshReport:
        """For the next heartbeat; `asked_ms` is since its last question came here."""
        newest = None if self.is_silent(now_us) else self._newest()
        found = self.finding
        return MeshReport(
            peer=self.peer.agent,
            silent_ms=None if self.heard_us is None else max(now_us - self.heard_us, 0) // 1_000,
            asked_ms=asked_ms,
            error=self.error,
            sent=found.sent,
            forward_lost=found.forward_lost,
            replied=found.replied,
            reverse_lost=found.reverse_lost,
            rtt_us=newest.rtt_us if newest else None,
            forward_rise_us=found.forward_rise_us,
            reverse_rise_us=found.reverse_rise_us,
            loss=found.loss,
            delay=found.delay,
            drift_ppb=found.drift_ppb,
            stepped=found.stepped,
        )

    def _newest(self) -> Interval | None:
        """The newest interval with an answer."""
        return next((one for one in reversed(self.intervals) if one.rtt_us is not None), None)
