"""Frames that cost a peer nothing and us something: how many are too many, as Envoy counts them."""

from __future__ import annotations

from collections import Counter
from typing import Final

from reachline.proxy.http2.frames import BrokenError
from reachline.proxy.http2.limits import Code, Limits
from reachline.proxy.http2.sending import Sender

__all__ = ["Floods"]

_UPDATES: Final = 5
"""Window updates of nobody's: on the connection, before there is a stream."""


class Floods:
    """What one peer did so far. Each method counts one more, and raises BrokenError where that is too much."""

    __slots__ = ("_closed", "_counts", "_early", "_empty", "_limits", "_priorities", "_updates", "streams")

    def __init__(self, limits: Limits, counts: Counter[str]) -> None:
        self._limits: Final = limits
        self._counts: Final = counts
        self.streams = 0
        """Begun so far."""
        self._empty = self._priorities = self._updates = 0
        self._closed = self._early = 0
        """Streams that are over, and those of them that the peer gave up early."""

    def empty(self, *, is_empty: bool) -> None:
        """A frame of a message, which holds nothing and ends nothing, or not."""
        if not is_empty:
            self._empty = 0
            return
        self._empty += 1
        if self._empty > self._limits.empty_frames:
            raise self._calm("inbound_empty_frames_flood")

    def priority(self) -> None:
        self._priorities += 1
        if self._priorities > self._limits.priority_frames * (1 + self.streams):
            raise self._calm("inbound_priority_frames_flood")

    def update(self, data_frames: int) -> None:
        """A window update, while so many frames of bodies were sent."""
        self._updates += 1
        if self._updates > _UPDATES + 2 * (self.streams + self._limits.window_updates * data_frames):
            raise self._calm("inbound_window_update_frames_flood")

    def closed(self, *, is_early: bool) -> None:
        """A stream is over; `is_early`: the peer gave it up before an answer, soon after it began."""
        self._closed += 1
        if not is_early:
            return
        self._early += 1
        if self._early * 2 >= max(self._closed, self._limits.resets):
            raise self._calm("downstream_rq_too_many_premature_resets")

    def outbound(self, sender: Sender) -> None:
        """What waits for a peer that asks and does not read."""
        if sender.controls > self._limits.outbound_control_frames:
            raise self._calm("outbound_control_flood")
        if sender.frames > self._limits.outbound_frames:
            raise self._calm("outbound_flood")

    def _calm(self, counter: str) -> BrokenError:
        self._counts[counter] += 1
        return BrokenError(Code.ENHANCE_YOUR_CALM, counter, counter)
