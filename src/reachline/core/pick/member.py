"""What a picker chooses among, what one process remembers between pickers, and which of it is refused.

A `Member` is a value of one snapshot. `Load` and `Memory` are the process's own: they outlive snapshots, are written by whoever
makes calls, and are only read on the way of a pick.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from types import MappingProxyType
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from reachline.core.pick.mending import Mending
from reachline.errors import ConfigError, Problem
from reachline.model import Health, Locality

__all__ = [
    "WEIGHT_MOST",
    "Load",
    "Member",
    "Memory",
    "Picker",
    "Source",
    "checked",
    "is_degraded",
    "is_healthy",
    "sound",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

WEIGHT_MOST: Final = 2**32 - 1
"""Of one weight, and of all weights of one priority together: xDS's own limit, a uint32."""
PRIORITY_MOST: Final = 128
"""xDS's own limit of a priority's number."""

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_ANYWHERE: Final = Locality()
_HEALTHY: Final = Health.HEALTHY
_UNKNOWN: Final = Health.UNKNOWN
"""UNKNOWN is well, as in xDS: nobody said otherwise."""


class Member(NamedTuple, Generic[T]):
    """One endpoint of a snapshot, as balancing sees it."""

    item: T
    """What a pick returns."""
    key: str
    """Who it is, unique in its snapshot: `address:port`, or whatever else consistent hashing shall hash."""
    weight: int = 1
    """1…`WEIGHT_MOST`; of the calls of its priority (and locality), not of those of the cluster."""
    health: Health = Health.HEALTHY
    excluded: bool = False
    """Left out of the sums behind spill-over, panic and locality shares, and picked in panic only: being drained, or not tried yet."""
    priority: int = 0
    locality: Locality = _ANYWHERE
    metadata: Mapping[str, str] = _NOTHING
    healthy_since_ms: int | None = None
    """When it last became healthy, for slow start; None where that is long ago or not known."""


def is_healthy(member: Member[T]) -> bool:
    """Whether it is among the first to be picked."""
    health = member.health
    # By identity: an enum's hash is computed in Python, ten thousand times a snapshot.
    return (health is _HEALTHY or health is _UNKNOWN) and not member.excluded


def is_degraded(member: Member[T]) -> bool:
    """Whether it is picked once those that are healthy do not carry all."""
    return member.health is Health.DEGRADED and not member.excluded


class Source(NamedTuple, Generic[T]):
    """Members that one picker chooses among, with what each weighs just now."""

    members: Sequence[Member[T]]
    weights: Sequence[float]
    """Their own weights, or less of them in slow start; for hash policies shares of 1."""
    name: object = None
    """Which part of the cluster they are, for what `Memory` keeps by part."""


class Picker(Protocol[T_co]):
    """One immutable way to choose, built of one snapshot; safe to share between threads, and never waits."""

    @property
    def items(self) -> tuple[T_co, ...]:
        """All that a pick may return."""

    def pick(self, rng: Random, key: int | None = None, attempt: int = 0) -> T_co | None:
        """One item, or None where there is nothing to choose from.

        `key` is 64 bits that keep callers together (hash policies) and is ignored by others; `attempt` counts picks made
        before for the same call, so that a hash policy does not answer the same again.
        """


@dataclass(slots=True)
class Load:
    """Calls of this process to one endpoint: how many are under way, and how long answers took of late.

    Written by the one who makes the calls, read by pickers. Under the interpreter's lock `begin` and `end` lose no count;
    without it the caller serialises them.
    """

    active: int = 0
    latency_us: float = 0.0
    """Peak-sensitive average of answers; 0 while nothing is known."""
    stamp_ms: int = 0
    """Of the newest change of `latency_us`."""
    cost: float = 0.0
    """What one more call is expected to wait, for `peak_ewma`: kept here so that a pick compares two numbers."""


