"""One datagram there and one back: a DNS query whose first answer is the plain one. Everything else goes to `datagram`."""

from __future__ import annotations

import errno
from select import EPOLLIN
from socket import SOCK_DGRAM, SOL_SOCKET, SocketType
from typing import ClassVar, Final

from reachline.model import Clock
from reachline.net.attempt import Attempt, Route
from reachline.net.kernel import RECVERR, SO_TIMESTAMPNS, stamp
from reachline.net.lean import Lane, opened
from reachline.talk.glance import DOUBT

__all__ = ["Query", "begin"]

_LARGEST: Final = 4096
"""Bytes of an answer: larger ones do not come by UDP without being asked for, and what is cut off here is not plain."""
_ANCILLARY: Final = 64
_AGAIN: Final = frozenset((errno.EAGAIN, errno.EINTR))
_KERNEL: Final = Clock.RX_STAMP


class Query:
    """One query under way. Written by the engine's thread only."""

    __slots__ = (
        "_lane",
        "_number",
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

    def __init__(  # noqa: PLR0917 (one for each query)
        self, lane: Lane, route: Route, serial: int, lateness_us: int, sock: SocketType, number: bytes, /
    ) -> None:
        self._lane = lane
        self._number = number
        """The message's id, as it is on the wire."""
        self.route = route
        self.serial = serial
        self.lateness_us = lateness_us
        self.overdue = False
        self.sock: SocketType | None = sock
        self.fd = sock.fileno()
        clocks = lane.clocks
        self.began = began = clocks.ns()
        self._wall = began + clocks.offset
        self.deadline = began + route.timeout_ns

    def ready(self, events: int) -> None:
        """An answer or an error has come, or (0) the time is up."""
        sock, glance, lane = self.sock, self.route.glance, self._lane
        assert sock is not None
        assert glance is not None
        if not events:
            self._hand_over().ready(0)
            return
        try:
            data, ancillary, _, _ = sock.recvmsg(_LARGEST, _ANCILLARY)
        except OSError as error:
            if error.errno not in _AGAIN:
                lane.datagram.failed(self._hand_over(), error)
            return
        at = stamp(ancillary)
        rtt = lane.clocks.stamped(self.began, self._wall, at)
        if rtt is not None and data.startswith(self._number) and (status := glance.read(data)) != DOUBT:
            lane.arrived(self, rtt, _KERNEL, rtt, status, None)
        else:
            lane.datagram.heard(self._hand_over(), data, at)

    def _hand_over(self) -> Attempt:
        """The ordinary attempt, its question asked."""
        attempt, job = self._lane.promoted(self), self.route.job
        attempt.talk = job.probe.talk(job.endpoint, int.from_bytes(self._number))
        attempt.wall, attempt.sent = self._wall, 1
        return attempt


def begin(lane: Lane, route: Route, serial: int, lateness_us: int, now: int) -> Query | None:
    """A query under way; None: it could not even begin, and the ordinary way will find out why."""
    del now
    if (sock := opened(route, SOCK_DGRAM)) is None:
        return None
    assert route.glance is not None
    number = (lane.nonce() & 0xFFFF).to_bytes(2)
    try:
        sock.setsockopt(SOL_SOCKET, SO_TIMESTAMPNS, 1)
        sock.setsockopt(*RECVERR[route.family], 1)
        sock.connect(route.address)
        query = Query(lane, route, serial, lateness_us, sock, number)
        sock.send(number + route.glance.request)
    except OSError:
        sock.close()
        return None
    lane.watch(query, query.fd, EPOLLIN)
    return query
