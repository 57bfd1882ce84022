"""What leaves the engine: one call of scalars for each attempt, and its own counters."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from reachline.model import Clock, Failure

__all__ = ["Counters", "Done", "Phases"]


class Phases(NamedTuple):
    """Where the time of one attempt went, in microseconds. None: the attempt did not get there (never 0).

    The phases do not overlap; `total` minus their sum is transfer and the agent's own overhead.
    """

    resolve: int | None = None
    """Waiting for names, 0 where they were at hand. Never part of an RTT."""
    connect: int | None = None
    """The handshake of TCP; by way of proxies that of the first one."""
    proxy: int | None = None
    """Connected to the first proxy -> the last one says that it reached the target: what was said to them until their answers
    were at the interface. None without proxies.
    """
    tls: int | None = None
    first: int | None = None
    """Request handed to the kernel -> first byte of the answer at the interface."""
    total: int | None = None
    """Start to the end of the answer."""
    pure: int | None = None
    """`total` without what this process itself wasted between the phases: names, connect, proxies, TLS, and the request until its answer's
    end.
    """
    expires: int | None = None
    """When the peer's certificate ends, unix seconds; read without verifying it."""


class Done(Protocol):
    """How results leave the engine: scalars, by position, one call per attempt. Must not block; may call the engine."""

    def __call__(  # noqa: PLR0917 (scalars: an object for each result costs a fifth of the speed)
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
    dropped: int = 0
    """Echo replies that our own receive buffers had no room for, as the kernel counts (some kernels count each twice)."""
    live: int = 0
    waiting: int = 0
