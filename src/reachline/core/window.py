"""The newest attempts on one line by one probe kind, and the figures they give. Attempts, not answers: what was never
answered is in it, as slower than anything we waited for, so a failing line cannot look fast.

Knows no clock, no limits and no verdict. Written by the one process that probes; readers get a `Reading`.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

from reachline.core import ewma, histogram
from reachline.core.codes import ANSWERED, OK, bad_among, classes_of, code_of, counts_of
from reachline.core.figures import Figures, nearest_rank, whole
from reachline.core.ring import BLURRED, Columns, Ring
from reachline.core.rounds import Rounds
from reachline.model import Clock, Failure, Kind, Reading, Seconds

__all__ = ["MAX_AGE", "MINIMUM", "NEWEST", "SLOW", "Columns", "Figures", "Window", "max_age", "nearest_rank"]

NEWEST: Final = 200
"""Attempts a window holds."""
MAX_AGE: Final[Seconds] = 120.0
"""What is older says nothing of now: after a repair the bad attempts are gone in two minutes."""
MINIMUM: Final = 5
"""The smallest number of attempts any limit asks for (EWMA, 5xx)."""
SLOW: Final = 2
"""Slow answers since the last report that are worth a thought: one of them may be chance."""
_RECENT: Final = 5
_ROUNDS, _FOUND, _OK = map(Reading._fields.index, ("rounds", "recent", "fresh_ok"))
_FRESH: Final = len(Reading._fields) - Reading._fields.index("fresh_marred")
"""What else is counted anew in each reading."""
_new: Final = tuple.__new__
"""What a named tuple's own constructor calls, without the call."""
_AGENT: Final = Failure.AGENT
"""Looking a member up by its class takes as long as half of all else that a sample costs."""


def max_age(every: Seconds, wanted: Seconds = MAX_AGE) -> Seconds:
    """How old an attempt may get: as `wanted`, or longer where the interval is so long that the window never holds the minimum.

    A 30 s HTTP probe has four attempts in 120 s and would never reach the five that its limits ask for; it gets 180 s.
    """
    return max(wanted, (MINIMUM + 1) * every)


_ALL_ROUNDS: Final = 3
"""What the connect limit looks back on: 0 of them is dead, all of them alive."""


