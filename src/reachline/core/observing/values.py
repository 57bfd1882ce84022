"""What goes into an observatory and what comes out of it. Times are nanoseconds since 1970, durations nanoseconds."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

__all__ = ["DEAD_MS", "MS", "SECOND", "Ask", "Ping", "Purpose", "Result", "Status", "Told"]

MS: Final = 1_000_000
SECOND: Final = 1_000_000_000
DEAD_MS: Final = 99_999_999
"""The delay of a dead outbound in the standard observer, which no alive one reaches."""


class Purpose(Enum):
    """What a request is made for."""

    PROBE = "probe"
    """By the schedule."""
    RECHECK = "recheck"
    """Because something failed, or to see a dead outbound return."""
    CONNECTIVITY = "connectivity"
    """Straight, by no outbound: is our own network up?"""


class Ask(NamedTuple):
    """One request to make now. Its end is told by its number."""

    serial: int
    purpose: Purpose
    tag: str
    """The outbound to go by; empty: straight."""
    url: str
    method: str
    timeout: int
    reads_body: bool
    """Whether the answer's body belongs to the request."""
    fresh: bool = True
    """By a connection of its own, closed afterwards."""


class Result(NamedTuple):
    """How a request ended."""

    ok: bool
    """It was answered, whatever the status."""
    rtt: int = 0
    """From its start to its end, connecting and TLS included."""
    status: int = 0
    """Of HTTP; 0: not known."""
    reason: str = ""
    """The failure in words."""
    ours: bool = False
    """It failed by our own fault (no descriptors, an address that is not ours): no evidence against anybody, strictly a failure."""


class Ping(NamedTuple):
    """Statistics of the results still valid; durations of those that passed."""

    all: int = 0
    fail: int = 0
    deviation: int = 0
    average: int = 0
    max: int = 0
    min: int = 0


class Status(NamedTuple):
    """An outbound as observed: the message `OutboundStatus`, field by field."""

    tag: str
    alive: bool
    delay: int = 0
    """Whole ms."""
    reason: str = ""
    seen: int = 0
    """When a request last passed, seconds; 0: never."""
    tried: int = 0
    """When one last ended, seconds."""
    ping: Ping | None = None


class Told(NamedTuple):
    """Something happened to an outbound that a log should tell."""

    tag: str
    alive: bool
    changed: bool
    delay: int
    reason: str = ""
