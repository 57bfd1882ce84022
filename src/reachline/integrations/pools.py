"""Connections by line, as each library keeps them: one pool a line, and a new one after the line was open.

A connection that was made before a line failed may be dead without knowing; one that is made while it returns is known to work.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from time import monotonic
from typing import Any, Final, Generic, TypeVar

from reachline.model import LineId, Seconds
from reachline.net.forks import FORKS
from reachline.upstream.listing import Pick

__all__ = ["Lease", "Pools"]

P = TypeVar("P")

_IDLE: Final[Seconds] = 300.0
"""A pool that no call used for so long is closed when another line gets its first: endpoints come and go, their addresses with them."""


class Lease(Generic[P]):
    """One line's pool while calls use it. All that changes is guarded by the lock of `Pools`."""

    __slots__ = ("forks", "is_retired", "openings", "pool", "used", "users")

    def __init__(self, pool: P, openings: int, forks: int) -> None:
        self.pool: Final = pool
        self.openings: Final = openings
        self.forks: Final = forks
        """After how many forks it was made: whose it is."""
        self.users = 0
        self.is_retired = False
        self.used: Seconds = 0.0
        """When a call last began on it."""


class Pools(Generic[P]):
    """`_lock` guards all of it. Who borrows gives back, and closes what that hands out: closing may have to be awaited."""

    def __init__(self, make: Callable[[Pick], P], *, clock: Callable[[], Seconds] = monotonic) -> None:
        self._make, self._clock = make, clock
        self._lock = threading.Lock()
        self._leases: dict[LineId, Lease[P]] = {}
        self._forks = 0
        _ALL.add(self)

    def borrow(self, pick: Pick) -> tuple[Lease[P], P | None]:
        """The line's pool, made at its first use; and one to be closed now, of before the line was open, or of one long unused."""
        openings = pick.care.openings if pick.care else 0
        with self._lock:
            lease, closing = self._leases.get(pick.line), None
            if lease is not None and lease.openings != openings:
                lease.is_retired = True
                closing = None if lease.users else lease.pool
                lease = None
            if lease is None:
                made = Lease(self._make(pick), openings, self._forks)
                closing = self._unused() if closing is None else closing
                lease = self._leases[pick.line] = made
            lease.users += 1
            lease.used = self._clock()
        return lease, closing

    def give_back(self, lease: Lease[P]) -> P | None:
        """A call has ended; the pool to be closed now, if it was the last of a pool that is not used any more."""
        if lease.forks != self._forks:
            # Of a call that this process was forked in.
            _LEFT_BEHIND.append(lease)
            return None
        with self._lock:
            lease.users -= 1
            return lease.pool if lease.is_retired and not lease.users else None

    def take_all(self) -> tuple[P, ...]:
        """All pools, to be closed; the next use makes new ones."""
        with self._lock:
            taken, self._leases = self._leases, {}
        return tuple(each.pool for each in taken.values())

    def forked(self) -> None:
        """In a forked child: connections are its parent's, and the lock may be held by a thread that is not here."""
        _LEFT_BEHIND.append(self._leases)
        self._lock, self._leases = threading.Lock(), {}
        self._forks += 1

    def _unused(self) -> P | None:
        """The pool that was used least lately, if that is long ago, and its line's no more; one for each that is made is enough."""
        since = self._clock() - _IDLE
        idle = [(each.used, line) for line, each in self._leases.items() if not each.users and each.used <= since]
        return self._leases.pop(min(idle)[1]).pool if idle else None


_LEFT_BEHIND: Final[list[object]] = []
"""Pools of before a fork. Kept, for dropping one could end connections that the parent still uses."""
_ALL: Final[weakref.WeakSet[Pools[Any]]] = weakref.WeakSet()
"""Those that live in this process: a fork concerns each of them."""


def _after_fork() -> None:
    for each in list(_ALL):
        each.forked()


FORKS.add(_after_fork)
