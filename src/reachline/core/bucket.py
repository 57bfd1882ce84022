"""Token buckets: how many attempts a second may go to one network, or leave from one address. Pure; times are arguments.

A bucket is one number, the moment from which on its next attempt may start. Whoever asks is told when to start, which may be
later than wanted, or whose turn it is not, and nothing is taken then. What was not used may be saved up for a tenth of a
second, so that rounds that fall together start together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

from reachline.model import Seconds

__all__ = ["SPARE", "Buckets", "Claim"]

SPARE: Final[Seconds] = 0.1
"""Of a rate's time that may be saved up: a second has a tenth more than the rate at most."""
_ROOM: Final = 1_024
"""Buckets kept before those are forgotten that have nothing to say any more: a bucket never used says the same."""


class Claim(NamedTuple):
    """What one round asks of one bucket."""

    key: str
    rate: float
    """Attempts a second that the bucket allows."""
    attempts: float


class Buckets:
    """All buckets of one agent by key. Written by whoever asks."""

    __slots__ = ("_free", "_room")

    def __init__(self) -> None:
        self._free: dict[str, Seconds] = {}
        self._room = _ROOM

    def __len__(self) -> int:
        return len(self._free)

    def take(self, claims: Iterable[Claim], at: Seconds, until: Seconds) -> Seconds | str:
        """When a round due `at` may start, which takes its share of every bucket; the key that has no room `until` then."""
        wanted, start, last = tuple(claims), at, ""
        for claim in wanted:
            if (free := self._free.get(claim.key, start)) > start:
                start, last = free, claim.key
        if start > until:
            return last
        for key, rate, attempts in wanted:
            self._free[key] = max(self._free.get(key, -math.inf), start - SPARE) + attempts / rate
        if len(self._free) > self._room:
            self._forget(at)
        return start

    def _forget(self, now: Seconds) -> None:
        """Twice what is left may come before the next look: forgetting costs each bucket a little, not every round much."""
        self._free = {key: free for key, free in self._free.items() if free > now - SPARE}
        self._room = max(_ROOM, 2 * len(self._free))
