"""One cluster as requests see it: who is picked, which connections lead there, and how much may be under way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final

from reachline.doors.envoy.chain import Upstream
from reachline.doors.envoy.values import Cluster, Thresholds
from reachline.model import Seconds
from reachline.proxy.grpc import went_wrong
from reachline.proxy.message import Answer, first
from reachline.proxy.pool import Pool, Securing
from reachline.upstream.kept import KeptCluster
from reachline.upstream.listing import Pick
from reachline.upstream.outcome import Column

__all__ = ["Backend"]

_FAILS_CHECKS: Final = b"x-envoy-immediate-health-check-fail"


class Backend:
    """Written by exchanges, in one thread."""

    __slots__ = (
        "_active",
        "_retries",
        "_thresholds",
        "cluster",
        "codes",
        "counts",
        "endpoints",
        "kept",
        "name",
        "pool",
        "secure",
        "tunnels",
        "upstream",
    )

    def __init__(
        self,
        cluster: Cluster,
        upstream: Upstream,
        kept: KeptCluster,
        pool: Pool,
        counts: Counter[str],
        *,
        secure: Securing | None = None,
    ) -> None:
        self.name: Final = cluster.name
        self.cluster: Final = cluster
        self.upstream: Final = upstream
        self.kept: Final = kept
        self.pool: Final = pool
        self.counts: Final = counts
        self.codes: Final[Counter[int]] = Counter()
        """Answers by status."""
        self.endpoints: Final[dict[str, Counter[str]]] = {}
        """Tries by endpoint (`address:port`) and by how they ended."""
        self.secure: Final = secure
        """TLS of connections that are no request's."""
        self.tunnels = 0
        """Connections that are passed on whole."""
        self._thresholds: Final = (cluster.thresholds, cluster.high_thresholds)
        self._active = [0, 0]
        """Requests under way, of usual and of high priority."""
        self._retries = [0, 0]

    @property
    def active(self) -> int:
        """Requests under way."""
        return sum(self._active)

    def admit(self, *, high: bool) -> bool:
        """Whether one more request may begin; if so it has, and `leave` ends it."""
        if self._active[high] >= self._thresholds[high].max_requests:
            self.counts["upstream_rq_pending_overflow"] += 1
            return False
        self._active[high] += 1
        return True

    def ended(
        self,
        pick: Pick,
        column: Column,
        took: Seconds,
        code: int | None = None,
        answer: Answer | None = None,
    ) -> None:
        """A try at an endpoint is over; `code` is how it is judged where it came to an answer."""
        counts = self.endpoints.get(pick.target)
        if counts is None:
            counts = self.endpoints[pick.target] = Counter()
        word = _WORDS[column]
        if answer is not None and answer.trailers and went_wrong(answer.trailers):
            word = _WORDS[Column.ERRORS]
        if word:
            counts[word] += 1
        self.kept.finish(pick, column, took, code)
        if code is not None and answer is not None:
            self.codes[answer.status] += 1
            if first(answer.headers, _FAILS_CHECKS) is not None:
                self.kept.failed_by_call(pick)

    def forget(self, keys: Collection[str]) -> None:
        """Figures of endpoints that are not among `keys` any more."""
        for key in [each for each in self.endpoints if each not in keys]:
            del self.endpoints[key]

    def leave(self, *, high: bool) -> None:
        """A request that `admit` let in is over."""
        self._active[high] -= 1

    def admit_retry(self, *, high: bool) -> bool:
        """Whether one more retry may be under way; if so it is, and `leave_retry` ends it."""
        if self._retries[high] >= _most_retries(self._thresholds[high], self._active[high] + self.pool.pending):
            self.counts["upstream_rq_retry_overflow"] += 1
            return False
        self._retries[high] += 1
        self.counts["upstream_rq_retry"] += 1
        return True

    def leave_retry(self, *, high: bool) -> None:
        """That retry is over."""
        self._retries[high] -= 1


_WORDS: Final = ("rq_success", "cx_connect_fail", "rq_timeout", "rq_error", "")
"""By `Column`, in its order."""


def _most_retries(thresholds: Thresholds, active: int) -> int:
    budget = thresholds.budget
    return thresholds.max_retries if budget is None else max(budget.least, int(budget.share * active))
