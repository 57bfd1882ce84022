"""The picker of a kept cluster's endpoints of one moment: whole, or by subset, with the share of calls that is to be refused.

Made whole and swapped by one reference; what is in it never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final, NamedTuple

from reachline.core.hashing import xxh64
from reachline.core.pick import Member as Seat
from reachline.core.pick import Memory, Picker, Policy, Subsetting, build
from reachline.core.pick.build import loads_of
from reachline.core.pick.member import is_healthy, sound
from reachline.core.pick.uniform import Uniform
from reachline.errors import ConfigError, Problem, Shed
from reachline.members import Drop
from reachline.upstream.listing import Key, Pick
from reachline.upstream.settings import ClusterSettings

__all__ = ["NOBODY", "Made", "Pickers", "hashed", "make"]


class Pickers(NamedTuple):
    """All a pick reads."""

    all: Picker[Pick]
    subsets: Subsetting[Pick] | None = None
    panics: frozenset[int] = frozenset()
    """Priorities that are in panic."""

    dropping: Callable[[Picker[Pick]], Picker[Pick]] = lambda picker: picker
    """Has a picker refuse the share of calls that is to be dropped; `all` does already."""

    def of(self, subset: Mapping[str, str]) -> Picker[Pick]:
        """The picker for a call that names this metadata; without subsets in the settings, of all endpoints."""
        return self.all if self.subsets is None else self.dropping(self.subsets.of(subset))


NOBODY: Final = Pickers(Uniform(()))


class Made(NamedTuple):
    """Pickers, and endpoints that could not be put into them."""

    pickers: Pickers
    problems: tuple[Problem, ...] = ()


class _Dropping:
    """A picker that refuses a share of calls first, each category by chance of its own."""

    __slots__ = ("_cluster", "_drops", "_picker", "_shed", "items")

    def __init__(self, picker: Picker[Pick], cluster: str, drops: Sequence[Drop], shed: Callable[[], None]) -> None:
        self.items: Final = picker.items
        self._picker, self._cluster, self._drops, self._shed = picker, cluster, tuple(drops), shed

    def pick(self, rng: Random, key: int | None = None, attempt: int = 0) -> Pick | None:
        """One endpoint; Shed where the control plane wants this call dropped. A further try of one call is not dropped."""
        for drop in () if attempt else self._drops:
            if rng.random() < drop.share:
                self._shed()
                raise Shed(self._cluster, 0, 1 - drop.share)
        return self._picker.pick(rng, key, attempt)


def hashed(key: Key) -> int | None:
    """The key as a number; None without one."""
    if isinstance(key, str):
        key = key.encode()
    return xxh64(key) if isinstance(key, bytes) else key


def make(
    settings: ClusterSettings,
    seats: Sequence[Seat[Pick]],
    policy: Policy,
    memory: Memory,
    rng: Random,
    *,
    now_ms: int,
    drops: Sequence[Drop] = (),
    shed: Callable[[], None] = lambda: None,
) -> Made:
    """The pickers of these endpoints now. Those that cannot be balanced are left out, and told."""
    problems: tuple[Problem, ...] = ()
    try:
        pickers = _pickers(settings, seats, policy, memory, rng, now_ms)
    except ConfigError:
        kept, problems = sound(seats, place=f"clusters.{settings.name}.endpoints")
        pickers = _pickers(settings, kept, policy, memory, rng, now_ms)
    if any(drop.share > 0 for drop in drops):

        def dropping(picker: Picker[Pick]) -> Picker[Pick]:
            return _Dropping(picker, settings.name, drops, shed)

        pickers = pickers._replace(all=dropping(pickers.all), dropping=dropping)
    return Made(pickers, problems)


def _pickers(  # noqa: PLR0917 - `make`'s own, in its order
    settings: ClusterSettings, seats: Sequence[Seat[Pick]], policy: Policy, memory: Memory, rng: Random, now_ms: int
) -> Pickers:
    panics = frozenset[int]()
    if not all(map(is_healthy, seats)):
        panics = frozenset(level for level, is_so in enumerate(loads_of(seats, policy).panic) if is_so)
    if settings.subsets is None:
        return Pickers(build(seats, policy, memory, rng, now_ms=now_ms), None, panics)
    subsets = Subsetting(seats, settings.subsets, policy, memory, rng, now_ms=now_ms)
    return Pickers(subsets.of({}), subsets, panics)
