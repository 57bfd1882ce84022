"""Xray's burst observer, strictly: requests at random moments of each window, a ring of results, a connectivity check that discards."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from itertools import count
from random import Random
from typing import Final, NamedTuple

from reachline.core.observing.ring import Results
from reachline.core.observing.rules import ObserverRules
from reachline.core.observing.selecting import selected
from reachline.core.observing.values import MS, Ask, Purpose, Result, Status, Told

__all__ = ["Burst"]

_CHECK: Final = 0
"""The round of what is asked at the start: no later one cancels it."""


class _Waited(NamedTuple):
    round: int
    tag: str
    purpose: Purpose


class Burst:
    """Alive while one valid result passed. A new round throws away what is still in flight of the last. Written by its driver.

    Chance is drawn at the beginning of a round, tag by tag in their order, `sampling` times each.
    """

    def __init__(self, rules: ObserverRules, rng: Random) -> None:
        self._rules: Final = rules
        self._rng: Final = rng
        self._available: tuple[str, ...] = ()
        self._round = _CHECK
        self._tags: tuple[str, ...] = ()
        """Of the current round."""
        self._next: int | None = None
        """When the next round begins."""
        self._plan: list[tuple[int, int, str]] = []
        self._open = 0
        """Requests of the current round that have not ended."""
        self._urgent: deque[Ask] = deque()
        self._waited: dict[int, _Waited] = {}
        self._results: dict[str, Results] = {}
        self._shown: dict[str, Status] = {}
        """By tag, as told last."""
        self._puts: deque[int] = deque()
        self._serials = count(1)
        self._edition = 0

    def outbounds(self, tags: Iterable[str], now: int) -> None:
        """The start, or noticed by the next round."""
        self._available = selected(tags, self._rules.selectors)
        if self._next is None and self._rules.selectors:
            self._next = now
            self.check(now)

    def deadline(self) -> int | None:
        """The next request's moment, or the next round's."""
        if self._urgent:
            return 0
        return self._plan[0][0] if self._plan else self._next

    def due(self, now: int) -> tuple[Ask, ...]:
        """Whatever lies before `now`, in its order."""
        asks = list(self._urgent)
        self._urgent.clear()
        while (at := self.deadline()) is not None and at <= now:
            if self._plan:
                tag = heapq.heappop(self._plan)[2]
                asks.append(self._ask(self._round, tag, Purpose.PROBE))
            else:
                self._begin(at)
        return tuple(asks)

    def ended(self, serial: int, result: Result, now: int) -> tuple[Told, ...]:
        """A failure counts once the connectivity URL, if there is one, was reached; it is asked for each failure."""
        waited = self._waited.pop(serial, None)
        if waited is None:
            return ()
        if waited.purpose is Purpose.PROBE and not result.ok and self._rules.connectivity:
            self._urgent.append(self._ask(waited.round, waited.tag, Purpose.CONNECTIVITY))
            return ()
        told: tuple[Told, ...] = ()
        if waited.purpose is Purpose.PROBE or result.ok:
            told = self._put(waited, result, now)
        self._settle(waited.round)
        return told

    def check(self, now: int) -> None:  # noqa: ARG002  (one signature)
        """One request by each outbound, which no round cancels: as Xray does at its start."""
        self._urgent.extend(self._ask(_CHECK, tag, Purpose.PROBE) for tag in self._available)

    def called(self, tag: str, passed: bool, now: int) -> tuple[Told, ...]:  # noqa: ARG002  (one signature)
        """Says nothing here: Xray looks at its own requests alone."""
        return ()

    def statuses(self, now: int) -> tuple[Status, ...]:
        """By tag: Xray's own order is random. Three of its fields are always empty, as Xray leaves them."""
        if len(self._shown) != len(self._results):
            self._shown = {tag: Status(tag, alive=False) for tag in sorted(self._results, key=str.encode)}
        for tag, shown in self._shown.items():
            ping = self._results[tag].ping(now)
            if shown.ping is not ping:
                self._shown[tag] = Status(tag, ping.all != ping.fail, ping.average // MS, ping=ping)
        return tuple(self._shown.values())

    def edition(self, now: int) -> int:
        """One more with each result, and once one may have become too old."""
        limit = now - 2 * self._rules.window
        while self._puts and self._puts[0] < limit:
            self._puts.popleft()
            self._edition += 1
        return self._edition

    def slots(self, tag: str) -> tuple[int | None, ...]:
        """The ring of an outbound as it lies there; None: failed."""
        ring = self._results.get(tag)
        return () if ring is None else ring.slots()

    def _begin(self, now: int) -> None:
        """A round: what is left of the last is cancelled, which cleans up by the last one's list."""
        if self._open:
            self._waited = {serial: each for serial, each in self._waited.items() if each.round != self._round}
            self._urgent = deque(ask for ask in self._urgent if ask.serial in self._waited)
            self._clean_up()
        self._round += 1
        self._tags = self._available
        window = self._rules.window
        moments = [(now + self._rng.randrange(window), tag) for tag in self._tags for _ in range(self._rules.sampling)]
        self._plan = [(at, number, tag) for number, (at, tag) in enumerate(moments)]
        heapq.heapify(self._plan)
        self._open = len(moments)
        self._next = now + window
        if not moments:
            self._clean_up()

    def _ask(self, number: int, tag: str, purpose: Purpose) -> Ask:
        rules, serial = self._rules, next(self._serials)
        self._waited[serial] = _Waited(number, tag, purpose)
        is_probe = purpose is Purpose.PROBE
        url, by = (rules.target, tag) if is_probe else (rules.connectivity, "")
        return Ask(serial, purpose, by, url, rules.method, rules.timeout, reads_body=rules.method == "GET", fresh=True)

    def _put(self, waited: _Waited, result: Result, now: int) -> tuple[Told, ...]:
        passed = waited.purpose is Purpose.PROBE and result.ok
        ring = self._results.get(waited.tag)
        was = ring is not None and _is_alive(ring, now)
        if not passed or result.rtt > 0:
            ring = self._results.setdefault(waited.tag, Results(self._rules.sampling, 2 * self._rules.window))
            ring.put(now, result.rtt if passed else None)
            self._edition = self.edition(now) + 1  # what is too old goes, also where nobody asks for the edition
            self._puts.append(now)
        alive = ring is not None and _is_alive(ring, now)
        delay = 0 if ring is None else ring.ping(now).average // MS
        return (Told(waited.tag, alive, alive is not was, delay, "" if passed else result.reason),)

    def _settle(self, number: int) -> None:
        if number != self._round or number == _CHECK:
            return
        self._open -= 1
        if not self._open:
            self._clean_up()

    def _clean_up(self) -> None:
        gone = self._results.keys() - set(self._tags)
        for tag in gone:
            del self._results[tag]
            self._shown.pop(tag, None)
        self._edition += bool(gone)


def _is_alive(ring: Results, now: int) -> bool:
    ping = ring.ping(now)
    return ping.all != ping.fail
