"""LRS: load reports of Envoys (each endpoint) and gRPC clients (each locality) become outcomes of the lines that they name."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from typing import Final

from reachline.center.xds.admission import INTRODUCTION, admit, first
from reachline.center.xds.planes import By, Plane, Planes
from reachline.errors import RemoteProtocolError
from reachline.net.rpc import Call
from reachline.wire import lrs
from reachline.wire.lrs import Report

__all__ = ["Loads"]

_EVERY_MS: Final = 1_000
"""As often as an SDK posts what its calls came to."""
_HELD_MS: Final = 2_000
"""An Envoy's report waits this long: its access log, sent once a second, may tell of the same calls, and better."""
_SHED_MS: Final = _EVERY_MS // 4
"""A report that comes sooner after the last one is not read…"""
_BURST: Final = 8
"""…beyond so many: after a stall, those that waited come at once."""
_MOST_HELD: Final = 16


class Loads:
    """All streams of load reports. `token` is the center's; empty: none is asked for."""

    def __init__(self, planes: Planes, *, token: str = "") -> None:
        self._planes = planes
        self._token = token

    async def stream(self, frames: AsyncIterator[bytes], call: Call) -> AsyncIterator[bytes]:
        """One call of `StreamLoadStats`."""
        self._planes.welcome()
        report = lrs.decode(await first(frames, most=INTRODUCTION))
        if report.teller is None:
            raise RemoteProtocolError("the first message of a stream must name its node")
        admit(call, report.teller, self._planes.board.roster, self._token)
        plane = self._planes.joined(report.teller, By.LRS, call.peer)
        held = _Held(self._planes, plane)
        try:
            held.take(report)
            yield lrs.encode(_EVERY_MS)
            async for data in frames:
                if held.is_due():
                    held.take(lrs.decode(data))
        finally:
            held.give(0)
            self._planes.left(plane)


class _Held:
    """Reports of one stream on their way to the sums. Written by that stream."""

    def __init__(self, planes: Planes, plane: Plane) -> None:
        self._planes = planes
        self._plane = plane
        # gRPC writes no access log.
        self._wait_ms = 0 if plane.teller.user_agent.lower().startswith("grpc") else _HELD_MS
        self._reports: deque[tuple[int, Report]] = deque()
        self._room = float(_BURST)
        self._last_ms = planes.board.clock()

    def is_due(self) -> bool:
        """Whether there is room for one more report; else it is counted as dropped."""
        now_ms = self._planes.heard(self._plane)
        self._room = min(_BURST, self._room + (now_ms - self._last_ms) / _SHED_MS)
        self._last_ms = now_ms
        if self._room < 1:
            self._plane.shed += 1
            return False
        self._room -= 1
        return True

    def take(self, report: Report) -> None:
        """One more; those that have waited long enough count."""
        self._reports.append((self._last_ms, report))
        self.give(self._wait_ms)

    def give(self, wait_ms: int) -> None:
        """What has waited this long is counted now."""
        until_ms = self._planes.board.clock() - wait_ms
        while self._reports and (self._reports[0][0] <= until_ms or len(self._reports) > _MOST_HELD):
            at_ms, report = self._reports.popleft()
            self._planes.loads(self._plane, report.spots, at_ms=at_ms, interval_us=report.interval_us)
