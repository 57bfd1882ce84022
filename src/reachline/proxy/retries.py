"""What one request with a retry policy carries along: its body for another try, where it was tried, and how often it may be."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from reachline.doors.envoy.routes import RetryPolicy
from reachline.model import Seconds
from reachline.proxy import retrying
from reachline.proxy.backend import Backend
from reachline.proxy.flags import Lost
from reachline.proxy.message import Answer
from reachline.upstream.listing import Pick

__all__ = ["Retries"]


class Retries:
    """Of one exchange, which alone writes it."""

    __slots__ = ("_backend", "_high", "_holds", "_limit", "body", "count", "is_over_limit", "policy", "tried")

    def __init__(self, policy: RetryPolicy, backend: Backend, *, high: bool, limit: int) -> None:
        """`limit`: bytes of a body that are kept at most; a larger one is sent once."""
        self.policy: Final = policy
        self.body: list[bytes] | None = []
        """What of it was sent; None: too much to be sent again."""
        self.tried: tuple[Pick, ...] = ()
        self.count = 0
        self.is_over_limit = False
        """Whether the last try would have been made again, had there been one left."""
        self._backend: Final = backend
        self._high: Final = high
        self._limit: Final = limit
        self._holds = False
        """Whether a retry of ours counts in the budget now."""

    def keep(self, chunks: list[bytes], size: int) -> None:
        """Chunks that are sent now, of a body that has `size` bytes so far."""
        if self.body is None:
            return
        if size > self._limit:
            self.body = None
            self._backend.counts["retry_or_shadow_abandoned"] += 1
        else:
            self.body += chunks

    def want_after(self, answer: Answer, matches: Callable[[Answer], bool]) -> bool:
        """Whether an answer is thrown away for another try, for which there is room."""
        return retrying.after_answer(self.policy, answer, matches) and self._may()

    def want_without(self, lost: Lost, *, is_sent: bool) -> bool:
        """Whether a try that came to no answer is made again, and there is room for it."""
        return retrying.after_loss(self.policy, lost, is_sent=is_sent) and self._may()

    def next(self, pick: Pick | None, rng: Random) -> Seconds:
        """Another try begins; how long to wait before it."""
        self.count += 1
        if pick is not None:
            self.tried += (pick,)
        return retrying.wait_before(self.policy, self.count, rng)

    def end(self) -> None:
        """The request is over."""
        if self._holds:
            self._holds = False
            self._backend.leave_retry(high=self._high)

    def _may(self) -> bool:
        if self.body is None:
            return False
        if self.count >= self.policy.retries:
            if self.policy.retries:
                self._backend.counts["upstream_rq_retry_limit_exceeded"] += 1
            self.is_over_limit = bool(self.policy.retries)
            return False
        self.end()
        if not self._backend.admit_retry(high=self._high):
            return False
        self._holds = True
        return True
