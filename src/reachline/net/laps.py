"""What each phase of one connection took. Measures, decides nothing."""

from __future__ import annotations

from typing import NamedTuple

from reachline.model import Clock
from reachline.net.attempt import Attempt
from reachline.net.clocks import Clocks
from reachline.net.result import Phases

__all__ = ["Lap", "Laps"]


class Lap(NamedTuple):
    """From a mark to an answer: us by the best clock there is (None: none is good enough), and us for judging lateness."""

    rtt: int | None
    clock: Clock
    elapsed: int

    @property
    def took(self) -> int:
        """Microseconds as they are shown."""
        return self.rtt if self.rtt is not None else self.elapsed


class Laps:
    """The phases of one attempt on a stream; those of a second connection, which only reads a certificate, do not count.
    Written by its `Speech`.
    """

    __slots__ = ("_attempt", "_clocks", "connect_us", "expires", "first_us", "mono", "proxy_us", "tls_us", "wall")

    def __init__(self, clocks: Clocks, attempt: Attempt) -> None:
        self._clocks, self._attempt = clocks, attempt
        self.mono = self.wall = attempt.began
        """When the phase that runs now began, by both clocks."""
        self.connect_us: int | None = None
        self.proxy_us = 0
        """All that was said to proxies and answered so far."""
        self.tls_us: int | None = None
        self.first_us: int | None = None
        self.expires: int | None = None

    def connected(self, rtt: int | None) -> None:
        """TCP's own handshake is over, in `rtt` us where that is known."""
        if self._attempt.verdict is None:
            self.connect_us = rtt if rtt is not None else self._clocks.measure(self._attempt.began, 0, None)[0]

    def mark(self) -> None:
        """The next phase begins."""
        self.mono, self.wall = self._clocks.ns(), self._clocks.wall()

    def since(self, at: int | None) -> Lap:
        """From the mark to now, or to the stamp `at`."""
        return Lap(*self._clocks.measure(self.mono, self.wall, at))

    def passed(self, lap: Lap) -> None:
        """A round trip to proxies."""
        if self._attempt.verdict is None:
            self.proxy_us += lap.took

    def took(self, since: int, *, spoken: bool) -> int:
        """Microseconds the line took up to `since` us after the mark, without what we ourselves wasted between the phases (a
        stall, a new context). `spoken`: something is said after the handshake of TLS, so that it is a phase gone by.
        """
        known = self.connect_us
        if known is None:
            return (self.mono - self._attempt.began) // 1_000 + since
        if self.tls_us is not None and spoken:
            known += self.tls_us
        return known + self.proxy_us + since

    def phases(self, measured: int | None, *, by_proxy: bool, spoken: bool) -> Phases:
        """All phases, the end `measured` us after the mark where that is known; `by_proxy`: all proxies were passed; `spoken` as for
        `took`.
        """
        attempt = self._attempt
        return Phases(
            resolve=attempt.resolved_us,
            connect=self.connect_us,
            proxy=self.proxy_us if by_proxy else None,
            tls=self.tls_us,
            first=self.first_us,
            total=None if measured is None else attempt.resolved_us + (self.mono - attempt.began) // 1_000 + measured,
            pure=None if measured is None else attempt.resolved_us + self.took(measured, spoken=spoken),
            expires=self.expires,
        )
