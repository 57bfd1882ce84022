"""The endpoints of one cluster as discovery names them, and what differs from one look to the next. Values only.

An endpoint's identity is its address. Whoever keeps state of endpoints keys it by `Member.address`: what stays, or moves
to another priority or locality, keeps its state; only what is added starts anew.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from reachline.errors import Problem
from reachline.model import Health, Locality, Ratio, Seconds

__all__ = [
    "Address",
    "CheckAt",
    "Drop",
    "Member",
    "Membership",
    "Place",
    "Shift",
    "Update",
    "are_ipv4",
    "compare",
    "distinct",
    "faults_of",
    "is_numeric",
    "problems_of",
]

_OCTET: Final = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_V4: Final = re.compile(rf"{_OCTET}(?:\.{_OCTET}){{3}}", re.ASCII)
_V4S: Final = re.compile(rf"(?:{_OCTET}\.{_OCTET}\.{_OCTET}\.{_OCTET}\n)*+", re.ASCII)
_WEIGHT_MOST: Final = 2**32 - 1
_PRIORITY_MOST: Final = 128
"""As xDS has them."""
_PORT_MOST: Final = 65_535


class Address(NamedTuple):
    """Where an endpoint is: a numeric address, or a name where discovery has yet to resolve it."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Place(NamedTuple):
    """Where in its cluster an endpoint stands. Priority 0 is the first."""

    priority: int
    locality: Locality


class CheckAt(NamedTuple):
    """What differs for active checks of one endpoint; None, 0 and empty: nothing does."""

    host: str = ""
    port: int = 0
    hostname: str = ""
    is_off: bool = False


class Drop(NamedTuple):
    """A share of calls to be refused before an endpoint is picked, by category."""

    category: str
    share: Ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One endpoint in its cluster. `health` is what discovery says of it, HEALTHY where it says UNKNOWN.

    `metadata` is by filter name, e.g. `envoy.lb`, as JSON values.
    """

    address: Address
    hostname: str = ""
    """The name it was found by, for TLS and checks; empty where there is none."""
    weight: int = 1
    priority: int = 0
    locality: Locality = Locality()
    health: Health = Health.UNKNOWN
    metadata: Mapping[str, object] = field(default_factory=dict, hash=False)
    check: CheckAt = CheckAt()

    @property
    def place(self) -> Place:
        return Place(self.priority, self.locality)


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """A cluster's endpoints at a moment, each address once, and what discovery says of the cluster as a whole."""

    members: tuple[Member, ...] = ()
    locality_weights: Mapping[Place, int] = field(default_factory=dict, hash=False)
    """Of localities that have one."""
    drops: tuple[Drop, ...] = ()
    overprovisioning: Ratio = 1.4
    weighted_priorities: bool = False
    """Whether the health of a priority is counted in weights rather than endpoints."""
    lingers: bool = False
    """Whether connections to an endpoint that left may stay (logical DNS: it left new connections only)."""
    stale_after: Seconds | None = None
    """How long it holds without being said again; None: for ever."""


class Shift(NamedTuple):
    """One endpoint before and after."""

    before: Member
    after: Member


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """One change of a cluster, whole: all its priorities and localities at once.

    The four lists do not overlap: an endpoint that moved and changed its weight has moved.
    """

    membership: Membership
    """As it is now."""
    added: tuple[Member, ...] = ()
    removed: tuple[Member, ...] = ()
    moved: tuple[Shift, ...] = ()
    """To another priority or locality."""
    changed: tuple[Shift, ...] = ()
    """In place: weight, health, metadata, hostname."""
    policy_changed: bool = False
    """Anything of the membership but its members."""
    places: tuple[Place, ...] = ()
    """The priorities and localities whose endpoints or weight differ, in order; all others stand as they were."""
    trouble: str = ""
    """What keeps the endpoints from being newer or more, in words; empty while nothing does."""
    notices: tuple[str, ...] = ()
    """What was odd but not wrong, such as an address that stands there twice."""

    @property
    def is_change(self) -> bool:
        """Whether there is anything to rebuild for; without it only `trouble` or `notices` differ."""
        return bool(self.added or self.removed or self.moved or self.changed or self.policy_changed)


