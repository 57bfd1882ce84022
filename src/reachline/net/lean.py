"""What the lean machines share: they do what the ordinary ones do for the one course that ends well, in a fraction of the
calls, and hand everything else over to them as an ordinary attempt. No result differs by who did it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from socket import SO_LINGER, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM, SOL_SOCKET, SocketType
from typing import ClassVar, Final, Protocol

from reachline.model import Clock
from reachline.net.attempt import Attempt, Home, Ready, Route
from reachline.net.datagram import Datagram
from reachline.net.early import bind
from reachline.net.kernel import RST_ON_CLOSE
from reachline.net.result import Phases

__all__ = ["Begin", "Lane", "Lean", "connecting", "opened"]

_FLAGS: Final = SOCK_NONBLOCK | SOCK_CLOEXEC
_STREAM: Final = SOCK_STREAM | _FLAGS
_STARTED: Final = (errno.EINPROGRESS, 0)


class Lean(Ready, Protocol):
    """One lean attempt under way, as the engine sees it. Written by the engine's thread only."""

    route: Route
    serial: int
    lateness_us: int
    began: int
    deadline: int
    overdue: bool
    fd: int
    sock: SocketType | None
    verdict: ClassVar[None]


class Lane(Home, Protocol):
    """What lean machines use of the engine."""

    datagram: Datagram

    def arrived(  # noqa: PLR0917 (scalars, as all that is said of a result)
        self, lean: Lean, rtt_us: int, clock: Clock, took_us: int, status: int, phases: Phases | None, /
    ) -> None:
        """It ended well: one packet there, its answer back. `took_us` decides whether it was late."""

    def promoted(self, lean: Lean) -> Attempt:
        """The ordinary attempt that goes on in its place, at its first step."""

    def nonce(self) -> int:
        """64 bits nobody can guess."""


Begin = Callable[[Lane, Route, int, int, int], Lean | None]
"""(lane, route, serial, lateness, now) -> what is under way; None: it did not begin, the ordinary machine will find out why."""


def opened(route: Route, kind: int) -> SocketType | None:
    """A socket that leaves and closes as the route's job says; None where that cannot be."""
    try:
        sock = SocketType(route.family, kind | _FLAGS, 0)
    except OSError:
        return None
    return sock if not (route.bound or route.job.reset) or _is_dressed(sock, route, kind) else None


def connecting(route: Route) -> SocketType | None:
    """A socket on its way to the route's address by TCP."""
    try:
        sock = SocketType(route.family, _STREAM, 0)
    except OSError:
        return None
    if (route.bound or route.job.reset) and not _is_dressed(sock, route, SOCK_STREAM):
        return None
    if sock.connect_ex(route.address) in _STARTED:
        return sock
    sock.close()
    return None


def _is_dressed(sock: SocketType, route: Route, kind: int) -> bool:
    """Whether it leaves and closes as the route's job says; closed where it does not."""
    job = route.job
    try:
        bind(sock, route.family, job.source, job.interface, job.port)
        if job.reset and kind == SOCK_STREAM:
            sock.setsockopt(SOL_SOCKET, SO_LINGER, RST_ON_CLOSE)
    except OSError:
        sock.close()
        return False
    return True
