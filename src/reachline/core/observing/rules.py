"""Rules of observatories and balancers as numbers and tags. The defaults are Xray's; what begins with `Care` is ours."""

from __future__ import annotations

import re
import struct
from enum import Enum
from typing import Final, NamedTuple

from reachline.core.observing.values import MS, SECOND

__all__ = [
    "AllUnhealthy",
    "BalancerRules",
    "Care",
    "Cost",
    "Group",
    "LeastLoad",
    "ObserverRules",
    "Strategy",
    "float32",
]


def float32(value: float) -> float:
    """The nearest single, as Go keeps it."""
    found: float = struct.unpack("f", struct.pack("f", value))[0]
    return found


class Group(NamedTuple):
    """Outbounds that are asked for other targets than the rest. The first group that selects a tag is its own."""

    selectors: tuple[str, ...]
    targets: tuple[str, ...]
    quorum: int = 1
    """Targets that must answer."""
    expect: tuple[tuple[int, int], ...] = ()
    """Ranges of statuses that pass, both ends included; none: any."""


class Care(NamedTuple):
    """What decides beside Xray's own fields."""

    fall: int = 3
    """Failures among a first one and its re-checks until an outbound is dead: random resets alone kill nobody…"""
    rise: int = 2
    """…and passes in a row until a dead one is alive."""
    rechecks: int = 5
    """Quick requests after a failure at most: enough to decide three against three…"""
    spacing: int = SECOND
    """…this far apart, whether or not those before have ended…"""
    patience: int = 2 * SECOND
    """…each given this long, or four times the outbound's average, never more than `timeout`."""
    retry: int = 4 * SECOND
    """An outbound that is dead, or that failed not long ago, is asked this often: with `patience` and the re-checks that follow, its
    return and its death are known within ten seconds."""
    budget: int = 120
    """Requests a minute, over all outbounds, beside those of the schedule…"""
    reserve: int = 30
    """…of which this many may be saved up."""
    concurrency: int = 256
    """Requests of the schedule in flight at once; the others wait their turn."""
    expect: tuple[tuple[int, int], ...] = ((200, 399),)
    """Statuses that pass: what a block page or a captive portal answers is mostly none of them."""
    groups: tuple[Group, ...] = ()


class ObserverRules(NamedTuple):
    """Of both observers. The standard one has `interval`, `concurrent` and `targets`; the burst one all but `concurrent`."""

    is_burst: bool
    selectors: tuple[str, ...]
    target: str
    interval: int
    """May be negative in the standard observer, strictly: no pause then."""
    concurrent: bool = False
    sampling: int = 10
    timeout: int = 5 * SECOND
    method: str = "GET"
    connectivity: str = ""
    care: Care | None = None
    """None: strictly as Xray."""

    @property
    def window(self) -> int:
        """Of a burst: in which each outbound is asked `sampling` times."""
        return self.interval * self.sampling


class Strategy(Enum):
    """How a balancer chooses; the value is Xray's word."""

    RANDOM = "random"
    ROUND_ROBIN = "roundRobin"
    LEAST_PING = "leastPing"
    LEAST_LOAD = "leastLoad"


class Cost(NamedTuple):
    """One weight: of the tags that match a text or a pattern. `value` 0: the first number in what matched."""

    match: str
    value: float = 0.0
    is_pattern: bool = False


class LeastLoad(NamedTuple):
    """Settings of `leastLoad`, normalised as Xray does."""

    costs: tuple[Cost, ...] = ()
    baselines: tuple[int, ...] = ()
    expected: int = 0
    max_rtt: int = 0
    tolerance: float = 0.0
    """A single; 0: off."""


class AllUnhealthy(Enum):
    """What a balancer does with nobody healthy, no lower group and no fallback; the value is the document's word."""

    LAST_GOOD = "lastGood"
    """Whom it chose last while they were well; nobody where there never was one."""
    BLOCK = "block"
    """Nobody: the connection is refused."""
    ORDERED = "ordered"
    """The first of its candidates, in the order of groups and tags."""
    SPREAD = "spread"
    """All of its candidates alike."""


class BalancerRules(NamedTuple):
    """One balancer."""

    tag: str
    selectors: tuple[str, ...]
    strategy: Strategy = Strategy.RANDOM
    load: LeastLoad = LeastLoad()
    fallback: str = ""
    """An outbound's tag; where `strict` is not set a balancer's as well."""
    strict: bool = False
    groups: tuple[tuple[str, ...], ...] = ()
    """Selectors of priority groups, the best first; none: all candidates alike."""
    all_unhealthy: AllUnhealthy = AllUnhealthy.LAST_GOOD
    advantage: int = 100
    """Thousandths by which another must be better before it takes over…"""
    least_advantage: int = 10 * MS
    """…and this much at least: what two nodes differ by from one probe to the next."""


NUMBER: Final = re.compile(r"[0-9]+(\.[0-9]+)?")
