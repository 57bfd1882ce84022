"""How a cluster is balanced, in numbers; defaults are Envoy's. A door reads documents into these and refuses what cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from reachline.core.pick.orca import Weighing
from reachline.model import Locality

__all__ = ["Fallback", "HashFunction", "Policy", "Selector", "SlowStart", "Subsets", "Zoning"]

TABLE_SIZE: Final = 65_537
"""Slots of a maglev table: a prime, a hundred and more times the endpoints of most clusters."""
RING_LEAST: Final = 1_024
RING_MOST: Final = 8_388_608


class HashFunction(Enum):
    """What a ring is hashed by."""

    XX_HASH = "xx_hash"
    MURMUR_HASH_2 = "murmur_hash_2"


class Fallback(Enum):
    """Where a call goes whose subset does not exist."""

    NONE = "none"
    ANY = "any"
    DEFAULT = "default"
    KEYS = "keys"
    """Fewer keys of the call, by the selector's `fallback_keys`."""
    UNSAID = "unsaid"
    """Of a selector: as the whole of `Subsets` says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowStart:
    """An endpoint that has just become healthy gets a rising share of its weight."""

    window_ms: int
    aggression: float = 1.0
    """1 rises in a line; above, faster at first; below, slower at first."""
    least: float = 0.1
    """Share of the weight that it has from the first moment on, 0…1."""

    def __post_init__(self) -> None:
        if self.window_ms <= 0:
            raise ValueError(f"slow start's window is above 0 ms, not {self.window_ms}")
        if not 0 < self.aggression < float("inf"):
            raise ValueError(f"slow start's aggression is above 0, not {self.aggression}")
        if not 0 <= self.least <= 1:
            raise ValueError(f"slow start's least share is 0…1, not {self.least}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Zoning:
    """Zone aware routing: calls stay in the caller's locality as far as that leaves no endpoint with more than its part."""

    home: Locality
    callers: Mapping[Locality, int]
    """How many callers like this process there are in each locality, this process's own among them."""
    cluster_least: int = 6
    """Fewer healthy endpoints than this, and localities are ignored."""
    by_weight: bool = False
    """Whether a locality counts by its endpoints' weights, not by their number."""
    force_home_least: int | None = None
    """With at least so many healthy endpoints at home all calls stay there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """Metadata keys that make subsets: one for each combination of their values."""

    keys: frozenset[str]
    fallback: Fallback = Fallback.UNSAID
    fallback_keys: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Subsets:
    """Balancing among those endpoints only whose metadata a call names."""

    selectors: tuple[Selector, ...]
    fallback: Fallback = Fallback.NONE
    default: Mapping[str, str] = field(default_factory=dict)
    """Metadata of the default subset."""
    panic_any: bool = False
    """Whether all endpoints serve where the fallback has none."""
    redundant_keys: bool = False
    """Whether keys that no selector has are left out of a call's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Everything that `build` asks of a configuration."""

    name: str = "round_robin"
    """A key of `pick.TABLE`."""
    overprovision: int = 140
    """In 1/100: the healthy part of a priority counts for this much."""
    panic: int = 50
    """Percent of usable endpoints under which health is ignored; 0 never."""
    fail_in_panic: bool = False
    """No endpoint in place of all of them."""
    health_by_weight: bool = False
    """Whether a priority's health counts weights, not endpoints."""
    localities: Mapping[Locality, int] | None = None
    """Weights of localities, for locality weighted balancing; a locality that is not named has none."""
    zoning: Zoning | None = None
    slow_start: SlowStart | None = None
    choices: int = 2
    """Endpoints that `least_request` and `peak_ewma` compare."""
    full_scan: bool = False
    """Whether `least_request` compares all of them."""
    bias: float = 1.0
    """How much calls under way weigh in `least_request` where weights differ; 0 not at all."""
    ring_least: int = RING_LEAST
    ring_most: int = RING_MOST
    hash_function: HashFunction = HashFunction.XX_HASH
    table_size: int = TABLE_SIZE
    weighing: Weighing | None = None
    """How endpoints weigh by the loads they report, in place of their own weights; None: they do not."""
    balance_factor: int = 0
    """Percent of the mean load that one endpoint of a hash policy may have, 100 or more; 0 sets no bound."""
    hash_health: bool = True
    """Whether hash policies serve degraded endpoints and weigh localities by their health; Envoy's do neither."""

    def __post_init__(self) -> None:
        for rule, holds in (
            (f"choices are 2 or more, not {self.choices}", self.choices >= 2),
            (f"a bias is 0 or more, not {self.bias}", 0 <= self.bias < float("inf")),
            (f"overprovision is 1 or more, not {self.overprovision}", self.overprovision >= 1),
            (f"a panic threshold is 0…100 percent, not {self.panic}", 0 <= self.panic <= 100),
            (
                f"a ring's least size ({self.ring_least}) is 1 or more and not above its greatest ({self.ring_most})",
                1 <= self.ring_least <= self.ring_most <= RING_MOST,
            ),
            (
                f"a balance factor is 0, or 100 percent or more, not {self.balance_factor}",
                not 0 < self.balance_factor < 100,
            ),
            (
                "weights of localities and zone awareness exclude each other",
                self.localities is None or self.zoning is None,
            ),
            *(
                (f"a locality's weight is 0 or more, not {each}", each >= 0)
                for each in (self.localities or {}).values()
            ),
        ):
            if not holds:
                raise ValueError(rule)
