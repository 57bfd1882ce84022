"""The words of Reachline as values. Knows no protocol, no clock and no rule; everything else is built on these."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final, NamedTuple, NewType

__all__ = [
    "CENSORED_US",
    "HELPERS",
    "Change",
    "Clock",
    "Counts",
    "Endpoint",
    "Fact",
    "Failure",
    "Gate",
    "Health",
    "Kind",
    "Line",
    "LineId",
    "Locality",
    "Outcome",
    "Ratio",
    "Reading",
    "Role",
    "Scope",
    "Seconds",
    "Snapshot",
    "Source",
    "Standing",
    "VantageId",
    "Version",
    "Vote",
    "Zone",
    "line_identity",
]

Seconds = float
"""A duration or an instant on a monotonic clock, in seconds."""
Ratio = float
"""A share, 0…1."""

LineId = NewType("LineId", str)
"""`cluster/line[@origin]`: the same text in CLI, API, metrics, journal and xDS."""
VantageId = NewType("VantageId", str)
"""The agent's id: where a sample was taken. Several sources of one agent share its one vote."""

CENSORED_US: Final = 2**31 - 1
"""The judged RTT of an attempt that was never answered: slower than anything we waited for."""


class Health(Enum):
    """Health of a line; names and order are those of xDS `core.v3.HealthStatus`."""

    UNKNOWN = 0
    HEALTHY = 1
    UNHEALTHY = 2
    DRAINING = 3
    TIMEOUT = 4
    DEGRADED = 5


class Gate(Enum):
    """What a line's breaker admits: all, nothing, a trial share, or a rising share."""

    CLOSED = 0
    OPEN = 1
    HALF_OPEN = 2
    RAMP = 3


class Zone(Enum):
    """One verdict on a line: healthy, degraded, failed, or no verdict at all. H < D < F."""

    H = 0
    D = 1
    F = 2
    N = 3


class Kind(StrEnum):
    """What a probe does once it is due; PASSIVE sends nothing and watches the business's own connections.

    The order is that of lists: whose round trip is shown where a line has several (`HELPERS` come after the others).
    """

    TCP = "tcp"
    HTTP = "http"
    TLS = "tls"
    DNS = "dns"
    ICMP = "icmp"
    GRPC = "grpc"
    REDIS = "redis"
    UDP = "udp"
    PASSIVE = "passive"


HELPERS: Final = frozenset({Kind.DNS, Kind.ICMP, Kind.TLS})
"""Kinds that never decide over a line that other kinds observe: advisory, and an https probe shakes hands by itself."""


class Failure(Enum):
    """How one attempt ended when it did not end well. AGENT is our own fault and never evidence against a line."""

    TIMEOUT = 0
    REFUSED = 1
    RESET = 2
    UNREACHABLE = 3
    RESOLVE = 4
    TLS = 5
    PROXY = 6
    PROTOCOL = 7
    STATUS = 8
    AGENT = 9


class Source(Enum):
    """Who saw a sample: a probe, real calls, the kernel, or a foreign data plane."""

    ACTIVE = 0
    PASSIVE = 1
    KERNEL = 2
    HDS = 3
    LRS = 4
    ALS = 5


class Clock(Enum):
    """Where a sample's RTT comes from, best first."""

    TCP_INFO = 0
    RX_STAMP = 1
    APP = 2


class Role(StrEnum):
    """A line's place in its cluster's policy. Two pairs: primary or backup, traffic or reserve."""

    PRIMARY = "primary"
    BACKUP = "backup"
    TRAFFIC = "traffic"
    RESERVE = "reserve"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The key of every ledger, snapshot, metric and token."""

    cluster: str
    tenant: str = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Locality:
    """Region, zone and sub-zone in the xDS sense; empty text where it is not known."""

    region: str = ""
    zone: str = ""
    sub_zone: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in (self.region, self.zone, self.sub_zone) if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where traffic goes: a URL whose scheme is a probe kind or `https`, e.g. `tcp://10.0.0.1:443`.

    `host` may be a name; `family` is 4, 6, or 0 where a name may resolve to either.
    """

    scheme: str
    host: str
    port: int
    path: str = ""
    family: int = 0

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = f":{self.port}" if self.port else ""
        return f"{self.scheme}://{host}{port}{self.path}"


