"""What the lean machines share: they do what the ordinary ones do for the one course that ends well, in a fraction of the
calls, and hand everything else over to them as an ordinary attempt. No result differs by who did it.

Like is done with like: all sockets of a turn are opened, then all connect, and all that ended are closed at its end. A core that
goes back and forth between the kernel's paths and ours is slower at both, and a peer on the same machine falls asleep in between.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from select import epoll
from socket import SO_LINGER, SOCK_CLOEXEC, SOCK_DGRAM, SOCK_NONBLOCK, SOCK_STREAM, SOL_SOCKET, SocketType
from typing import Final, Protocol

from reachline.model import Clock
from reachline.net.attempt import Attempt, Home, Route
from reachline.net.clocks import Clocks
from reachline.net.datagram import Datagram
from reachline.net.early import bind
from reachline.net.kernel import RST_ON_CLOSE
from reachline.net.late import Lateness
from reachline.net.result import Phases

__all__ = ["DATAGRAM", "Course", "Due", "Lane", "Lean", "connect", "opened"]

DATAGRAM: Final = int(SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC)
STREAM: Final = int(SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC)
"""Kinds of sockets, as numbers: put together anew by their names they would cost more than the call."""
_STARTED: Final = (errno.EINPROGRESS, 0)

Due = tuple[Route, int]
"""What is to begin: its route, and when it was due, monotonic ns."""


class Course(Protocol):
    """One lean machine, without a state of its own."""

    def begin(self, lane: Lane, dues: Sequence[Due], /) -> list[Due]:
        """Begin them, all together; those that could not even begin, and the ordinary machine will find out why."""

    def heard(self, lane: Lane, fd: int, events: int, lean: Lean, /) -> None:
        """Its descriptor has something to say."""

    def over(self, lane: Lane, fd: int, lean: Lean, /) -> Attempt:
        """The ordinary attempt that goes on in its place, at the step it has reached."""


Lean = tuple[Course, Route, SocketType, int, int, int, int, int, tuple[int, ...]]
"""One lean attempt under way: its course, route and socket; how late it began, us, and when, monotonic ns; when its request left,
by both clocks, ns, a number that its course remembers, and how long each answer of proxies took, us. A tuple, for an object each
would be a fifth of all we do.
"""


class Lane(Protocol):
    """What lean machines use: who is under way, the engine's epoll and clocks, and two ways out."""

    epoll: epoll
    clocks: Clocks
    datagram: Datagram
    lateness: Lateness
    live: dict[int, Lean]
    """By descriptor."""
    saying: list[tuple[int, Lean]]
    """Connected, or passed on by a proxy; what they have to say leaves at the end of the turn."""

    @property
    def home(self) -> Home:
        """The engine, for whoever goes on as an ordinary attempt."""

    def watch(self, leans: list[Lean], events: int) -> None:
        """These are under way since now."""

    def arrived(  # noqa: PLR0917 (scalars, as all that is said of a result)
        self, fd: int, lean: Lean, rtt_us: int, clock: Clock, took_us: int, status: int, phases: Phases | None, /
    ) -> None:
        """It ended well: one packet there, its answer back. `took_us` decides whether it was late."""

    def promoted(self, fd: int, lean: Lean, /) -> Attempt:
        """The ordinary attempt that goes on in its place, at its first step."""

    def nonce(self) -> int:
        """64 bits nobody can guess."""


def opened(route: Route, kind: int) -> SocketType | None:
    """A socket that leaves and closes as the route's job says; None where that cannot be."""
    try:
        sock = SocketType(route.family, kind, 0)
    except OSError:
        return None
    return sock if not (route.bound or route.job.reset) or _is_dressed(sock, route, kind) else None


def connect(lane: Lane, course: Course, dues: Sequence[Due], events: int) -> list[Due]:
    """Connects by TCP under way, each to be heard of at these events; those that could not begin."""
    left: list[Due] = []
    going: list[Lean] = []
    ns, late = lane.clocks.ns, lane.lateness.of
    for sock, due in [(opened(due[0], STREAM), due) for due in dues]:
        route, at = due
        if sock is None:
            left.append(due)
            continue
        began = ns()
        if sock.connect_ex(route.address) in _STARTED:
            going.append((course, route, sock, late(began - at), began, 0, 0, 0, ()))
        else:
            sock.close()
            left.append(due)
    lane.watch(going, events)
    return left


def _is_dressed(sock: SocketType, route: Route, kind: int) -> bool:
    """Whether it leaves and closes as the route's job says; closed where it does not."""
    job = route.job
    try:
        bind(sock, route.family, job.source, job.interface, job.port)
        if job.reset and kind == STREAM:
            sock.setsockopt(SOL_SOCKET, SO_LINGER, RST_ON_CLOSE)
    except OSError:
        sock.close()
        return False
    return True
