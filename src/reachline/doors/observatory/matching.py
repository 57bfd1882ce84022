"""Which rule of a document a connection meets: Xray's routing as a function. Resolves nothing, and says when it would have to.

The first rule of which every condition matches decides. A condition is a set: of names, of networks, of ports.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from enum import Enum
from ipaddress import IPv4Address, IPv6Address
from typing import Final, NamedTuple

__all__ = [
    "Addresses",
    "Conditions",
    "Decision",
    "Directed",
    "Ip",
    "Names",
    "Ports",
    "Question",
    "Router",
    "Strategy",
    "Users",
    "ranges_of",
]

Ip = IPv4Address | IPv6Address
Ports = tuple[tuple[int, int], ...]
"""First and last of each range."""


class Strategy(Enum):
    """`domainStrategy`: when a name is resolved for the sake of rules about addresses."""

    AS_IS = "AsIs"
    IF_NON_MATCH = "IPIfNonMatch"
    ON_DEMAND = "IPOnDemand"


class Question(NamedTuple):
    """A connection as rules see it. Either `domain` or one address; `addresses` are None while a name was not resolved."""

    port: int
    domain: str = ""
    addresses: tuple[Ip, ...] | None = None
    inbound: str = ""
    network: str = "tcp"
    source: Ip | None = None
    source_port: int = 0
    local: Ip | None = None
    local_port: int = 0
    user: str = ""


class Names(NamedTuple):
    """A set of names, in lower case but for the patterns."""

    full: frozenset[str] = frozenset()
    domains: frozenset[str] = frozenset()
    """Each with all names below it."""
    keywords: tuple[str, ...] = ()
    patterns: tuple[re.Pattern[str], ...] = ()

    def matches(self, name: str) -> bool:
        name = name.lower()
        if name in self.full or any(each in name for each in self.keywords):
            return True
        rest = name if self.domains else ""
        while rest:
            if rest in self.domains:
                return True
            rest = rest.partition(".")[2]
        return any(each.search(name) for each in self.patterns)


class _Ranges(NamedTuple):
    """Disjoint ranges of numbers, rising."""

    firsts: tuple[int, ...] = ()
    lasts: tuple[int, ...] = ()

    def holds(self, number: int) -> bool:
        at = bisect_right(self.firsts, number) - 1
        return at >= 0 and number <= self.lasts[at]


def ranges_of(networks: Iterable[tuple[int, int]], bits: int) -> _Ranges:
    """Of networks as number and length of the prefix; bits behind the prefix count for nothing."""
    firsts: list[int] = []
    lasts: list[int] = []
    for address, prefix in sorted(
        (address >> (bits - prefix) << (bits - prefix), prefix) for address, prefix in networks
    ):
        last = address | ((1 << (bits - prefix)) - 1)
        if lasts and address <= lasts[-1] + 1:
            lasts[-1] = max(lasts[-1], last)
        else:
            firsts.append(address)
            lasts.append(last)
    return _Ranges(tuple(firsts), tuple(lasts))


class Addresses(NamedTuple):
    """A set of addresses, or all that are not in it."""

    four: _Ranges = _Ranges()
    six: _Ranges = _Ranges()
    is_reversed: bool = False

    def holds(self, address: Ip) -> bool:
        """An IPv4 address written as IPv6 is what it is."""
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        found = mapped or address
        ranges = self.four if found.version == 4 else self.six
        return ranges.holds(int(found)) is not self.is_reversed


class Users(NamedTuple):
    """Names of accounts, and patterns of them."""

    names: frozenset[str] = frozenset()
    patterns: tuple[re.Pattern[str], ...] = ()

    def matches(self, user: str) -> bool:
        return bool(user) and (user in self.names or any(each.search(user) for each in self.patterns))


class Conditions(NamedTuple):
    """Of one rule, None where it says nothing. All of them must match; of several `Addresses` one does."""

    inbounds: frozenset[str] | None = None
    networks: frozenset[str] | None = None
    ports: Ports | None = None
    source_ports: Ports | None = None
    local_ports: Ports | None = None
    users: Users | None = None
    domains: Names | None = None
    sources: tuple[Addresses, ...] | None = None
    locals: tuple[Addresses, ...] | None = None
    addresses: tuple[Addresses, ...] | None = None


class Directed(NamedTuple):
    """A rule: where a connection goes that meets it. One of the two tags is empty."""

    conditions: Conditions
    outbound: str = ""
    balancer: str = ""


class Decision(NamedTuple):
    """`rule` is the number of the one that was met, None: none was. `resolve`: ask again with the name's addresses."""

    rule: int | None = None
    resolve: bool = False


class Router:
    """The rules of a document."""

    __slots__ = ("_strategy", "rules")

    def __init__(self, rules: Sequence[Directed], strategy: Strategy = Strategy.AS_IS) -> None:
        self.rules: Final = tuple(rules)
        self._strategy: Final = strategy

    def route(self, question: Question) -> Decision:
        """The rule that a connection meets. It asks for addresses at most once: not where they are given, however few."""
        is_open = bool(question.domain) and question.addresses is None
        for number, rule in enumerate(self.rules):
            if not _fits(rule.conditions, question):
                continue
            if rule.conditions.addresses is None:
                return Decision(number)
            if is_open and self._strategy is Strategy.ON_DEMAND:
                return Decision(resolve=True)
            if _any(rule.conditions.addresses, question.addresses or ()):
                return Decision(number)
        return Decision(resolve=is_open and self._strategy is Strategy.IF_NON_MATCH)


def _fits(wanted: Conditions, asked: Question) -> bool:
    """Whether all matches but the target's addresses."""
    return (
        (wanted.inbounds is None or asked.inbound in wanted.inbounds)
        and (wanted.networks is None or asked.network in wanted.networks)
        and (wanted.ports is None or _within(wanted.ports, asked.port))
        and (wanted.source_ports is None or _within(wanted.source_ports, asked.source_port))
        and (wanted.local_ports is None or _within(wanted.local_ports, asked.local_port))
        and (wanted.users is None or wanted.users.matches(asked.user))
        and (wanted.sources is None or _any(wanted.sources, () if asked.source is None else (asked.source,)))
        and (wanted.locals is None or _any(wanted.locals, () if asked.local is None else (asked.local,)))
        and (wanted.domains is None or (bool(asked.domain) and wanted.domains.matches(asked.domain)))
    )


def _within(ports: Ports, port: int) -> bool:
    return any(first <= port <= last for first, last in ports)


def _any(sets: Sequence[Addresses], addresses: Sequence[Ip]) -> bool:
    return any(each.holds(address) for each in sets for address in addresses)
