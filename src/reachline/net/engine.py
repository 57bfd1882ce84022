"""The probe engine: one epoll with a timerfd inside, nested in asyncio, so that one thread runs both loops.

It owns connect, TLS, deadline and close; a talk (`reachline.talk`) only says what to send and what it makes of the answer.
A network failure is data: every start ends in exactly one call of `done`, unless it is cancelled. It refuses to know lines,
windows, plans and centers.

    engine = Engine(done)
    loop.add_reader(engine.fileno(), engine.turn)
    engine.start(Job(token=7, endpoint=parse("tcp://10.0.0.1:443"), probe=build(Kind.TCP, ...)), at=engine.now())
    ...
    loop.remove_reader(engine.fileno())
    engine.close()
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from reachline.model import Clock, Endpoint, Failure, Seconds
from reachline.net.resolve import Resolver
from reachline.talk import Probe

__all__ = ["Counters", "Done", "Engine", "Job", "Phases"]


class Phases(NamedTuple):
    """Where the time of one HTTP or TLS attempt went, in microseconds. None: the attempt did not get there (never 0).

    The phases do not overlap; `total` minus their sum is transfer and the agent's own overhead.
    """

    resolve: int | None = None
    """Waiting for the name, 0 where it was at hand. Never part of an RTT."""
    connect: int | None = None
    tls: int | None = None
    first: int | None = None
    """Request handed to the kernel -> first byte of the answer at the interface."""
    total: int | None = None
    """Start to the end of the answer."""
    expires: int | None = None
    """When the peer's certificate ends, unix seconds; read without verifying it."""


class Done(Protocol):
    """How results leave the engine: scalars, by position, one call per attempt. Must not block; may call the engine."""

    def __call__(  # noqa: PLR0913, PLR0917 (scalars: an object for each result costs a fifth of the speed)
        self,
        token: int,
        failure: Failure | None,
        rtt_us: int | None,
        clock: Clock,
        late: bool,
        sent: int,
        lost: int,
        status: int,
        note: str,
        lateness_us: int,
        phases: Phases | None,
        /,
    ) -> None:
        """One attempt of the job `token` ended.

        failure      None is ok. AGENT: our own fault (no probe may have been sent), never evidence against the line;
                     RESOLVE: the name has no address now, a state of the line. TIMEOUT: never answered.
        rtt_us       Round trip: TCP and TLS the handshake of connect, HTTP request -> first byte, DNS query -> answer,
                     ICMP echo. None: not measured, or not usable (a retransmitted SYN, our own stall). REFUSED has one.
        clock        Where rtt_us comes from.
        late         Took longer than `timeout` (answered within `patience`, or never). It outranks `failure` in counts.
        sent, lost   Packets with their own denominator (SYNs, echo requests, datagrams); 0, 0 where none left.
        status       HTTP status or DNS rcode of an answer; 0 where there is none (NOERROR is 0 too: failure tells).
        note         The failure in words ("name does not resolve"), else "".
        lateness_us  Start after its due time: our own scheduling, not the line's.
        phases       HTTP and TLS, else None.
        """


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


class Counters(NamedTuple):
    """What the engine did since it was made; rates are differences of two readings."""

    started: int = 0
    finished: int = 0
    shed: int = 0
    """Refused at the concurrency cap: reported as AGENT."""
    overdue: int = 0
    """Went past their timeout."""
    blurred: int = 0
    """App-clock RTTs dropped because we were away while the answer arrived."""
    stepped: int = 0
    """Stamps not used because the wall clock moved during the attempt."""
    turns: int = 0
    lag_us: int = 0
    """Newest: a turn after the time its timer was set for."""
    worst_lag_us: int = 0
    lateness_us: int = 0
    """Sum over started; divide by the difference of `started`."""
    worst_lateness_us: int = 0
    live: int = 0
    waiting: int = 0


class Engine:
    """Probes many endpoints at once from one thread. Written by the thread that calls `turn`, nobody else."""

    def __init__(
        self,
        done: Done,
        *,
        overdue: Callable[[int], None] | None = None,
        resolver: Resolver | None = None,
        limit: int | None = None,
    ) -> None:
        """`overdue(token)` is called at an attempt's timeout, before its `done(..., late=True)` ends it.

        `resolver` is needed for endpoints that are names. `limit` caps concurrent attempts, below what RLIMIT_NOFILE
        minus a reserve allows.
        """
        raise NotImplementedError

    def fileno(self) -> int:
        """The epoll's own descriptor, readable when `turn` has work."""
        raise NotImplementedError

    def turn(self) -> None:
        """Take what has arrived and start what is due: a bounded slice, never blocking."""
        raise NotImplementedError

    def now(self) -> Seconds:
        """CLOCK_MONOTONIC, the same as `loop.time()`: the time of `at`."""
        raise NotImplementedError

    def start(self, job: Job, *, at: Seconds) -> None:
        """One attempt of `job` at the absolute time `at` (past: as soon as possible), in slots of 1 ms."""
        raise NotImplementedError

    def cancel(self, token: int) -> None:
        """Drop all starts and attempts of `token`; `done` is not called for them."""
        raise NotImplementedError

    def address(self, job: Job) -> str:
        """The numeric address the next attempt would go to; empty while the name is not resolved."""
        raise NotImplementedError

    @property
    def limit(self) -> int:
        """Concurrent attempts at most; further starts are shed."""
        raise NotImplementedError

    def counters(self) -> Counters:
        """A reading of the counters; worst_* begin anew with it."""
        raise NotImplementedError

    def close(self) -> None:
        """End all attempts without a result and release every descriptor. Idempotent."""
        raise NotImplementedError