@dataclass(slots=True)
class Memory:
    """What one process keeps of one cluster while pickers come and go. Written by the one that builds pickers, and by calls."""

    seed: int = 0
    """Where round robin begins: drawn once a process, so that many processes do not begin at the same endpoint."""
    loads: dict[str, Load] = field(default_factory=dict)
    """By key. Who goes through them takes a list of them first: a picker that is being built may add to them meanwhile."""
    hashes: dict[str, dict[str, tuple[int, ...]]] = field(default_factory=dict)
    """By kind and key, since computing them is most of building a ring or a table."""
    tables: dict[tuple[object, int], Mending] = field(default_factory=dict)
    """Maglev tables of many endpoints, by part of the cluster and size."""
    _cursors: dict[object, Iterator[int]] = field(default_factory=dict)

    def load(self, key: str) -> Load:
        """The load of one endpoint, made when first asked for."""
        found = self.loads.get(key)
        return self.loads.setdefault(key, Load()) if found is None else found

    def hashed(self, kind: str) -> dict[str, tuple[int, ...]]:
        """What is known of one kind of hashes, by key."""
        return self.hashes.setdefault(kind, {})

    def cursor(self, of: object) -> Iterator[int]:
        """Where round robin stands among the members of one source; goes on over snapshots."""
        return self._cursors.setdefault(of, count(self.seed))

    def holds_more_than(self, count: int) -> bool:
        """Whether endpoints that are gone are remembered, of so many that are here; of hashes as many again may be, for some come back."""
        return len(self.loads) > count or any(len(known) > 2 * count for known in self.hashes.values())

    def keep(self, keys: Iterable[str]) -> None:
        """Forget endpoints that are gone and have no call under way."""
        stay = set(keys)
        self.loads = {key: load for key, load in self.loads.items() if key in stay or load.active > 0}
        self.hashes = {
            kind: {key: found for key, found in known.items() if key in stay} for kind, known in self.hashes.items()
        }


def sound(
    members: Sequence[Member[T]], *, place: str = "endpoints"
) -> tuple[tuple[Member[T], ...], tuple[Problem, ...]]:
    """Members that can be balanced, in their order, and what is wrong with the others; of two with one key the first stays."""
    first: dict[str, int] = {}
    sums: dict[int, int] = {}
    kept: list[Member[T]] = []
    problems: list[Problem] = []
    for number, member in enumerate(members):
        problem = _problem(member, f"{place}[{number}]")
        if problem is None and (before := first.setdefault(member.key, number)) != number:
            problem = Problem(
                place=f"{place}[{number}]",
                path="key",
                value=member.key,
                rule=f"the endpoint stands at [{before}] already",
                hint="name it once, with the sum of its weights",
            )
        if problem is None:
            total = sums[member.priority] = sums.get(member.priority, 0) + member.weight
            if total > WEIGHT_MOST:
                sums[member.priority] -= member.weight
                problem = _refused(
                    f"{place}[{number}]", "weight", total, f"weights of one priority sum to {WEIGHT_MOST} at most"
                )
        if problem is None:
            kept.append(member)
        else:
            problems.append(problem)
    return tuple(kept), tuple(problems)


def checked(members: Sequence[Member[T]], *, place: str = "endpoints") -> tuple[Member[T], ...]:
    """The members as they are; ConfigError with every problem and its position where one cannot be balanced."""
    if not _is_sound(members):
        raise ConfigError(*sound(members, place=place)[1])
    return tuple(members)


def _is_sound(members: Sequence[Member[T]]) -> bool:
    """Whether `sound` finds nothing wrong: asked of all at once, for nothing being wrong is the rule."""
    weights, priorities = [member.weight for member in members], {member.priority for member in members}
    if not set(map(type, weights)) | set(map(type, priorities)) <= {int}:
        return False
    keys = {member.key for member in members}
    if len(keys) < len(members) or "" in keys or not all(0 <= each <= PRIORITY_MOST for each in priorities):
        return False
    if weights and min(weights) < 1:
        return False
    return sum(weights) <= WEIGHT_MOST or all(
        sum(each.weight for each in members if each.priority == level) <= WEIGHT_MOST for level in priorities
    )


def _problem(member: Member[T], place: str) -> Problem | None:
    if type(member.weight) is not int:
        return _refused(place, "weight", member.weight, "a weight is a whole number")
    if not 1 <= member.weight <= WEIGHT_MOST:
        return _refused(
            place, "weight", member.weight, f"a weight is 1…{WEIGHT_MOST}; leave the endpoint out to send it nothing"
        )
    if type(member.priority) is not int or not 0 <= member.priority <= PRIORITY_MOST:
        return _refused(place, "priority", member.priority, f"a priority is a whole number, 0…{PRIORITY_MOST}")
    if not member.key:
        return _refused(place, "key", "", "an endpoint has a key, its address and port")
    return None


def _refused(place: str, path: str, value: object, rule: str) -> Problem:
    rule, _, hint = rule.partition("; ")
    return Problem(place=place, path=path, value=str(value), rule=rule, hint=hint)
