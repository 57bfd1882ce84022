"""Peak EWMA: of two endpoints drawn by chance, the one where a call is expected to wait less.

The average follows a slower answer at once and a faster one slowly, so that one bad moment is seen while it lasts. A failure
counts as the slowest of answers: an endpoint that refuses within a millisecond must not look like the fastest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp
from random import Random
from typing import Final, Generic, TypeVar

from reachline.core.pick.member import Load, Memory, Picker, Source
from reachline.core.pick.policy import Policy

__all__ = ["PeakEwma", "began", "ended", "left", "peak_ewma", "settle"]

T = TypeVar("T")

DECAY_MS: Final = 10_000
"""Time in which the average forgets to 1/e: as long as a client remembers a slow endpoint that it does not call."""
PATIENCE_US: Final = 1_000_000.0
"""What a failure counts for at least, unless the caller says: the client's own patience."""
UNKNOWN_US: Final = 2.0**40
"""Expected where a call is under way and none ever ended: one call at a time proves a new endpoint."""


def began(load: Load) -> None:
    """A call to the endpoint begins."""
    load.active += 1
    _cost(load)


def ended(
    load: Load,
    elapsed_us: float,
    now_ms: int,
    *,
    failed: bool = False,
    patience_us: float = PATIENCE_US,
    decay_ms: int = DECAY_MS,
) -> None:
    """A call has ended after `elapsed_us`; of a failure that was faster than `patience_us`, after that long."""
    if load.active > 0:
        load.active -= 1
    sample = max(0.0, elapsed_us)
    if failed and sample < patience_us:
        sample = patience_us
    if sample >= load.latency_us:
        load.latency_us = sample
    else:
        age_ms = now_ms - load.stamp_ms
        kept = exp(-age_ms / decay_ms) if age_ms > 0 else 1.0
        load.latency_us = load.latency_us * kept + sample * (1.0 - kept)
    load.stamp_ms = max(load.stamp_ms, now_ms)
    _cost(load)


def left(load: Load) -> None:
    """A call has ended that says nothing of how long the endpoint takes: cancelled early, or our own fault."""
    if load.active > 0:
        load.active -= 1
    if load.latency_us or load.cost:
        _cost(load)


def settle(loads: Iterable[Load], now_ms: int, *, decay_ms: int = DECAY_MS) -> None:
    """Let the averages of endpoints without calls fade, so that each is tried again some time; call it every second or so."""
    for load in loads:
        if load.active <= 0 and load.latency_us and now_ms > load.stamp_ms:
            load.latency_us *= exp(-(now_ms - load.stamp_ms) / decay_ms)
            load.stamp_ms = now_ms
            _cost(load)


def _cost(load: Load) -> None:
    if load.latency_us:
        load.cost = load.latency_us * (load.active + 1)
    else:
        load.cost = UNKNOWN_US + load.active if load.active else 0.0


class PeakEwma(Generic[T]):
    """Two different items by chance, the cheaper one wins; a weight divides its item's cost. One never tried costs nothing."""

    __slots__ = ("_costs", "_loads", "_pairs", "_size", "items")

    def __init__(self, items: Sequence[T], loads: Sequence[Load], weights: Sequence[float]) -> None:
        self.items: Final = tuple(items)
        self._loads: Final = tuple(loads)
        self._costs: Final = tuple(1.0 / weight for weight in weights)
        self._size: Final = len(self.items)
        self._pairs: Final = float(self._size * (self._size - 1))

    def pick(self, rng: Random, key: int | None = None, attempt: int = 0) -> T | None:  # noqa: ARG002 - chance needs neither
        """An item, or None without items."""
        size = self._size
        if size < 2:
            return self.items[0] if size else None
        loads, costs = self._loads, self._costs
        both = int(rng.random() * self._pairs)
        one, other = both % size, both // size
        if other >= one:
            other += 1
        return self.items[one if loads[one].cost * costs[one] <= loads[other].cost * costs[other] else other]


def peak_ewma(source: Source[T], policy: Policy, memory: Memory, rng: Random) -> Picker[T]:  # noqa: ARG001 - one signature
    """The picker of `TABLE`."""
    members = source.members
    return PeakEwma([each.item for each in members], [memory.load(each.key) for each in members], source.weights)
