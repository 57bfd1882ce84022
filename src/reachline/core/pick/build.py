"""A picker of a whole cluster: priorities, health, panic, localities and slow start around the policy of `TABLE`.

All of it is decided here, once a snapshot. A cluster with one healthy priority gets its policy's picker itself, so that a pick
pays only for what the snapshot needs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from random import Random
from typing import Final, Generic, NamedTuple, TypeVar

from reachline.core.pick.edf import Deadlines
from reachline.core.pick.localities import Nested, Zoned, by_locality, effective, zones
from reachline.core.pick.member import Member, Memory, Picker, Source, checked, is_degraded, is_healthy
from reachline.core.pick.policy import Policy
from reachline.core.pick.priorities import ALL, Census, Loads, loads
from reachline.core.pick.slow import weights
from reachline.core.pick.table import HASHING, TABLE
from reachline.core.pick.uniform import Uniform
from reachline.errors import ConfigError, Problem
from reachline.model import Locality

__all__ = ["Spill", "build", "census", "loads_of"]

T = TypeVar("T")


class Spill(Generic[T]):
    """Pickers that share the calls in percent."""

    __slots__ = ("_bounds", "_by_key", "_pickers", "items")

    def __init__(self, pickers: Sequence[Picker[T]], shares: Sequence[int], *, by_key: bool) -> None:
        """Shares sum to 100; `by_key` gives one key always the same picker."""
        self.items: Final = tuple(item for picker in pickers for item in picker.items)
        self._pickers: Final = tuple(pickers)
        self._bounds: Final = list(accumulate(shares))
        self._by_key: Final = by_key

    def pick(self, rng: Random, key: int | None = None, attempt: int = 0) -> T | None:
        """One item of the picker that the key, or chance, gives this call."""
        if self._by_key:
            key = rng.getrandbits(64) if key is None else key
            drawn = key % ALL + 1
        else:
            drawn = int(rng.random() * ALL) + 1
        return self._pickers[bisect_left(self._bounds, drawn)].pick(rng, key, attempt)


class _Rank(NamedTuple, Generic[T]):
    """One priority's members, sorted out."""

    priority: int
    members: Sequence[Member[T]]
    healthy: Sequence[Member[T]]
    degraded: Sequence[Member[T]]


class _Ways(NamedTuple):
    """What is the same for all parts of one picker."""

    policy: Policy
    memory: Memory
    rng: Random
    now_ms: int
    part: object

    @property
    def is_hashing(self) -> bool:
        return self.policy.name in HASHING


def build(
    members: Sequence[Member[T]],
    policy: Policy,
    memory: Memory,
    rng: Random,
    *,
    now_ms: int = 0,
    part: object = None,
) -> Picker[T]:
    """The picker of these members now; with slow start, build again at `slow.due_ms`.

    `memory` is the process's own and goes from picker to picker; `part` tells parts of one cluster apart in it. ConfigError names every member that cannot be, by position
    (`member.sound` sorts them out beforehand), and a policy that is none.
    """
    if policy.name not in TABLE:
        rule = f"a policy is one of {', '.join(sorted(TABLE))}"
        raise ConfigError(Problem(place="balancing", path="policy", value=policy.name, rule=rule))
    ranks, ways = _ranks(checked(members)), _Ways(policy, memory, rng, now_ms, part)
    plan = _loads(ranks, policy)
    parts: list[tuple[Picker[T], int]] = []
    for rank, share, panics in zip(ranks, plan.healthy, plan.panic, strict=True):
        if share:
            parts.append((_all(rank, ways) if panics else _part(rank, ways, "healthy"), share))
    for rank, share, panics in zip(ranks, plan.degraded, plan.panic, strict=True):
        if share:
            kind = "degraded" if policy.hash_health or not ways.is_hashing else "healthy"
            parts.append((_all(rank, ways) if panics else _part(rank, ways, kind), share))
    if not parts:
        return Uniform(())
    if len(parts) == 1:
        return parts[0][0]
    return Spill([picker for picker, _ in parts], [share for _, share in parts], by_key=ways.is_hashing)


def loads_of(members: Sequence[Member[T]], policy: Policy) -> Loads:
    """What share of the calls each priority gets and which of them panic: for people, and for `explain`."""
    return _loads(_ranks(members), policy)


def census(members: Sequence[Member[T]], *, by_weight: bool = False) -> Census:
    """The members of one priority, counted."""
    return _census(_sorted_out(0, members), by_weight=by_weight)


def _loads(ranks: Sequence[_Rank[T]], policy: Policy) -> Loads:
    counted = [_census(rank, by_weight=policy.health_by_weight) for rank in ranks]
    return loads(counted, overprovision=policy.overprovision, panic=policy.panic)


def _census(rank: _Rank[T], *, by_weight: bool) -> Census:
    excluded = sum(member.excluded for member in rank.members)
    carried = None
    if by_weight:
        usable = sum(member.weight for member in rank.members if not member.excluded)
        carried = (sum(each.weight for each in rank.healthy), sum(each.weight for each in rank.degraded), usable)
    return Census(len(rank.members), len(rank.healthy), len(rank.degraded), excluded, carried)


