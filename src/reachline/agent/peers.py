"""One other agent as this one sees it: questions, answers, intervals, what they say. Knows no socket and no loop."""

from __future__ import annotations

from collections import deque
from typing import Final

from reachline.core.direction import INTERVALS, Finding, Interval, find
from reachline.net.stamped import Address
from reachline.wire.frame import MeshReport, Peer
from reachline.wire.mesh import Reply
from reachline.wire.mesh_sides import Asking

__all__ = ["INTERVAL_MS", "Seen", "interval_of"]

INTERVAL_MS: Final = 5_000
"""An interval's length: the lowest of 25 probes is the path's own delay but for steady load."""
_PROBES: Final = 25
"""Probes an interval holds at least: a slow pace makes intervals longer, not poorer."""


_SILENT_US: Final = 60_000_000
"""Longer than a restart takes…"""
_SELDOM: Final = 5
"""…and then once a second is soon enough to find an agent back."""


def interval_of(every_ms: int, least_ms: int) -> int:
    """The length of an interval at this pace, in ms."""
    return max(least_ms, _PROBES * every_ms)


class Seen:
    """One peer. Written by its prober."""

    __slots__ = (
        "address",
        "asking",
        "born_us",
        "closes_us",
        "error",
        "family",
        "finding",
        "heard_us",
        "intervals",
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
        self.born_us = self.opened_us = self.closes_us = now_us
        self.turns = 0
        self.intervals: deque[Interval] = deque(maxlen=INTERVALS)
        self.finding = Finding()

    def heard(self, reply: Reply, at_us: int, *, is_timed: bool) -> bool:
        """A reply that is sealed; whether it is news."""
        is_news = self.asking.heard(reply, at_us, is_timed=is_timed)
        if is_news:
            self.heard_us = max(at_us, self.heard_us or 0)
        return is_news

    def rests(self, now_us: int) -> bool:
        """Whether this turn is left out: who was silent for a minute is asked a fifth as often."""
        self.turns += 1
        is_silent = now_us - (self.heard_us or self.born_us) > _SILENT_US
        return is_silent and self.turns % _SELDOM > 0

    def close(self, now_us: int, *, length_ms: int, void: bool) -> None:
        """The interval is over: what do all of them say?"""
        self.intervals.append(self.asking.close(now_us // 1_000, void=void))
        self.finding = find(self.intervals, now_us // 1_000, held=self.finding.loss)
        self.opened_us, self.closes_us = now_us, now_us + length_ms * 1_000

    def report(self, now_us: int, asked_ms: int | None) -> MeshReport:
        """For the next heartbeat; `asked_ms` is since its last question came here."""
        found, newest = self.finding, next((one for one in reversed(self.intervals) if one.rtt_us is not None), None)
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