def line_identity(scope: Scope, origin: str, endpoint: str, outbound: str) -> str:
    """What a line *is*, 16 hex digits; its name may change and its history stays."""
    text = "\x00".join((scope.tenant, scope.cluster, origin, endpoint, outbound))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One endpoint seen from one origin, by way of one outbound (`direct` or a proxy URL).

    `base` is the weight in health, in points; `vantages` are the agents that vote on it (empty: whoever reports).
    """

    id: LineId
    scope: Scope
    endpoint: Endpoint
    outbound: str = "direct"
    origin: str = ""
    base: int = 100
    roles: frozenset[Role] = frozenset()
    provider: str = ""
    groups: tuple[str, ...] = ()
    capacity: int | None = None
    drained: bool = False
    vantages: frozenset[VantageId] = frozenset()
    region: str = ""
    """Where the endpoint stands, for the plan across regions; empty: in none that is named."""

    @property
    def identity(self) -> str:
        return line_identity(self.scope, self.origin, str(self.endpoint), self.outbound)


class Counts(NamedTuple):
    """How the attempts of one window ended; each attempt is in exactly one column. Integers pool by addition."""

    ok: int = 0
    late: int = 0
    refused: int = 0
    reset: int = 0
    unreachable: int = 0
    unresolved: int = 0
    broken: int = 0
    errors: int = 0

    @property
    def attempts(self) -> int:
        return sum(self)


# Columns of Counts, for those who read this file first:
#   late        answered after the timeout, or never
#   refused     an answer (its RTT is valid), but not ok
#   broken      the peer or proxy broke TLS, the proxy protocol or the probe's protocol
#   errors      answered with a status that the probe does not expect (HTTP 5xx and the like)


class Reading(NamedTuple):
    """One vantage's window on one line by one probe kind, in integers: what the ledger judges and the journal keeps.

    RTT figures are microseconds and None under their minimum of answered attempts; `p95_us` counts unanswered attempts
    as `CENSORED_US`. `sent`/`lost` are packets (SYNs, echo requests, datagrams) with their own denominator.
    """

    kind: Kind
    counts: Counts = Counts()
    sent: int = 0
    lost: int = 0
    rounds: int = 0
    """Of the newest three probe rounds, how many are known…"""
    rounds_ok: int = 0
    """…and in how many at least one attempt was ok."""
    recent: int = 0
    """Of the newest five attempts, how many are known…"""
    recent_bad: int = 0
    """…and how many ended in a 5xx or a reset."""
    answered: int = 0
    ewma_us: int | None = None
    p50_us: int | None = None
    p95_us: int | None = None
    jitter_us: int | None = None
    """P95 - P50 of answered attempts."""
    fresh_ok: int = 0
    """Attempts that ended since this vantage's last heartbeat: ok…"""
    fresh_failed: int = 0
    """…and not ok."""
    covered_ms: int = 0
    void: bool = False
    """The agent distrusts itself (its reference targets fail too): kept for people, no evidence."""
    quality: int = 2
    """2: own denominators throughout; 1: a foreign report that named a sample count only."""
    fresh_marred: int = 0
    """Of `fresh_ok`: those that lost a packet on the way (a SYN sent again)…"""
    fresh_slow: int = 0
    """…those answered above the line's degraded RTT limit…"""
    fresh_crawl: int = 0
    """…and above its failed one."""


class Outcome(NamedTuple):
    """Calls of one client to one line in one second, summed. `window` is the trial window the snapshot named (0: none)."""

    line: LineId
    service: str = ""
    window: int = 0
    ok: int = 0
    failed: int = 0
    """Transport failures: refused, reset, unreachable, no TLS."""
    late: int = 0
    errors: int = 0
    """Answered, but with a server error (5xx)."""
    timed: int = 0
    """Of `ok`: those whose time was held against the line's limits (an older client holds none)…"""
    slow: int = 0
    """…and took longer than the degraded one…"""
    crawl: int = 0
    """…or the failed one."""


class Vote(NamedTuple):
    """Why one vantage says what it says: the deciding metric as `numerator` of `denominator`, held against `limit`.

    For RTT metrics the numerator is microseconds, the denominator the answered attempts behind it.
    """

    vantage: VantageId
    zone: Zone
    metric: str
    """`loss`, `timeout`, `p95`, `ewma`, `jitter`, `errors`, `connect` (`resolve` where the name has no address), prefixed by
    its probe kind: `http.errors`.
    """
    numerator: int
    denominator: int
    limit: int
    """Of the zone it is in; rates in 1/1000, RTT in microseconds, rounds in rounds."""


class Fact(NamedTuple):
    """One number a decision rests on, by name, in the unit the name ends with (`_ms`, `_us`, `_milli`) or a count."""

    name: str
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a snapshot says of one line."""

    line: LineId
    health: Health
    gate: Gate
    step: int
    """Ramp step: 0 in the half-open trial, 1… while the share rises; 0 otherwise."""
    weight: int
    """Published, in points; 0 means nothing but trials of the data plane's own."""
    raw_milli: int
    """The weight before rounding up, in 1/1000 point."""
    score: int
    """0…100 for people; 0 while open."""
    reason: str
    """The rule that put it here, e.g. `vote.connect.down`; empty while healthy."""
    window: int
    """Id of the running trial window, echoed in outcomes; 0 while there is none."""
    since_ms: int
    """When health or gate last changed, ms since the journal's epoch."""
    next_ms: int | None = None
    """The next time something happens by itself (cooldown over, window may pass), or None."""
    blind: bool = False
    """No fresh vantage sees it: the standing is held, not judged."""
    incident: str = ""
    """The shared-risk group whose incident the line is part of, or empty."""


class Version(NamedTuple):
    """Epoch (one per start of a center) and counter, compared as a pair; clients refuse a lower one."""

    epoch: int
    counter: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.counter}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The standings of one scope, replaced whole; `standings` are sorted as published: weight down, then id."""

    scope: Scope
    version: Version
    issued_ms: int
    standings: tuple[Standing, ...]
    panic: str = ""
    """Why ordinary rules are suspended (`fail_open`, `last_line`, `panic`, `blast`, `observers`), or empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One decision on one line: what was, what is, by which rule, from which evidence."""

    line: LineId
    at_ms: int
    before: Standing
    after: Standing
    rule: str
    votes: tuple[Vote, ...] = ()
    facts: tuple[Fact, ...] = ()
