"""One request and its answer over TCP, without proxy or TLS: plain HTTP, where the answer is whole in its first piece.

It does what `stream` and `speech` do for the one course in which the first SYN is answered, the request leaves at once and
the first piece of the answer is all of it and ok; whatever else happens is handed over to them at the step it has reached.
"""

from __future__ import annotations

import errno
from select import EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT
from socket import IPPROTO_TCP, SOL_SOCKET, TCP_INFO, SocketType
from typing import ClassVar, Final

from reachline.model import Clock
from reachline.net.attempt import Attempt, Route
from reachline.net.kernel import CONNECTED, INFO, INFO_SIZE, SO_TIMESTAMPNS, SYN_AGAIN_US, stamp
from reachline.net.lean import Lane, connecting
from reachline.net.result import Phases
from reachline.net.speech import Speech
from reachline.talk.glance import DOUBT

__all__ = ["Plain", "begin"]

_BROKEN: Final = EPOLLERR | EPOLLHUP
_PIECE: Final = 4096
"""Bytes of the first piece; an answer that is longer is for the ordinary machine."""
_ANCILLARY: Final = 64
_AGAIN: Final = frozenset((errno.EAGAIN, errno.EINTR))
_KERNEL: Final = Clock.RX_STAMP
_unpack: Final = INFO.unpack


class Plain:
    """One exchange under way. Written by the engine's thread only."""

    __slots__ = (
        "_connect_us",
        "_lane",
        "_mono",
        "_wall",
        "began",
        "deadline",
        "fd",
        "lateness_us",
        "overdue",
        "route",
        "serial",
        "sock",
    )

    verdict: ClassVar[None] = None

    def __init__(  # noqa: PLR0917 (one for each exchange)
        self, lane: Lane, route: Route, serial: int, lateness_us: int, began: int, sock: SocketType, /
    ) -> None:
        self._lane = lane
        self.route = route
        self.began = began
        self.deadline = began + route.timeout_ns
        self.serial = serial
        self.lateness_us = lateness_us
        self.overdue = False
        self.sock: SocketType | None = sock
        self.fd = sock.fileno()
        self._connect_us = 0
        self._mono = self._wall = 0
        """When the request was handed over; 0 before that."""

    def ready(self, events: int) -> None:
        """Connected, or the answer has come, or (0) the time is up."""
        if not self._mono:
            if not events or events & _BROKEN or not self._say():
                self._reconsider().ready(events)
            return
        if not events:
            self._hand_over().ready(0)
            return
        sock, glance = self.sock, self.route.glance
        assert sock is not None
        assert glance is not None
        try:
            data, ancillary, _, _ = sock.recvmsg(_PIECE, _ANCILLARY)
        except OSError as error:
            if error.errno not in _AGAIN:
                self._hand_over().hear(error, None)
            return
        at, lane = stamp(ancillary), self._lane
        rtt, status = lane.clocks.stamped(self._mono, self._wall, at), glance.read(data)
        if rtt is None or status == DOUBT:
            self._hand_over().hear(data, at)
            return
        connect = self._connect_us
        phases = Phases(0, connect, None, None, rtt, (self._mono - self.began) // 1_000 + rtt)
        lane.arrived(self, rtt, _KERNEL, connect + rtt, status, phases)

    def _say(self) -> bool:
        """Whether it is connected by the first SYN and the request is gone."""
        sock, glance, lane = self.sock, self.route.glance, self._lane
        assert sock is not None
        assert glance is not None
        state, rtt, again = _unpack(sock.getsockopt(IPPROTO_TCP, TCP_INFO, INFO_SIZE))
        if again or state not in CONNECTED or rtt >= SYN_AGAIN_US:
            return False
        sock.setsockopt(SOL_SOCKET, SO_TIMESTAMPNS, 1)
        request, clocks = glance.request, lane.clocks
        mono = clocks.ns()
        try:
            sent = sock.send(request)
        except OSError:
            return False
        self._connect_us, self._mono, self._wall = rtt, mono, mono + clocks.offset
        if sent < len(request):
            self._hand_over(request[sent:])
        else:
            lane.epoll.modify(self.fd, EPOLLIN)
        return True

    def _reconsider(self) -> Attempt:
        """The ordinary attempt, still connecting."""
        attempt = self._lane.promoted(self)
        attempt.talk = self.route.job.probe.talk(self.route.job.endpoint, self._lane.nonce())
        return attempt

    def _hand_over(self, rest: bytes = b"") -> Speech:
        """The ordinary conversation, its request said but for the rest."""
        attempt = self._reconsider()
        attempt.sent = 1
        attempt.speech = speech = Speech(self._lane, attempt)
        speech.resume(self._connect_us, self._mono, self._wall, rest)
        return speech


def begin(lane: Lane, route: Route, serial: int, lateness_us: int, now: int) -> Plain | None:
    """An exchange under way; None: it could not even begin, and the ordinary way will find out why."""
    if (sock := connecting(route)) is None:
        return None
    plain = Plain(lane, route, serial, lateness_us, now, sock)
    lane.watch(plain, plain.fd, EPOLLOUT)
    return plain
