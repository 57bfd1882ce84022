"""When and where the pickers of one cluster are made: at once, a moment later together with other changes, or in a thread aside.

Whoever makes a picker reads the endpoints under the cluster's lock, builds without it, and puts the picker in place under it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random
from typing import Final

from reachline.core.pick.slow import due_ms
from reachline.members import Membership
from reachline.upstream.judged import Judged
from reachline.upstream.noted import Notes
from reachline.upstream.picking import NOBODY, Pickers, make
from reachline.upstream.settings import ClusterSettings, policy_of

__all__ = ["Making"]

_HERE_MOST: Final = 1_000
"""Endpoints up to which whoever ends a call, or tells of a change, makes the next picker: two milliseconds. Above, `turn` does…"""
_BIG: Final = ("maglev",)
"""…and always where a table may be filled, however few they are: a hundred milliseconds and more of ten thousand the first time, some forty where one of them is another."""
_POINTS_HERE_MOST: Final = 10_000
"""Of a ring, likewise: ten milliseconds. Where weights lie far apart two endpoints may have millions."""
_IN_A_ROW: Final = 2
"""Pickers that one caller makes at most: its own, and one of what moved meanwhile. What moves on and on is `turn`'s affair."""
_RING: Final = "ring_hash"
_NEVER: Final = -(10**12)


class Making:
    """`_building` is held by the one that makes a picker; all else is written under the cluster's lock."""

    def __init__(self, settings: ClusterSettings, judged: Judged, notes: Notes) -> None:
        self._settings, self._judged, self._notes = settings, judged, notes
        self._here_most: Final = 0 if settings.policy.name in _BIG else _HERE_MOST
        self._window_ms: Final = int(settings.merge_window * 1_000)
        self.membership = Membership()
        """As discovery told it last."""
        self.made: Pickers = NOBODY
        self.is_dirty = False
        """Whether what is made is older than what is known."""
        self._made_ms = _NEVER
        self._held_ms: int | None = None
        """Until when what has moved may wait for more of it; None: it may not."""
        self._building = threading.Lock()

    @property
    def is_large(self) -> bool:
        """Whether it takes longer than a caller or a loop should be held up."""
        roll = self._judged.roll
        if len(roll) > self._here_most:
            return True
        policy = self._settings.policy
        if policy.name != _RING or policy.ring_most <= _POINTS_HERE_MOST:
            return False
        # Those that cannot be balanced, of weight 0 for example, are left out.
        weights = [row.member.weight for row in roll if row.member.weight > 0]
        return max(policy.ring_least, sum(weights) // min(weights, default=1)) > _POINTS_HERE_MOST

    @property
    def is_current(self) -> bool:
        """Whether all that is known is in the pickers."""
        return not self.is_dirty and not self._building.locked()

    @property
    def _is_held(self) -> bool:
        return self._held_ms is not None

    def forked(self) -> None:
        """In a forked child, where nobody is making one."""
        self._building = threading.Lock()

    def want(self, now_ms: int, *, may_wait: bool) -> bool:
        """What is known has moved; whether a picker is to be made now. Where it may, it waits out the window that the last one began."""
        is_held = may_wait and now_ms < self._made_ms + self._window_ms
        if not self.is_dirty or not is_held:
            self._held_ms = self._made_ms + self._window_ms if is_held else None
        self.is_dirty = True
        return not is_held

    def due_ms(self, now_ms: int) -> int | None:
        """When one is to be made, perhaps now; None: what is made is what is known."""
        if not self.is_dirty:
            return None
        return now_ms if self._held_ms is None else self._held_ms

    def run(
        self, lock: threading.Lock, rng: Random, clock: Callable[[], int], shed: Callable[[], None], serve: Callable[[], None]
    ) -> None:  # fmt: skip
        """Pickers of the endpoints as they stand, served under the lock. Whoever finds another at it leaves it to that one."""
        for _ in range(_IN_A_ROW):
            if not self.is_dirty or not self._building.acquire(blocking=False):
                return
            try:
                self.is_dirty, self._held_ms = False, None
                self._make(lock, rng, clock(), shed, serve)
            finally:
                self._building.release()
            if self._is_held:
                return  # what moved meanwhile waits for more of it

    def _make(
        self, lock: threading.Lock, rng: Random, now_ms: int, shed: Callable[[], None], serve: Callable[[], None]
    ) -> None:  # fmt: skip
        judged, settings = self._judged, self._settings
        with lock:
            seats, membership, memory = judged.seats(now_ms), self.membership, judged.memory
            self._made_ms = now_ms
        policy, chance = policy_of(settings, membership), Random(rng.random())
        found = make(settings, seats, policy, memory, chance, now_ms=now_ms, drops=membership.drops, shed=shed)
        with lock:
            judged.served(seats, due_ms(seats, policy.slow_start, now_ms))
            self.made = found.pickers
            serve()
        self._notes.left_out(found.problems)
