"""The newest results of one outbound with the moments they came, and what they come to: Xray's own figures, to the nanosecond."""

from __future__ import annotations

import math
from typing import Final

from reachline.core.observing.values import Ping

__all__ = ["Results"]

_UNTESTED: Final = -1
_FAILED: Final = -2


class Results:
    """`capacity` slots, written round about; those older than `validity` do not count. Written by its observer."""

    __slots__ = ("_head", "_moments", "_ping", "_rtts", "_until", "_validity")

    def __init__(self, capacity: int, validity: int) -> None:
        self._rtts = [_UNTESTED] * capacity
        self._moments = [0] * capacity
        self._head = -1
        self._validity = validity
        self._ping: Ping | None = None
        """The figures, until something comes or ceases to count…"""
        self._until: int | None = None
        """…which is then; None: nothing counts that could."""

    def put(self, now: int, rtt: int | None) -> None:
        """One result; None: failed."""
        self._head = (self._head + 1) % len(self._rtts)
        self._rtts[self._head] = _FAILED if rtt is None else rtt
        self._moments[self._head] = now
        self._ping = None

    def slots(self) -> tuple[int | None, ...]:
        """As they lie there, untested ones left out; None: failed."""
        return tuple(None if rtt == _FAILED else rtt for rtt in self._rtts if rtt != _UNTESTED)

    def expires(self, now: int) -> int | None:
        """When the next result that still counts ceases to; None: none does."""
        limit = now - self._validity
        moments = [at for rtt, at in zip(self._rtts, self._moments, strict=True) if rtt != _UNTESTED and at >= limit]
        return min(moments) + self._validity + 1 if moments else None

    def ping(self, now: int) -> Ping:
        """The figures of what counts: an age that equals the validity still does.

        The deviation is that of the population around the truncated average; of a single result half of it. The same object while
        nothing changes.
        """
        if self._ping is None or (self._until is not None and now >= self._until):
            self._ping, self._until = self._figures(now), self.expires(now)
        return self._ping

    def _figures(self, now: int) -> Ping:
        limit = now - self._validity
        passed, failed = [], 0
        for rtt, at in zip(self._rtts, self._moments, strict=True):
            if rtt == _UNTESTED or at < limit:
                continue
            if rtt == _FAILED:
                failed += 1
            else:
                passed.append(rtt)
        if not passed:
            return Ping(failed, failed)
        average = sum(passed) // len(passed)
        return Ping(len(passed) + failed, failed, _deviation(passed, average), average, max(passed), min(passed))


def _deviation(passed: list[int], average: int) -> int:
    """In doubles and in the order of the slots, as Go adds them up: the last digit decides between equals."""
    if len(passed) == 1:
        return average // 2
    variance = 0.0
    for rtt in passed:
        off = float(rtt - average)
        variance += off * off
    return int(math.sqrt(variance / len(passed)))
