"""Datagrams: a new connected socket for each query, so the kernel keeps strangers out and chooses a fresh port."""

from __future__ import annotations

import errno
import socket
from select import EPOLLIN
from typing import Final

from reachline.model import Clock, Failure
from reachline.net.attempt import Attempt, Home, Route, opened
from reachline.net.kernel import RECVERR, SO_TIMESTAMPNS, failure_of, stamp, words_of
from reachline.talk.dns import DnsTalk

__all__ = ["Datagram"]

_LARGEST: Final = 65_536
_ANCILLARY: Final = 128
_AGAIN: Final = frozenset((errno.EAGAIN, errno.EINTR))
_MOST: Final = 16
"""Datagrams taken a turn: a flood of forged answers gets no more of the loop."""


class Datagram:
    """The machine of datagram attempts: one per engine, without state of its own."""

    __slots__ = ("_home", "step")

    def __init__(self, home: Home) -> None:
        self._home = home
        self.step = self._ready

    def begin(self, attempt: Attempt, route: Route) -> None:
        """Open, bind, connect, send; the attempt is settled at once where that fails."""
        home = self._home
        attempt.step = self.step
        if (sock := opened(home, attempt, route, socket.SOCK_DGRAM)) is None:
            return
        talk = attempt.talk
        assert talk is not None
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        sock.setsockopt(*RECVERR[socket.AddressFamily(route.family)], 1)
        try:
            sock.connect(route.address)
            attempt.began, attempt.wall = home.clocks.ns(), home.clocks.wall()
            sock.send(talk.begin())
        except OSError as error:
            self.failed(attempt, error)
            return
        attempt.sent += 1
        home.watch(attempt, attempt.fd, EPOLLIN)

    def _ready(self, attempt: Attempt, events: int) -> None:
        sock = attempt.sock
        assert sock is not None
        if not events:
            attempt.lost += 1
            attempt.note = "no answer"
            self._home.settle(attempt, Failure.TIMEOUT, self._home.clocks.elapsed(attempt.began))
            return
        for _ in range(_MOST):
            try:
                data, ancillary, _, _ = sock.recvmsg(_LARGEST, _ANCILLARY)
            except OSError as error:
                if error.errno not in _AGAIN:
                    self.failed(attempt, error)
                return
            if self.heard(attempt, data, stamp(ancillary)):
                return

    def heard(self, attempt: Attempt, data: bytes, at: int | None) -> bool:
        """Whether the attempt, or this part of it, is over."""
        talk = attempt.talk
        assert talk is not None
        if talk.received(data) is not None:
            return False
        attempt.rtt, attempt.clock, took = self._home.clocks.measure(attempt.began, attempt.wall, at)
        if isinstance(talk, DnsTalk) and talk.truncated:
            attempt.talk = talk.over_stream()
            self._home.reconnect(attempt)
            return True
        failure = talk.closed()
        attempt.status, attempt.note = talk.status, talk.note
        self._home.settle(attempt, failure, took)
        return True

    def failed(self, attempt: Attempt, error: OSError) -> None:
        """An ICMP error came back, or our own kernel refused."""
        code = error.errno or 0
        failure = failure_of(code)
        rtt, clock, took = self._home.clocks.measure(attempt.began, attempt.wall, None)
        if failure is Failure.REFUSED:
            attempt.rtt, attempt.clock = rtt, clock
        elif attempt.sent:
            attempt.lost += 1
        if not attempt.sent:
            attempt.rtt, attempt.clock, took = None, Clock.APP, 0
        attempt.note = words_of(code)
        self._home.settle(attempt, failure, took)
