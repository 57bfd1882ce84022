"""TCP: connect, and what the kernel knows of the handshake. A bare connect ends here; the rest goes on in `speech`."""

from __future__ import annotations

import errno
import socket
from dataclasses import replace
from select import EPOLLERR, EPOLLHUP, EPOLLOUT
from typing import Final

from reachline.model import Clock, Failure
from reachline.net.attempt import EARLY, Attempt, Home, Route, opened
from reachline.net.hops import unreached
from reachline.net.kernel import RST_ON_CLOSE, SYN_AGAIN_US, failure_of, handshake, retransmits, words_of
from reachline.net.speech import Speech
from reachline.talk.way import Way

__all__ = ["Stream"]

_BROKEN: Final = EPOLLERR | EPOLLHUP
_UNSENT: Final = frozenset((Failure.AGENT, Failure.UNREACHABLE))
"""Refused by our own kernel before a SYN left."""


class Stream:
    """The machine of TCP attempts: one per engine, without state of its own."""

    __slots__ = ("_home", "step")

    def __init__(self, home: Home) -> None:
        self._home = home
        self.step = self._connected

    def begin(self, attempt: Attempt, route: Route) -> None:
        """Open, bind, connect; the attempt is settled at once where that fails."""
        home = self._home
        attempt.step = self.step
        if (sock := opened(home, attempt, route, socket.SOCK_STREAM)) is None:
            return
        if route.job.reset:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RST_ON_CLOSE)
        attempt.began = home.clocks.ns()
        code = sock.connect_ex(route.address)
        if code == errno.EADDRNOTAVAIL and route.job.port == EARLY:
            # Chosen before the target was known, the port is still in TIME_WAIT toward it.
            sock.close()
            self.begin(attempt, route._replace(job=replace(route.job, port=0)))
            return
        if code and code != errno.EINPROGRESS:
            self._failed(attempt, code, unsent=failure_of(code) in _UNSENT)
            return
        home.watch(attempt, attempt.fd, EPOLLOUT)

    def _connected(self, attempt: Attempt, events: int) -> None:
        sock = attempt.sock
        assert sock is not None
        if not events:
            self._given_up(attempt)
            return
        if events & _BROKEN:
            self._failed(attempt, sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) or errno.ECONNRESET)
            return
        known = handshake(sock.getsockopt)
        if known is None:
            return  # an event of the descriptor's former life
        rtt, again = known
        attempt.sent += 1 + again
        attempt.lost += again
        route = attempt.route
        assert route is not None
        if route.bare:
            if again:
                self._home.settle(attempt, None, max(self._home.clocks.elapsed(attempt.began), again * SYN_AGAIN_US))
                return
            attempt.rtt, attempt.clock = rtt, Clock.TCP_INFO
            self._home.settle(attempt, None, rtt)
            return
        if not again and route.way is Way.CONNECT and not route.places:
            attempt.rtt, attempt.clock = rtt, Clock.TCP_INFO
        attempt.speech = speech = attempt.speech or Speech(self._home, attempt)
        speech.connected(None if again else rtt)

    def _given_up(self, attempt: Attempt) -> None:
        """No answer to any SYN."""
        sock = attempt.sock
        assert sock is not None
        again = retransmits(sock.getsockopt)
        attempt.sent += 1 + again
        attempt.lost += 1 + again
        failure, attempt.note = unreached(attempt.job, Failure.TIMEOUT, "no answer to connect")
        self._home.silent(attempt)
        self._home.settle(attempt, failure, self._home.clocks.elapsed(attempt.began))

    def _failed(self, attempt: Attempt, code: int, *, unsent: bool = False) -> None:
        """Refused or unreachable: an answer of somebody, timed by our own clock where it has a time at all."""
        sock = attempt.sock
        assert sock is not None
        failure = failure_of(code)
        again = 0 if unsent else retransmits(sock.getsockopt)
        if not unsent and failure is not Failure.AGENT:
            attempt.sent += 1 + again
            attempt.lost += again if failure in {Failure.REFUSED, Failure.RESET} else 1 + again
        rtt, clock, took = self._home.clocks.measure(attempt.began, 0, None)
        if failure is Failure.REFUSED and not again and not attempt.job.hops:
            attempt.rtt, attempt.clock = rtt, clock
        failure, attempt.note = unreached(attempt.job, failure, words_of(code))
        self._home.settle(attempt, failure, took)