def _ranks(members: Sequence[Member[T]]) -> list[_Rank[T]]:
    if not any(member.priority for member in members):
        return [_sorted_out(0, members)] if members else []
    sorted_by: list[list[Member[T]]] = [[] for _ in range(1 + max((member.priority for member in members), default=-1))]
    for member in members:
        sorted_by[member.priority].append(member)
    return [_sorted_out(priority, each) for priority, each in enumerate(sorted_by)]


def _sorted_out(priority: int, members: Sequence[Member[T]]) -> _Rank[T]:
    healthy = [member for member in members if is_healthy(member)]
    degraded = [] if len(healthy) == len(members) else [member for member in members if is_degraded(member)]
    return _Rank(priority, members, healthy, degraded)


def _all(rank: _Rank[T], ways: _Ways) -> Picker[T]:
    """In panic: all members of the priority, whatever their health, or nobody where the policy would rather fail."""
    if ways.policy.fail_in_panic:
        return Uniform(())
    if ways.is_hashing:
        return _hashed(rank, rank.members, ways, healths=False)
    return _flat(rank.members, ways, (ways.part, rank.priority, "all"))


def _part(rank: _Rank[T], ways: _Ways, kind: str) -> Picker[T]:
    """The healthy or the degraded members of one priority."""
    members = rank.healthy if kind == "healthy" else rank.degraded
    if ways.is_hashing:
        return _hashed(rank, members, ways, healths=ways.policy.hash_health)
    name = (ways.part, rank.priority, kind)
    if ways.policy.localities is not None:
        return _by_weight(rank, members, ways, name)
    if ways.policy.zoning is not None and rank.priority == 0 and kind == "healthy":
        plan = zones(members, ways.policy.zoning)
        if plan is not None:
            groups = by_locality(members).items()
            return Zoned({at: _flat(each, ways, (name, at)) for at, each in groups}, plan, ways.policy.zoning.home)
    return _flat(members, ways, name)


def _flat(members: Sequence[Member[T]], ways: _Ways, name: object) -> Picker[T]:
    source = Source(members, weights(members, ways.policy.slow_start, ways.now_ms), name)
    return TABLE[ways.policy.name](source, ways.policy, ways.memory, ways.rng)


def _by_weight(rank: _Rank[T], members: Sequence[Member[T]], ways: _Ways, name: object) -> Picker[T]:
    """Localities by their effective weights, in turn; none of them, and the members are as one, where nobody has a weight."""
    weigh = _locality_weight(rank, ways.policy)
    known = [(at, each, weight) for at, each in by_locality(members).items() if (weight := weigh(at, len(each))) > 0]
    if not known:
        return _flat(members, ways, name)
    inner = [_flat(each, ways, (name, at)) for at, each, _ in known]
    if len(inner) == 1:
        return inner[0]
    return Nested(Deadlines(inner, [weight for _, _, weight in known], picks=ways.rng.getrandbits(32)))


def _locality_weight(rank: _Rank[T], policy: Policy) -> Callable[[Locality, int], float]:
    """The effective weight of a locality of which so many members are eligible."""
    usable = {at: sum(not member.excluded for member in each) for at, each in by_locality(rank.members).items()}
    own = policy.localities or {}

    def weigh(at: Locality, eligible: int) -> float:
        return effective(own.get(at, 0), eligible=eligible, usable=usable[at], overprovision=policy.overprovision)

    return weigh


def _hashed(rank: _Rank[T], members: Sequence[Member[T]], ways: _Ways, *, healths: bool) -> Picker[T]:
    """A hash policy's picker; localities are no choice of their own here but scale their members' shares."""
    policy = ways.policy
    own = weights(members, policy.slow_start, ways.now_ms)
    if policy.localities is None:
        total = sum(own)
        source = Source(members, [weight * 1.0 / total for weight in own], rank.priority)
        return TABLE[policy.name](source, policy, ways.memory, ways.rng)
    at_once = dict(zip((member.key for member in members), own, strict=True))
    weigh = _locality_weight(rank, policy)
    known = [
        (each, weight)
        for at, each in by_locality(members).items()
        if (weight := weigh(at, len(each)) if healths else float(policy.localities.get(at, 0))) > 0
    ]
    if healths:
        whole = sum(weight for _, weight in known)
    else:
        # As in Envoy: also of localities of which nobody is eligible; shares then sum to less than 1, and rings are smaller.
        whole = sum(float(policy.localities.get(at, 0)) for at in by_locality(rank.members))
    chosen, shares = [], []
    for each, weight in known:
        total = sum(at_once[member.key] for member in each)
        chosen += each
        shares += [at_once[member.key] * (weight / whole) / total for member in each]
    return TABLE[policy.name](Source(chosen, shares, rank.priority), policy, ways.memory, ways.rng)