def distinct(members: Iterable[Member]) -> tuple[tuple[Member, ...], tuple[str, ...]]:
    """(members with each address once, the first one counts; what to say about the others, with positions from 0)."""
    first: dict[Address, int] = {}
    kept: list[Member] = []
    notices: list[str] = []
    for position, member in enumerate(members):
        seen = first.setdefault(member.address, position)
        if seen == position:
            kept.append(member)
        else:
            notices.append(f"{member.address} stands at {seen} and at {position}: the first one counts")
    return tuple(kept), tuple(notices)


def compare(before: Membership, after: Membership, *, trouble: str = "", notices: tuple[str, ...] = ()) -> Update:
    """What became of `before`. Endpoints that are as they were stay the same objects."""
    known = {each.address: each for each in before.members}
    members: list[Member] = []
    differing: list[Shift] = []
    added: list[Member] = []
    for each in after.members:
        was = known.get(each.address)
        if was is None:
            added.append(each)
        elif was is each or was == each:  # by object first: of ten thousand few are others
            members.append(was)
            continue
        else:
            differing.append(Shift(was, each))
        members.append(each)
    left = {each.address for each in members}
    removed = tuple(each for each in before.members if each.address not in left)
    weights = dict(before.locality_weights.items() ^ after.locality_weights.items())
    touched = {
        each.place for each in (*added, *removed, *(end for shift in differing for end in shift))
    } | weights.keys()
    return Update(
        membership=replace(after, members=tuple(members)),
        added=tuple(added),
        removed=removed,
        moved=tuple(shift for shift in differing if shift.before.place != shift.after.place),
        changed=tuple(shift for shift in differing if shift.before.place == shift.after.place),
        policy_changed=replace(before, members=()) != replace(after, members=()),
        places=tuple(sorted(touched, key=lambda place: (place.priority, str(place.locality)))),
        trouble=trouble,
        notices=notices,
    )


def problems_of(members: Sequence[Member], place: str, *, named: bool = False) -> tuple[Problem, ...]:
    """Everything that cannot be about endpoints written down at `place`, with positions from 0."""
    return tuple(
        Problem(place=place, path=f"endpoints[{at}].{key}", value=value, rule=rule)
        for at, each in enumerate(members)
        for key, value, rule in faults_of(each, named=named)
    )


def faults_of(member: Member, *, named: bool = False) -> tuple[tuple[str, str, str], ...]:
    """(key, value, rule) of everything about an endpoint that cannot be; `named`: its address is yet to be resolved.

    Types are looked at too: what a document says may be NaN.
    """
    host, port = member.address
    found = []
    if named and not host:
        found.append(("address", repr(host), "must be a name"))
    if not named and not is_numeric(host):
        found.append(("address", repr(host), "must be a numeric address; a name needs strict_dns or logical_dns"))
    if not _is_whole(port, 1, _PORT_MOST):
        found.append(("port", repr(port), f"must be a whole number, 1 to {_PORT_MOST}"))
    if member.check.host and not is_numeric(member.check.host):
        found.append(("check.host", repr(member.check.host), "must be a numeric address"))
    if not _is_whole(member.check.port, 0, _PORT_MOST):
        found.append(("check.port", repr(member.check.port), f"must be a whole number, 0 to {_PORT_MOST}"))
    # Whom an endpoint is asked as goes out in a header.
    found += [
        (key, repr(name), "must be printable")
        for key, name in (("hostname", member.hostname), ("check.hostname", member.check.hostname))
        if not name.isprintable()
    ]
    if not _is_whole(member.weight, 1, _WEIGHT_MOST):
        found.append(("weight", repr(member.weight), f"must be a whole number, 1 to {_WEIGHT_MOST}"))
    if not _is_whole(member.priority, 0, _PRIORITY_MOST):
        found.append(("priority", repr(member.priority), f"must be a whole number, 0 to {_PRIORITY_MOST}"))
    return tuple(found)


def _is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_numeric(host: str) -> bool:
    """Whether it is an address rather than a name."""
    if _V4.fullmatch(host):
        return True  # a tenth of the cost: an assignment may hold ten thousand of them
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def are_ipv4(hosts: Sequence[str]) -> bool:
    """Whether all of them are such addresses: of ten thousand at half of what it costs to ask each."""
    text = "\n".join((*hosts, ""))
    return text.count("\n") == len(hosts) and _V4S.fullmatch(text) is not None
