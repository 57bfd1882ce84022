"""How much a cluster may have under way at once: Envoy's circuit breakers, for calls of usual and of high priority.

Nothing queues here: a call that would exceed a threshold is refused at once. As in Envoy over HTTP/1, a call holds a connection or waits for
one, so that `max_connections` and `max_pending_requests` together bound calls as `max_requests` does.
"""

from __future__ import annotations

import threading
from typing import Final

from reachline.doors.envoy.values import Thresholds
from reachline.errors import Overflow
from reachline.upstream.attempt import HIGH, RETRY

__all__ = ["Circuit"]


class _Level:
    """One priority's calls. Written under the lock of its circuit."""

    __slots__ = ("calls", "held_most", "limits", "most", "overflow", "queue_overflow", "retries", "retry_overflow")

    def __init__(self, limits: Thresholds) -> None:
        self.limits: Final = limits
        self.held_most: Final = limits.max_connections + limits.max_pending_requests
        self.most: Final = min(limits.max_requests, self.held_most)
        self.calls = self.retries = self.overflow = self.queue_overflow = self.retry_overflow = 0

    @property
    def retries_most(self) -> int:
        """Retries that may be under way beside the calls of now."""
        budget = self.limits.budget
        return self.limits.max_retries if budget is None else max(budget.least, int(self.calls * budget.share))


class Circuit:
    """Of one cluster in one process. `_lock` guards all of it."""

    __slots__ = ("_levels", "_lock", "_name")

    def __init__(self, name: str, usual: Thresholds, high: Thresholds) -> None:
        self._name: Final = name
        self._lock: Final = threading.Lock()
        self._levels: Final = (_Level(usual), _Level(high))

    def enter(self, mark: int) -> None:
        """A call begins, and is to `leave` with the same mark; Overflow where it must not. A retry has its place by `may_retry` or `hold`."""
        level = self._levels[mark & HIGH]
        with self._lock:
            is_full = level.calls >= level.most
            if is_full and level.calls >= level.held_most:
                level.queue_overflow += 1
            elif is_full:
                level.overflow += 1
            else:
                level.calls += 1
            level.retries -= is_full and mark >= RETRY
        if is_full:
            raise Overflow(self._name, level.most)

    def leave(self, mark: int) -> None:
        """That call has ended."""
        level = self._levels[mark & HIGH]
        with self._lock:
            level.calls -= 1
            level.retries -= mark >= RETRY

    def may_retry(self, mark: int) -> bool:
        """Whether one more retry may be under way now; counted where not. As in Envoy it has its place from here on, while it waits too:
        until it leaves, or is given up.
        """
        level = self._levels[mark & HIGH]
        with self._lock:
            is_free = level.retries < level.retries_most and level.calls < level.most
            level.retries += is_free
            level.retry_overflow += not is_free
        return is_free

    def hold(self, mark: int) -> None:
        """A retry that was let pass is made in another way: it has its place again."""
        level = self._levels[mark & HIGH]
        with self._lock:
            level.retries += 1

    def give_up(self, mark: int) -> None:
        """A retry that was let pass is not made."""
        level = self._levels[mark & HIGH]
        with self._lock:
            level.retries -= 1

    def counts(self) -> dict[str, int]:
        """By Envoy's names; the gauges are 1 while nothing more may begin."""
        with self._lock:
            found = {
                "upstream_rq_active_overflow": sum(each.overflow for each in self._levels),
                "upstream_rq_pending_overflow": sum(each.queue_overflow for each in self._levels),
                "upstream_rq_retry_overflow": sum(each.retry_overflow for each in self._levels),
            }
            for name, each in zip(("default", "high"), self._levels, strict=True):
                found[f"circuit_breakers.{name}.rq_open"] = each.calls >= each.most
                found[f"circuit_breakers.{name}.rq_retry_open"] = each.retries >= each.retries_most
        return {name: int(count) for name, count in found.items()}
