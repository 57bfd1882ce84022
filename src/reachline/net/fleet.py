"""The lean attempts of one engine: begun together, watched by one dict, waited for by the batches they began in."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final, Protocol

from reachline.model import Clock
from reachline.net.attempt import Attempt, Home
from reachline.net.datagram import Datagram
from reachline.net.late import Lateness
from reachline.net.lean import Course, Due, Lean
from reachline.net.plain import say
from reachline.net.result import Done, Phases
from reachline.net.wheel import Wheel

__all__ = ["Fleet", "Port"]

_EXPIRIES: Final = 8
"""Batches looked at a turn whose time is up: 512 attempts at most, nearly all of them over long since."""


class Port(Home, Protocol):
    """The engine as the fleet sees it."""

    done: Done
    datagram: Datagram
    lateness: Lateness

    @property
    def muted(self) -> AbstractSet[int]:
        """Tokens of jobs whose results do not leave any more."""

    def enlist(self, attempt: Attempt) -> None:
        """An attempt that was lean goes on as an ordinary one; it has a descriptor already, and this is watched."""

    def pass_timeout(self, attempt: Attempt) -> None:
        """From here on it is late, and only patience ends it."""

    def nonce(self) -> int:
        """64 bits nobody can guess."""


class Fleet:
    """Written by the engine's thread only."""

    __slots__ = (
        "_batches", "_closing", "_muted", "clocks", "datagram", "epoll", "finished", "home", "lateness", "live", "nonce",
        "pending", "saying", "until",
    )  # fmt: skip

    def __init__(self, home: Port) -> None:
        self.home = home
        self.epoll, self.clocks, self.lateness = home.epoll, home.clocks, home.lateness
        self.datagram, self.nonce = home.datagram, home.nonce
        self._muted = home.muted
        self.live: dict[int, Lean] = {}
        """By descriptor."""
        self.pending: defaultdict[Course, list[Due]] = defaultdict(list)
        """What begins at the next `launch`."""
        self.saying: list[tuple[int, Lean]] = []
        """Connected, or passed on by a proxy; what they have to say leaves at the end of the turn."""
        self._closing: list[Lean] = []
        """Over, their descriptors still open."""
        self._batches: Wheel[array[int]] = Wheel()
        """Descriptors by when the timeout of what they began with passes. They may have been used again by then."""
        self.until = 0
        """When the newest timeout passes."""
        self.finished = 0
        """Attempts that ended well here."""

    def launch(self) -> list[Due]:
        """Begin what is pending; those that could not even begin."""
        if not self.pending:
            return []
        pending, self.pending = self.pending, defaultdict(list)
        return [due for course, dues in pending.items() for due in course.begin(self, dues)]

    def watch(self, leans: list[Lean], events: int) -> None:
        """These are under way since now."""
        live, register = self.live, self.epoll.register
        batches: dict[int, array[int]] = {}
        for lean in leans:
            fd, timeout = lean[2].fileno(), lean[1].timeout_ns
            live[fd] = lean
            register(fd, events)
            if (batch := batches.get(timeout)) is None:
                batch = batches[timeout] = array("i")
            batch.append(fd)
        for timeout, batch in batches.items():
            # The newest one's: the others wait for the microseconds between longer, and none too short.
            deadline = live[batch[-1]][4] + timeout
            self._batches.add(deadline, batch)
            self.until = max(self.until, deadline)

    def arrived(  # noqa: PLR0917 (scalars, as all that is said of a result)
        self, fd: int, lean: Lean, rtt_us: int, clock: Clock, took_us: int, status: int, phases: Phases | None, /
    ) -> None:
        """It ended well: one packet there, its answer back. `took_us` decides whether it was late."""
        del self.live[fd]
        self._closing.append(lean)
        self.finished += 1
        route = lean[1]
        token = route.job.token
        if not self._muted or token not in self._muted:
            self.home.done(
                token, None, rtt_us, clock, took_us > route.timeout_us, 1, 0, status, "", lean[3], phases
            )  # fmt: skip

    def promoted(self, fd: int, lean: Lean, /) -> Attempt:
        """The ordinary attempt that goes on in its place, at its first step."""
        del self.live[fd]
        _, route, sock, lateness_us, began, *_ = lean
        attempt = Attempt(route.job, 0, lateness_us, began)
        attempt.route, attempt.sock, attempt.fd = route, sock, fd
        attempt.deadline = began + route.timeout_ns
        self.home.enlist(attempt)
        return attempt

    def flush(self) -> None:
        """Say what is to be said, and close what is over."""
        if self.saying:
            saying, self.saying = self.saying, []
            say(self, saying)
        closing, self._closing = self._closing, []
        for lean in closing:
            lean[2].close()

    def next_ns(self) -> int:
        """When the next timeout may pass."""
        return self._batches.next_ns()

    def expire(self, now: int) -> None:
        """Whose timeout has passed goes on as an ordinary attempt."""
        live = self.live
        for fds in self._batches.take(now, _EXPIRIES):
            for fd in fds:
                lean = live.get(fd)
                if lean is not None and lean[4] + lean[1].timeout_ns <= now:
                    self.home.pass_timeout(lean[0].over(self, fd, lean))

    def cancel(self, tokens: AbstractSet[int]) -> None:
        """End the attempts of these jobs without a result."""
        for dues in self.pending.values():
            dues[:] = [due for due in dues if due[0].job.token not in tokens]
        self._drop([fd for fd, lean in self.live.items() if lean[1].job.token in tokens])

    def close(self) -> None:
        """End all without a result."""
        self.pending.clear()
        self._drop(tuple(self.live))
        self.flush()
        self._batches.clear()

    def _drop(self, fds: Sequence[int]) -> None:
        for fd in fds:
            self.live.pop(fd)[2].close()
