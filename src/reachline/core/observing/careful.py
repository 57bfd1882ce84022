"""The observer that is the default, for both of Xray's blocks: each outbound on a schedule of its own, a failure looked into at once.

Each is asked once at the start and then once an interval, a tenth sooner or later by chance. What the outbounds' number cannot
change: how often each is asked. What bounds it: requests in flight, and a budget for those beside the schedule.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from itertools import count
from random import Random
from typing import Final

from reachline.core.observing.attempt import Attempt
from reachline.core.observing.budget import Budget
from reachline.core.observing.line import Line
from reachline.core.observing.rules import Care, ObserverRules
from reachline.core.observing.selecting import selected
from reachline.core.observing.values import Ask, Purpose, Result, Status, Told

__all__ = ["Careful"]

_SHORTEST: Final = 1_000_000_000
"""Between two scheduled requests by one outbound: below that it is a load test."""
_JITTER: Final = 10
"""One part in so many of the interval, to both sides: a beat that nobody can recognise, and no two observers in step."""


class Careful:
    """Written by its driver."""

    def __init__(self, rules: ObserverRules, care: Care, rng: Random) -> None:
        self._interval: Final = max(rules.interval, _SHORTEST)
        self._rules: Final = rules._replace(interval=self._interval)
        self._care: Final = care
        self._rng: Final = rng
        self._lines: dict[str, Line] = {}
        self._schedule: list[tuple[int, int, Line]] = []
        self._doubts: list[tuple[int, int, Line]] = []
        self._watched: list[tuple[int, int, Line]] = []
        """Re-checks of those in doubt, who go first, and of the dead and the shaky."""
        self._queue: deque[Line] = deque()
        """Scheduled requests that wait for one in flight to end."""
        self._flying = 0
        self._budget: Final = Budget(care.budget, care.reserve)
        self._asked: dict[int, tuple[Line, Attempt] | None] = {}
        """None: the connectivity URL. The line itself: an outbound that came back under its tag may be another."""
        self._held: list[tuple[Line, str, bool]] = []
        """Failures that wait for the connectivity URL: whose, why, and whether a call was."""
        self._checks_network = False
        self._serials = count(1)
        self._edition = 0
        self._puts: deque[int] = deque()
        self._order: list[Line] | None = None
        """By tag, while nobody comes or goes."""

    def outbounds(self, tags: Iterable[str], now: int) -> None:
        """Those that are gone are forgotten at once, those that are new are asked at once."""
        chosen = selected(tags, self._rules.selectors)
        self._order = None
        for tag in self._lines.keys() - set(chosen):
            self._lines.pop(tag).is_gone = True
            self._edition += 1
        for tag in chosen:
            if tag not in self._lines:
                self._lines[tag] = line = Line(tag, self._rules, self._care)
                self._push(self._schedule, now, line)

    def check(self, now: int) -> None:
        """Ask every outbound now, as far as the budget lets it."""
        for line in self._lines.values():
            self._recheck(line, now)

    def deadline(self) -> int | None:
        """The next request's moment, as far as budget and concurrency let it."""
        if self._queue and self._flying < self._care.concurrency:
            return 0
        moments = [heap[0][0] for heap in (self._schedule,) if heap]
        moments += [
            max(heap[0][0], self._budget.ready(heap[0][2].cost)) for heap in (self._doubts, self._watched) if heap
        ]
        if self._held and not self._checks_network:
            return 0
        return min(moments, default=None)

    def due(self, now: int) -> tuple[Ask, ...]:
        """Scheduled requests by turn, then what is looked into, doubts first."""
        asks: list[Ask] = []
        if self._held and not self._checks_network:
            asks.append(self._network())
        while self._schedule and self._schedule[0][0] <= now:
            line = heapq.heappop(self._schedule)[2]
            if not line.is_gone:
                self._queue.append(line)
                self._push(self._schedule, now + self._wait(line), line)
        while self._queue and self._flying < self._care.concurrency:
            line = self._queue.popleft()
            if not line.is_gone:
                self._flying += line.cost
                asks += self._ask(line, Purpose.PROBE)
        for heap in (self._doubts, self._watched):
            self._look(heap, now, asks)
        return tuple(asks)

    def ended(self, serial: int, result: Result, now: int) -> tuple[Told, ...]:
        """A failure counts at once, or once the connectivity URL answered: one request for all that wait."""
        if serial not in self._asked:
            return ()
        asked = self._asked.pop(serial)
        if asked is None:
            return self._network_told(result.ok, now)
        line, attempt = asked
        self._flying -= attempt.purpose is Purpose.PROBE
        if result.ours:
            attempt.is_decided = True
            return ()
        if not attempt.ended(result) or line.is_gone:
            return ()
        if not attempt.passed and self._rules.connectivity:
            self._held.append((line, attempt.reason, False))
            return ()
        return (self._heard(line, attempt.rtt if attempt.passed else None, attempt.reason, now),)

    def called(self, tag: str, passed: bool, now: int) -> tuple[Told, ...]:
        """A failure opens a doubt and kills nobody: quick requests decide. A pass is evidence as good as theirs."""
        line = self._lines.get(tag)
        if line is None:
            return ()
        if not passed and self._rules.connectivity:
            if not any(held is line for held, _, _ in self._held):
                self._held.append((line, "a connection failed", True))
            return ()
        return self._called(line, passed, now)

    def statuses(self, now: int) -> tuple[Status, ...]:
        """By tag; one that is not settled yet is not told."""
        if self._order is None:
            self._order = sorted(self._lines.values(), key=lambda line: line.tag.encode())
        return tuple(status for line in self._order if (status := line.status(now)) is not None)

    def edition(self, now: int) -> int:
        """One more with each result, each removal, and once a result may have become too old."""
        limit = now - 2 * self._rules.window
        while self._puts and self._puts[0] < limit:
            self._puts.popleft()
            self._edition += 1
        return self._edition

    def _push(self, heap: list[tuple[int, int, Line]], at: int, line: Line) -> None:
        heapq.heappush(heap, (at, next(self._serials), line))

    def _wait(self, line: Line) -> int:
        """Until the next scheduled request: after the first one a random part of the interval, so that they spread."""
        if line.is_new:
            line.is_new = False
            return 1 + self._rng.randrange(self._interval)
        off = self._interval // _JITTER
        return self._interval - off + self._rng.randrange(2 * off + 1)

    def _look(self, heap: list[tuple[int, int, Line]], now: int, asks: list[Ask]) -> None:
        """Re-checks that are due; what became of them meanwhile decides whether they are still wanted."""
        while heap and heap[0][0] <= now:
            at, _, line = heap[0]
            if line.is_gone or at != line.recheck_at:
                heapq.heappop(heap)
            elif self._budget.ready(line.cost) <= now:
                heapq.heappop(heap)
                line.recheck_at = None
                self._budget.take(line.cost, now)
                asks += self._ask(line, Purpose.RECHECK)
                self._plan(line, now + self._care.spacing, now)
            else:
                return

    def _plan(self, line: Line, soonest: int, now: int) -> None:
        """The next re-check of an outbound: in doubt while there are some left, of the dead for good."""
        verdict = line.verdict
        if verdict.in_doubt and verdict.left:
            verdict.left -= 1
            self._recheck(line, soonest)
        elif verdict.alive is False:
            self._recheck(line, soonest if verdict.is_hopeful else now + self._care.retry)
        elif line.is_shaky(now):
            self._recheck(line, now + self._care.retry)

    def _recheck(self, line: Line, at: int) -> None:
        line.recheck_at = at
        self._push(self._doubts if line.verdict.in_doubt else self._watched, at, line)

    def _ask(self, line: Line, purpose: Purpose) -> list[Ask]:
        attempt = Attempt(purpose, line.aim)
        timeout = self._rules.timeout if purpose is Purpose.PROBE else line.patience()
        asks = []
        for url in line.aim.targets:
            serial = next(self._serials)
            self._asked[serial] = line, attempt
            reads_body = self._rules.is_burst and self._rules.method == "GET"
            asks.append(Ask(serial, purpose, line.tag, url, self._rules.method, timeout, reads_body, fresh=True))
        return asks

    def _network(self) -> Ask:
        self._checks_network = True
        serial, rules = next(self._serials), self._rules
        self._asked[serial] = None
        return Ask(serial, Purpose.CONNECTIVITY, "", rules.connectivity, rules.method, rules.timeout, reads_body=False)

    def _network_told(self, is_up: bool, now: int) -> tuple[Told, ...]:
        """Our own network is up: what was held back counts. It is not: nothing of it does."""
        self._checks_network = False
        held, self._held = self._held, []
        told: list[Told] = []
        for line, reason, by_call in held:
            if not is_up or line.is_gone:
                continue
            told += self._called(line, False, now) if by_call else (self._heard(line, None, reason, now),)
        return tuple(told)

    def _heard(self, line: Line, rtt: int | None, reason: str, now: int) -> Told:
        before = line.verdict.in_doubt
        told = line.heard(rtt, reason, now)
        self._edition = self.edition(now) + 1  # what is too old goes, also where nobody asks for the edition
        self._puts.append(now)
        self._follow(line, before, told.changed, now)
        return told

    def _called(self, line: Line, passed: bool, now: int) -> tuple[Told, ...]:
        before, hopeful = line.verdict.in_doubt, line.verdict.is_hopeful
        told = line.called(passed, now)
        self._edition += told.changed
        self._follow(line, before, told.changed or line.verdict.is_hopeful is not hopeful, now)
        return (told,) if told.changed else ()

    def _follow(self, line: Line, was_in_doubt: bool, has_changed: bool, now: int) -> None:
        """A new doubt is looked into at once, a hope soon, the dead and the shaky now and then; what is calm needs nothing more."""
        verdict = line.verdict
        if verdict.in_doubt and not was_in_doubt:
            self._plan(line, now, now)
        elif verdict.alive and not verdict.in_doubt and not line.is_shaky(now):
            line.recheck_at = None
        elif not verdict.in_doubt and (was_in_doubt or has_changed or verdict.is_hopeful or line.recheck_at is None):
            self._plan(line, now + self._care.spacing, now)
