"""What an Xray document comes to, as values: outbounds, both observatories, balancers, rules, and where its interfaces listen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final

from reachline.core.observing.rules import BalancerRules, ObserverRules
from reachline.errors import Problem
from reachline.talk.hop import Hop

__all__ = ["Api", "Balancer", "Inbound", "Metrics", "Observatory", "Outbound", "Reach", "Rule", "Settings"]


class Reach(Enum):
    """How we get to an outbound."""

    NATIVE = "native"
    """By our own sockets: direct, SOCKS5, HTTP CONNECT, or a chain of them."""
    CORE = "through a core"
    """It speaks what only a proxy core speaks: by way of that core's SOCKS inbound."""
    NONE = "not at all"
    """It carries nothing (`blackhole`, `dns`, `loopback`), or nobody here speaks it: never probed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outbound:
    """One way out."""

    tag: str
    protocol: str
    reach: Reach
    hops: tuple[Hop, ...] = ()
    """Proxies to go through, the first hop first; none: straight."""
    source: str = ""
    """Local address to leave from, empty: the kernel's choice."""
    interface: str = ""
    """Device to leave by, empty: the kernel's choice."""
    why: str = ""
    """Why it is not reached natively."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observatory:
    """What is observed and how. `selectors` empty: nothing is."""

    is_burst: bool
    selectors: tuple[str, ...]
    rules: ObserverRules


@dataclass(frozen=True, slots=True, kw_only=True)
class Balancer:
    """Who is chosen among whom."""

    tag: str
    rules: BalancerRules


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One routing rule: conditions as they stand there, by Xray's field names, and where the connection goes."""

    tag: str = ""
    outbound: str = ""
    balancer: str = ""
    conditions: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _NOTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inbound:
    """Who comes in where. Its settings are read by whoever serves it."""

    tag: str
    protocol: str
    listen: str
    port: str
    """A port, a range or a list of them, as written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """Xray's gRPC API: `listen` is empty where an inbound serves it."""

    tag: str
    listen: str
    services: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Where `/debug/vars` is served."""

    tag: str
    listen: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A document. `observatory` is the one that balancers and interfaces see; `wasted` is observed and seen by nobody (strict)."""

    outbounds: tuple[Outbound, ...] = ()
    inbounds: tuple[Inbound, ...] = ()
    observatory: Observatory | None = None
    wasted: Observatory | None = None
    balancers: Mapping[str, Balancer] = field(default_factory=lambda: _NO_BALANCERS)
    rules: tuple[Rule, ...] = ()
    api: Api | None = None
    metrics: Metrics | None = None
    remarks: str = ""
    strict: bool = False
    warnings: tuple[Problem, ...] = ()

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags of all outbounds, in the document's order; untagged ones are never selected."""
        return tuple(each.tag for each in self.outbounds if each.tag)


_NOTHING: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType({})
_NO_BALANCERS: Final[Mapping[str, Balancer]] = MappingProxyType({})
