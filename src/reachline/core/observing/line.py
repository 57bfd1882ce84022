"""One outbound as the careful observer knows it: its ring, its verdict, and when something last was heard of it."""

from __future__ import annotations

from typing import Final

from reachline.core.observing.attempt import aim_of
from reachline.core.observing.ring import Results
from reachline.core.observing.rules import Care, ObserverRules
from reachline.core.observing.values import DEAD_MS, MS, SECOND, Status, Told
from reachline.core.observing.verdict import Verdict

__all__ = ["Line"]

_DEPTH: Final = 4
"""Slots for each scheduled request of a window: re-checks come in crowds and must not push out what a lucky run would hide."""
_MANY: Final = 10
"""One failure of so many may be chance."""
_SLACK: Final = 4
"""A quick request may take this many averages: a connection that lost a packet takes three."""


class Line:
    """Written by its observer."""

    __slots__ = (
        "_care",
        "_last",
        "_reason",
        "_results",
        "_rules",
        "_seen",
        "_shown",
        "_tried",
        "aim",
        "is_gone",
        "is_new",
        "recheck_at",
        "tag",
        "verdict",
    )

    def __init__(self, tag: str, rules: ObserverRules, care: Care) -> None:
        self.tag: Final = tag
        self._rules: Final = rules
        self._care: Final = care
        self.aim: Final = aim_of(tag, rules, care)
        self.verdict: Final = Verdict(care)
        self._results: Final = Results(_DEPTH * rules.sampling, 2 * rules.window)
        self._seen = self._tried = 0
        self._last = 0
        """RTT of the newest pass."""
        self._reason = ""
        self._shown: Status | None = None
        """The status as told last, while nothing but its figures can have changed."""
        self.is_gone = False
        self.is_new = True
        """Not asked yet."""
        self.recheck_at: int | None = None
        """The one re-check that is still wanted."""

    @property
    def cost(self) -> int:
        """Requests of one look."""
        return len(self.aim.targets)

    def patience(self) -> int:
        """How long a quick request may take."""
        return min(self._rules.timeout, max(self._care.patience, _SLACK * self._last))

    def is_shaky(self, now: int) -> bool:
        """Alive, and to be watched: it failed just now, or more than one of ten results that still count."""
        if self.verdict.is_shaky:
            return True
        ping = self._results.ping(now)
        return self.verdict.alive is True and not self.verdict.in_doubt and _MANY * ping.fail > ping.all

    def heard(self, rtt: int | None, reason: str, now: int) -> Told:
        """A look ended; None: it failed."""
        passed = rtt is not None
        self._results.put(now, rtt)
        self._tried = now // SECOND
        if rtt is not None:
            self._seen, self._last = self._tried, rtt
        self._reason = "" if passed else reason
        changed = self.verdict.heard(passed)
        return self._told(changed)

    def called(self, passed: bool, now: int) -> Told:
        """A connection of somebody's."""
        if passed:
            self._seen = now // SECOND
        return self._told(self.verdict.called(passed))

    def _told(self, changed: bool) -> Told:
        self._shown = None
        alive = self.verdict.alive is True
        return Told(self.tag, alive, changed, self._last // MS if alive else DEAD_MS, self._reason)

    def status(self, now: int) -> Status | None:
        """As told; None while nothing is settled."""
        alive = self.verdict.alive
        if alive is None:
            return None
        ping, shown = self._results.ping(now), self._shown
        if shown is not None and shown.ping is ping:
            return shown
        delay = DEAD_MS if not alive else (ping.average if self._rules.is_burst else self._last) // MS
        self._shown = Status(self.tag, alive, delay, self._reason, self._seen, self._tried, ping)
        return self._shown