class Window:
    """The newest `size` attempts of one line and kind, none older than `age`. One writer; times are the caller's clock."""

    __slots__ = (
        "_dead",
        "_ring",
        "agent_faults",
        "alpha",
        "clock",
        "crawl_us",
        "fresh_crawl",
        "fresh_failed",
        "fresh_marred",
        "fresh_ok",
        "fresh_slow",
        "is_out",
        "kind",
        "last_us",
        "mean",
        "rounds",
        "slow_us",
    )

    def __init__(
        self, columns: Columns, kind: Kind, *, size: int = NEWEST, age: Seconds = MAX_AGE, alpha: float = 0.3
    ) -> None:
        self.kind, self.alpha = kind, alpha
        self._ring = Ring(columns, size=size, age=age)
        self.rounds = Rounds()
        self.mean: float | None = None
        """EWMA of ok RTTs, microseconds; None before the first."""
        self.last_us: int | None = None
        self.clock = Clock.APP
        self.slow_us = self.crawl_us = 0
        """The line's degraded and failed RTT limits, microseconds; 0: none is known, and nothing counts as above it."""
        self.settle()
        self.is_out = False
        """The line gets no traffic: once it answers again its window begins anew."""
        self._dead = False
        """No round of the newest three got through, and not all three have since."""
        self.agent_faults = 0
        """Attempts that our own fault kept from being one."""

    @property
    def shape(self) -> tuple[int, Seconds]:
        """Attempts it can hold, and their greatest age."""
        return self._ring.size, self._ring.age

    @property
    def is_telling(self) -> bool:
        """Whether it holds what a center that adds up wants to know at once: a failure, a lost packet, or slow answers."""
        is_asked = self.slow_us > 0 and not self.is_out
        return is_asked and bool(self.fresh_failed or self.fresh_marred or self.fresh_slow >= SLOW)

    def record(
        self,
        now: Seconds,
        failure: Failure | None,
        rtt_us: int | None,
        *,
        clock: Clock = Clock.APP,
        late: bool = False,
        sent: int = 0,
        lost: int = 0,
        status: int = 0,
        number: int = 0,
        burst: int = 1,
    ) -> None:
        """One attempt of round `number` ended at `now`. `late` outranks `failure`; AGENT is counted apart and not kept."""
        if failure is _AGENT:
            self.agent_faults += 1
            self.rounds.ended(number, burst, None)
            return
        ok = failure is None and not late
        self.rounds.ended(number, burst, ok)
        if rtt_us is not None:
            self.last_us, self.clock = rtt_us, clock
            if ok:
                self.mean = ewma.after(self.mean, rtt_us, self.alpha)
        rtt = rtt_us if rtt_us is not None else BLURRED if failure in ANSWERED else math.inf
        plain = ok and not status
        self._ring.append(now, rtt, OK if plain else code_of(failure, late=late, status=status), sent, lost)
        if ok:
            self.fresh_ok += 1
            if lost:
                self.fresh_marred += 1
            if rtt_us is not None and rtt_us > self.slow_us > 0:
                self.fresh_slow += 1
            if rtt_us is not None and rtt_us > self.crawl_us > 0:
                self.fresh_crawl += 1
        else:
            self.fresh_failed += 1
        if not ok or self._dead:
            self._watch_death(burst)

    def _watch_death(self, burst: int) -> None:
        """A line that was taken out dead and is back begins anew: a window across both describes neither.

        Without this a repaired line reads as failing for a whole window, while only its trial tells what it is worth. Only
        while it is out: a line in traffic that flaps must not shed its failures with every three good rounds.
        """
        if self.rounds.known < _ALL_ROUNDS:
            return
        if self.rounds.ok == 0:
            self._dead = True
        elif self._dead and self.is_out and self.rounds.ok == _ALL_ROUNDS:
            self._dead = False
            self._ring.keep(_ALL_ROUNDS * burst)

    def summary(self, now: Seconds, *, void: bool = False) -> tuple[Reading, Figures]:
        """The window as of `now`, for the judge and for people; what is too old leaves it first."""
        self._ring.age_out(now)
        codes, rtts = self._ring.codes(), self._ring.rtts()
        reading, p95_answered = self._read(now, codes, rtts, void=void)
        figures = Figures(
            p95_us=whole(p95_answered),
            last_us=self.last_us,
            clock=self.clock,
            codes=classes_of(codes),
            handshake_lost=self._ring.lost_unseen() if reading.lost else 0,
            histogram=self._fresh_histogram(rtts),
        )
        return reading, figures

    def reading(self, now: Seconds, last: Reading | None = None) -> Reading:
        """The window as of `now`, for the judge alone.

        `last` is what this gave right before the newest `settle`, from a caller that kept it: where no attempt has come or gone
        since, nothing is worked out again.
        """
        ring = self._ring
        ring.age_out(now)
        if last is None or self.fresh_ok or self.fresh_failed or sum(last.counts) != ring.count:
            return self._read(now, ring.codes(), ring.rtts(), void=False)[0]
        rounds = self.rounds.known, self.rounds.ok
        none, covered_ms = (0,) * _FRESH, round(1_000 * ring.span(now))
        return _new(Reading, (*last[:_ROUNDS], *rounds, *last[_FOUND:_OK], 0, 0, covered_ms, False, 2, *none))

    def _read(
        self, now: Seconds, codes: bytearray, rtts: Sequence[float], *, void: bool
    ) -> tuple[Reading, float | None]:
        """The reading, and the P95 of answered attempts."""
        ordered = sorted(rtts)
        # Those without a usable RTT sort first and are left out, the unanswered last.
        ordered = ordered[bisect_right(ordered, BLURRED) :]
        answered = ordered[: bisect_left(ordered, math.inf)]
        p50, p95_answered = nearest_rank(answered, 0.5), nearest_rank(answered, 0.95)
        (sent, lost), newest = self._ring.sent_lost(), codes[-_RECENT:]
        reading = Reading(
            kind=self.kind,
            counts=counts_of(codes),
            sent=sent,
            lost=lost,
            rounds=self.rounds.known,
            rounds_ok=self.rounds.ok,
            recent=len(newest),
            recent_bad=bad_among(newest),
            answered=len(answered),
            ewma_us=whole(self.mean),
            p50_us=whole(p50),
            p95_us=whole(nearest_rank(ordered, 0.95)),
            jitter_us=None if p50 is None or p95_answered is None else whole(p95_answered - p50),
            fresh_ok=self.fresh_ok,
            fresh_failed=self.fresh_failed,
            covered_ms=round(1_000 * self._ring.span(now)),
            void=void,
            fresh_marred=self.fresh_marred,
            fresh_slow=self.fresh_slow,
            fresh_crawl=self.fresh_crawl,
        )
        return reading, p95_answered

    def settle(self) -> None:
        """The reading is on its way: what ends from now on is fresh."""
        self.fresh_ok = self.fresh_failed = self.fresh_marred = self.fresh_slow = self.fresh_crawl = 0

    def revoke(self, since: Seconds) -> None:
        """Take back the attempts that ended after `since`: it turned out that our own end was broken.

        The rounds are forgotten with them; the EWMA stays, as failed attempts never entered it.
        """
        self._ring.drop_since(since)
        self.rounds.forget()
        self.settle()

    def close(self) -> None:
        """The room goes back; the window is not used again."""
        self._ring.close()

    def _fresh_histogram(self, rtts: Sequence[float]) -> bytes:
        fresh = self.fresh_ok + self.fresh_failed
        values = [rtt for rtt in rtts[-fresh:] if abs(rtt) < math.inf] if fresh else []
        return histogram.encode(histogram.of(values)) if values else b""
