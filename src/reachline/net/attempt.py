"""One attempt of one probe as the engine's machines share it: plain slots, no behaviour but its current step."""

from __future__ import annotations

import _socket
from collections.abc import Callable
from dataclasses import dataclass
from socket import SOCK_CLOEXEC, SOCK_NONBLOCK
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from reachline.errors import LocalProtocolError
from reachline.model import Clock, Endpoint, Failure, Seconds
from reachline.net.early import EARLY, bind
from reachline.net.kernel import words_of
from reachline.net.result import Phases
from reachline.net.wheel import NEVER
from reachline.talk import Conversation, Probe
from reachline.talk.dns import DnsProbe
from reachline.talk.hop import Hop
from reachline.talk.way import Way

if TYPE_CHECKING:
    from select import epoll
    from socket import SocketType

    from reachline.net.clocks import Clocks
    from reachline.net.echo import Lot
    from reachline.net.lean import Course
    from reachline.net.speech import Speech
    from reachline.net.tls import Contexts
    from reachline.talk.glance import Glance
    from reachline.talk.passing import Exchange

__all__ = ["EARLY", "Attempt", "Home", "Job", "Place", "Ready", "Route", "SockAddr", "opened"]

SockAddr = tuple[str, int] | tuple[str, int, int, int]
"""A numeric address as the socket module takes it."""

Place = tuple[str, int]
"""An address or a name, and a port, as a proxy is asked for it."""

_PASSING: Final = frozenset((Way.CONNECT, Way.STREAM))
"""Ways that proxies carry; DNS has TCP to fall back on."""
_FLAGS: Final = SOCK_NONBLOCK | SOCK_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to do each time a token is due; build once per line and kind, start many times."""

    token: int
    endpoint: Endpoint
    probe: Probe
    timeout: Seconds = 1.0
    """From here on an answer is late."""
    patience: Seconds = 3.0
    """Waited beyond the timeout, so that the tail is seen."""
    source: str = ""
    """Source address to bind; it must be ours, or every attempt is an AGENT failure."""
    interface: str = ""
    """Interface to bind to (SO_BINDTODEVICE)."""
    reset: bool = False
    """Close by RST (spares TIME_WAIT, shows as an error at the target); the default is FIN."""
    port: int = 0
    """Of TCP: the source port. 0: the kernel chooses at connect, which on Linux are the even ones in turn; EARLY: one of the odd
    ones by chance. One that is asked for and in use is an AGENT failure.
    """
    hops: tuple[Hop, ...] = ()
    """Proxies to go through, the first one first; `source` and `interface` are those of the connection to it."""

    def __post_init__(self) -> None:
        """LocalProtocolError where the probe cannot go by way of proxies: it must never go directly instead."""
        if self.hops and self.probe.way not in _PASSING and not isinstance(self.probe, DnsProbe):
            raise LocalProtocolError(f"{type(self.probe).__name__} does not go by way of a proxy")


class Route(NamedTuple):
    """How a job's packets leave now."""

    job: Job
    way: Way
    family: int
    address: SockAddr
    bare: bool
    """Nothing to say once connected: the hot path."""
    bound: bool
    """A source address or an interface is asked for."""
    timeout_us: int
    timeout_ns: int
    patience_ns: int
    until: int
    """Monotonic ns; names are looked at again after it."""
    places: tuple[Place, ...] = ()
    """What each hop is asked to connect to; `address` is that of the first hop then."""
    course: Course | None = None
    """The lean machine that may try first…"""
    glance: Glance | None = None
    """…and what it says and looks for…"""
    passing: tuple[Exchange, ...] = ()
    """…once each of these was answered by a proxy."""
    lot: Lot | None = None
    """Echo requests that its own leave with…"""
    raw: bytes = b""
    """…and the address as the kernel takes it."""


class Attempt:
    """Written by the engine's thread only. `step(attempt, events)` goes on with it; events 0: its time is up."""

    __slots__ = (
        "began",
        "clock",
        "deadline",
        "fd",
        "job",
        "lateness_us",
        "lost",
        "note",
        "over",
        "overdue",
        "phases",
        "resolved_us",
        "route",
        "rtt",
        "sent",
        "serial",
        "sock",
        "speech",
        "status",
        "step",
        "talk",
        "verdict",
        "wall",
    )

    def __init__(self, job: Job, serial: int, lateness_us: int, began: int) -> None:
        self.job = job
        self.serial = serial
        self.lateness_us = lateness_us
        self.began = began
        """Monotonic ns, right before the first packet was handed over."""
        self.wall = 0
        """CLOCK_REALTIME ns at the same moment; 0 where no stamp is held against it."""
        self.step: Callable[[Attempt, int], None] = _unbegun
        self.deadline = NEVER
        self.over = False
        self.overdue = False
        self.fd = -1
        self.sock: SocketType | None = None
        self.route: Route | None = None
        self.talk: Conversation | None = None
        self.speech: Speech | None = None
        self.resolved_us = 0
        self.rtt: int | None = None
        self.clock = Clock.APP
        self.sent = 0
        self.lost = 0
        self.status = 0
        self.note = ""
        self.phases: Phases | None = None
        self.verdict: tuple[Failure, int, str] | None = None
        """(failure, us it took, in words) where that is decided, and only a certificate is still to be read."""

    def ready(self, events: int) -> None:
        """The descriptor has something to say."""
        self.step(self, events)


class Ready(Protocol):
    """What the engine's epoll wakes."""

    def ready(self, events: int) -> None:
        """The descriptor has something to say."""


class Home(Protocol):
    """What machines use of the engine: its epoll, its clocks, and one way out."""

    epoll: epoll
    contexts: Contexts
    clocks: Clocks

    def watch(self, attempt: Ready, fd: int, events: int) -> None:
        """Call `attempt.ready` when the descriptor is ready."""

    def unwatch(self, fd: int) -> None:
        """Not any more."""

    def reconnect(self, attempt: Attempt) -> None:
        """Close the attempt's descriptor and connect anew by TCP, within the same deadline."""

    def silent(self, attempt: Attempt) -> None:
        """No SYN of the attempt was answered; it is settled next."""

    def settle(self, attempt: Attempt, failure: Failure | None, took_us: int) -> None:
        """End the attempt: its descriptor is closed, its result leaves. `took_us` decides whether it was late."""


def _unbegun(attempt: Attempt, events: int) -> None:
    """The step before the first one: nothing can happen yet."""


def opened(home: Home, attempt: Attempt, route: Route, kind: int) -> SocketType | None:
    """A non-blocking socket of the attempt, bound as its job says; None: that failed, and the attempt is settled."""
    try:
        sock = attempt.sock = _socket.socket(route.family, kind | _FLAGS, 0)
        if route.bound:
            bind(sock, route.family, route.job.source, route.job.interface, route.job.port)
    except OSError as error:
        attempt.note = words_of(error.errno or 0)
        home.settle(attempt, Failure.AGENT, 0)
        return None
    attempt.fd = sock.fileno()
    return sock
