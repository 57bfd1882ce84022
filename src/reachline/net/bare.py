"""The hot path: a TCP connect with nothing to say, which nine probes of ten are.

It does what `stream` does for the one case that ends well at the first SYN, in a third of the calls; whatever else happens
is handed over to `stream` as an ordinary attempt.
"""

from __future__ import annotations

import errno
from select import EPOLLERR, EPOLLHUP, EPOLLOUT
from socket import (
    IPPROTO_TCP,
    SO_LINGER,
    SOCK_CLOEXEC,
    SOCK_NONBLOCK,
    SOCK_STREAM,
    SOL_SOCKET,
    TCP_INFO,
    SocketType,
)
from typing import ClassVar, Final, Protocol

from reachline.net.attempt import Attempt, Ready, Route
from reachline.net.kernel import CONNECTED, INFO, INFO_SIZE, RST_ON_CLOSE, SYN_AGAIN_US, bind

__all__ = ["Bare", "Lane", "begin"]

_FLAGS: Final = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC
_BROKEN: Final = EPOLLERR | EPOLLHUP
_STARTED: Final = (errno.EINPROGRESS, 0)
_unpack: Final = INFO.unpack


class Lane(Protocol):
    """What a bare connect uses of the engine."""

    def watch(self, attempt: Ready, fd: int, events: int) -> None:
        """Call `attempt.ready` when the descriptor is ready."""

    def arrived(self, bare: Bare, rtt_us: int) -> None:
        """It is connected, the first SYN was answered in `rtt_us`."""

    def promoted(self, bare: Bare) -> Attempt:
        """The ordinary attempt that goes on in its place."""


class Bare:
    """One bare connect under way. Written by the engine's thread only."""

    __slots__ = ("_lane", "began", "deadline", "fd", "lateness_us", "over", "overdue", "route", "serial", "sock")

    key: ClassVar[int] = 0
    verdict: ClassVar[None] = None

    def __init__(self, lane: Lane, route: Route, serial: int, lateness_us: int, began: int) -> None:
        """OSError where there is no descriptor left."""
        self._lane = lane
        self.route = route
        self.began = began
        self.deadline = began + route.timeout_ns
        self.serial = serial
        self.lateness_us = lateness_us
        self.over = self.overdue = False
        sock = SocketType(route.family, _FLAGS, 0)
        self.sock: SocketType | None = sock
        self.fd = sock.fileno()

    def ready(self, events: int) -> None:
        """Connected at the first SYN: the kernel's RTT is the result. Else (or its time is up, 0): no longer bare."""
        if events and not events & _BROKEN:
            assert self.sock is not None
            state, rtt, again = _unpack(self.sock.getsockopt(IPPROTO_TCP, TCP_INFO, INFO_SIZE))
            if state in CONNECTED and not again and rtt < SYN_AGAIN_US:
                self._lane.arrived(self, rtt)
                return
        self._lane.promoted(self).ready(events)


def begin(lane: Lane, route: Route, serial: int, lateness_us: int, now: int) -> Bare | None:
    """A connect under way; None: it could not even begin, and the ordinary way will find out why."""
    try:
        bare = Bare(lane, route, serial, lateness_us, now)
    except OSError:
        return None
    assert bare.sock is not None
    if not _is_dressed(bare.sock, route) or bare.sock.connect_ex(route.address) not in _STARTED:
        bare.sock.close()
        return None
    lane.watch(bare, bare.fd, EPOLLOUT)
    return bare


def _is_dressed(sock: SocketType, route: Route) -> bool:
    """Whether the socket leaves and closes as its job says."""
    try:
        if route.bound:
            bind(sock, route.family, route.job.source, route.job.interface)
        if route.job.reset:
            sock.setsockopt(SOL_SOCKET, SO_LINGER, RST_ON_CLOSE)
    except OSError:
        return False
    return True
