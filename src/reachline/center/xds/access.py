"""ALS: the access logs of Envoys become outcomes with true latency, of the lines that their calls went to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from reachline.center.xds.admission import INTRODUCTION, admit, first
from reachline.center.xds.planes import By, Planes
from reachline.errors import RemoteProtocolError
from reachline.net.rpc import Call
from reachline.wire import als

__all__ = ["BYTES_A_SECOND", "AccessLogs", "Budget"]

BYTES_A_SECOND: Final = 8 << 20
"""Of all access logs together: about 22 000 entries of 370 bytes, which cost a quarter of a core. Beyond, messages are dropped
unread, so that no log, however busy its Envoy, keeps the center from judging; shares of what is read stay what they are."""

_MOST: Final = 1 << 20
"""Bytes of one message: 64 times what Envoy buffers, and a fiftieth of a second's work."""
_DONE: Final = b""
"""A `StreamAccessLogsResponse`, which has no fields."""


class Budget:
    """How many bytes may be read now: a second's worth may be saved up. Pure."""

    def __init__(self, rate: int, now_ms: int) -> None:
        self._rate = rate
        self._room = rate * 1_000
        """In 1/1000 bytes."""
        self._at_ms = now_ms

    def take(self, size: int, now_ms: int) -> bool:
        """Whether a message of this size may be read; then it is paid for. One larger than all room is read once that is full."""
        self._room = min(self._rate * 1_000, self._room + self._rate * max(0, now_ms - self._at_ms))
        self._at_ms = now_ms
        if self._room < min(size * 1_000, self._rate * 1_000):
            return False
        self._room -= size * 1_000
        return True


class AccessLogs:
    """All streams of access logs; an Envoy has one for each of its threads. `token` is the center's; empty: none is asked for."""

    def __init__(self, planes: Planes, *, token: str = "", rate: int = BYTES_A_SECOND) -> None:
        self._planes = planes
        self._token = token
        self._budget = Budget(rate, planes.board.clock())

    async def stream(self, frames: AsyncIterator[bytes], call: Call) -> AsyncIterator[bytes]:
        """One call of `StreamAccessLogs`: answered once, when it is over."""
        self._planes.welcome()
        data = await first(frames, most=INTRODUCTION)
        logged = als.decode(data)
        if logged.teller is None:
            raise RemoteProtocolError("the first message of a stream must name its node")
        admit(call, logged.teller, self._planes.board.roster, self._token)
        plane = self._planes.joined(logged.teller, By.ALS, call.peer)
        try:
            self._planes.calls(plane, logged.calls, logged.skipped)
            async for data in frames:
                if len(data) > _MOST:
                    self._planes.heard(plane)
                    plane.refused += 1
                elif self._budget.take(len(data), self._planes.board.clock()):
                    logged = als.decode(data)
                    self._planes.calls(plane, logged.calls, logged.skipped)
                else:
                    self._planes.heard(plane)
                    plane.shed += 1
        finally:
            self._planes.left(plane)
        yield _DONE
