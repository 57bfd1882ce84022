"""One datagram there and one back: a DNS query whose first answer is the plain one. Everything else goes to `datagram`."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from select import EPOLLIN
from socket import SOL_SOCKET, SocketType
from typing import Final

from reachline.model import Clock
from reachline.net.attempt import Attempt, Route
from reachline.net.kernel import RECVERR, SO_TIMESTAMPNS, stamp
from reachline.net.lean import DATAGRAM, Due, Lane, Lean, opened
from reachline.talk.glance import DOUBT

__all__ = ["QUERY"]

_LARGEST: Final = 4096
"""Bytes of an answer: larger ones do not come by UDP without being asked for, and what is cut off here is not plain."""
_ANCILLARY: Final = 64
_AGAIN: Final = frozenset((errno.EAGAIN, errno.EINTR))
_KERNEL: Final = Clock.RX_STAMP


class _Query:
    """The message's id is the number that is remembered."""

    __slots__ = ()

    def begin(self, lane: Lane, dues: Sequence[Due], /) -> list[Due]:
        left: list[Due] = []
        going: list[Lean] = []
        ns, offset, late = lane.clocks.ns, lane.clocks.offset, lane.lateness.of
        for sock, due in [(_connected(due[0]), due) for due in dues]:
            route, at = due
            glance, number = route.glance, lane.nonce() & 0xFFFF
            assert glance is not None
            if sock is None:
                left.append(due)
                continue
            began = ns()
            try:
                sock.send(number.to_bytes(2) + glance.request)
            except OSError:
                sock.close()
                left.append(due)
                continue
            going.append((self, route, sock, late(began - at), began, began, began + offset, number, ()))
        lane.watch(going, EPOLLIN)
        return left

    def heard(self, lane: Lane, fd: int, events: int, lean: Lean, /) -> None:
        del events
        _, route, sock, _, _, mono, wall, number, _ = lean
        glance = route.glance
        assert glance is not None
        try:
            data, ancillary, _, _ = sock.recvmsg(_LARGEST, _ANCILLARY)
        except OSError as error:
            if error.errno not in _AGAIN:
                lane.datagram.failed(self.over(lane, fd, lean), error)
            return
        at = stamp(ancillary)
        rtt = lane.clocks.stamped(mono, wall, at)
        if rtt is not None and int.from_bytes(data[:2]) == number and (status := glance.read(data)) != DOUBT:
            lane.arrived(fd, lean, rtt, _KERNEL, rtt, status, None)
        else:
            lane.datagram.heard(self.over(lane, fd, lean), data, at)

    def over(self, lane: Lane, fd: int, lean: Lean, /) -> Attempt:
        """Its question is asked."""
        attempt, job = lane.promoted(fd, lean), lean[1].job
        attempt.talk = job.probe.talk(job.endpoint, lean[7])
        attempt.wall, attempt.sent = lean[6], 1
        return attempt


def _connected(route: Route) -> SocketType | None:
    """A socket that hears of stamps and errors."""
    if (sock := opened(route, DATAGRAM)) is None:
        return None
    try:
        sock.setsockopt(SOL_SOCKET, SO_TIMESTAMPNS, 1)
        sock.setsockopt(*RECVERR[route.family], 1)
        sock.connect(route.address)
    except OSError:
        sock.close()
        return None
    return sock


QUERY: Final = _Query()
