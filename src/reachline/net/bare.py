"""The hot path: a TCP connect with nothing to say, which nine probes of ten are."""

from __future__ import annotations

from select import EPOLLERR, EPOLLHUP, EPOLLOUT
from socket import IPPROTO_TCP, TCP_INFO, SocketType
from typing import ClassVar, Final

from reachline.model import Clock
from reachline.net.attempt import Route
from reachline.net.kernel import CONNECTED, INFO, INFO_SIZE, SYN_AGAIN_US
from reachline.net.lean import Lane, connecting

__all__ = ["Bare", "begin"]

_BROKEN: Final = EPOLLERR | EPOLLHUP
_KERNEL: Final = Clock.TCP_INFO
_unpack: Final = INFO.unpack


class Bare:
    """One bare connect under way. Written by the engine's thread only."""

    __slots__ = ("_lane", "began", "deadline", "fd", "lateness_us", "overdue", "route", "serial", "sock")

    verdict: ClassVar[None] = None

    def __init__(  # noqa: PLR0917 (one for each connect)
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

    def ready(self, events: int) -> None:
        """Connected at the first SYN: the kernel's RTT is the result. Else (or its time is up, 0): no longer bare."""
        if events and not events & _BROKEN:
            assert self.sock is not None
            state, rtt, again = _unpack(self.sock.getsockopt(IPPROTO_TCP, TCP_INFO, INFO_SIZE))
            if state in CONNECTED and not again and rtt < SYN_AGAIN_US:
                self._lane.arrived(self, rtt, _KERNEL, rtt, 0, None)
                return
        self._lane.promoted(self).ready(events)


def begin(lane: Lane, route: Route, serial: int, lateness_us: int, now: int) -> Bare | None:
    """A connect under way; None: it could not even begin, and the ordinary way will find out why."""
    sock = connecting(route)
    if sock is None:
        return None
    bare = Bare(lane, route, serial, lateness_us, now, sock)
    lane.watch(bare, bare.fd, EPOLLOUT)
    return bare
