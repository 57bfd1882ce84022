"""Connections by line, as each library keeps them: one pool a line, and a new one after the line was open.

A connection that was made before a line failed may be dead without knowing; one that is made while it returns is known to work.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from reachline.model import LineId
from reachline.upstream.listing import Pick

__all__ = ["Lease", "Pools"]

P = TypeVar("P")


class Lease(Generic[P]):
    """One line's pool while calls use it. `users` and `is_retired` are guarded by the lock of `Pools`."""

    __slots__ = ("is_retired", "openings", "pool", "users")

    def __init__(self, pool: P, openings: int) -> None:
        self.pool: Final = pool
        self.openings: Final = openings
        self.users = 0
        self.is_retired = False


class Pools(Generic[P]):
    """`_lock` guards all of it. Who borrows gives back, and closes what that hands out: closing may have to be awaited."""

    def __init__(self, make: Callable[[Pick], P]) -> None:
        self._make: Final = make
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._leases: dict[LineId, Lease[P]] = {}

    def borrow(self, pick: Pick) -> tuple[Lease[P], P | None]:
        """The line's pool, made at its first use; and one to be closed now, of before the line was open."""
        if self._pid != os.getpid():
            # A forked child: connections are its parent's, and the lock may be held by a thread that is not here.
            _LEFT_BEHIND.append(self._leases)
            self._pid, self._lock, self._leases = os.getpid(), threading.Lock(), {}
        openings = pick.care.openings if pick.care else 0
        with self._lock:
            lease, closing = self._leases.get(pick.line), None
            if lease is not None and lease.openings != openings:
                lease.is_retired = True
                closing = None if lease.users else lease.pool
                lease = None
            if lease is None:
                lease = self._leases[pick.line] = Lease(self._make(pick), openings)
            lease.users += 1
        return lease, closing

    def give_back(self, lease: Lease[P]) -> P | None:
        """A call has ended; the pool to be closed now, if it was the last of a pool that is not used any more."""
        with self._lock:
            lease.users -= 1
            return lease.pool if lease.is_retired and not lease.users else None

    def take_all(self) -> tuple[P, ...]:
        """All pools, to be closed; the next use makes new ones."""
        with self._lock:
            taken, self._leases = self._leases, {}
        return tuple(each.pool for each in taken.values())


_LEFT_BEHIND: Final[list[object]] = []
"""Pools of before a fork. Kept, for dropping one could end connections that the parent still uses."""
