"""Xray's standard observer, strictly: one request after the other with a pause after each, or all at once with one pause a round."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import count
from typing import Final

from reachline.core.observing.rules import ObserverRules
from reachline.core.observing.selecting import selected
from reachline.core.observing.values import DEAD_MS, MS, SECOND, Ask, Purpose, Result, Status, Told

__all__ = ["Single", "death"]


def death(tag: str, url: str, cause: str) -> str:
    """`last_error_reason` of a failed request, letter by letter."""
    relay = f'app/observatory: outbound failed to relay connection > Get "{url}": {cause}'
    return f"the outbound {tag} is dead: GET request failed:{relay}with outbound handler report underlying connection failed"


class Single:
    """One failure is death, one pass is life, any status passes; each result tells until the next. Written by its driver."""

    def __init__(self, rules: ObserverRules) -> None:
        self._rules: Final = rules
        self._tags: tuple[str, ...] = ()
        self._next: int | None = None
        """When the next step of the loop is; None: requests are awaited, or there is nothing to do."""
        self._left: deque[str] = deque()
        self._asked: dict[int, str] = {}
        self._found: dict[str, Status] = {}
        self._serials = count(1)
        self._edition = 0
        self._is_idle = bool(rules.selectors)
        """Nobody was there when the loop looked. Xray's own spins then; to be there again is to be asked at once as well."""

    def outbounds(self, tags: Iterable[str], now: int) -> None:
        """Noticed at the start of the next cycle."""
        self._tags = selected(tags, self._rules.selectors)
        if self._is_idle:
            self._is_idle = False
            self._next = now

    def deadline(self) -> int | None:
        """The end of the pause."""
        return self._next

    def due(self, now: int) -> tuple[Ask, ...]:
        """The next of the cycle, or all of it."""
        if self._next is None or now < self._next:
            return ()
        self._next = None
        if not self._left:
            self._begin()
        if not self._left:
            self._rest(now)
            return ()
        if not self._rules.concurrent:
            return (self._ask(self._left.popleft()),)
        asks = tuple(map(self._ask, self._left))
        self._left.clear()
        return asks

    def ended(self, serial: int, result: Result, now: int) -> tuple[Told, ...]:
        """The status is as of the end of its request."""
        tag = self._asked.pop(serial, None)
        if tag is None:
            return ()
        told = self._put(tag, result, now)
        if not self._asked:
            self._next = now + max(0, self._rules.interval)
        return (told,)

    def check(self, now: int) -> None:
        """Nothing: Xray's observer has no such thing."""

    def called(self, tag: str, passed: bool, now: int) -> tuple[Told, ...]:  # noqa: ARG002  (one signature)
        """Says nothing here: Xray looks at its own requests alone."""
        return ()

    def statuses(self, now: int) -> tuple[Status, ...]:  # noqa: ARG002  (one signature)
        """In the order in which outbounds were first known."""
        return tuple(self._found.values())

    def edition(self, now: int) -> int:  # noqa: ARG002  (one signature)
        """One more with each result and each removal."""
        return self._edition

    def _begin(self) -> None:
        """A cycle: who is there, and away with what is known of those who are not."""
        self._left.extend(self._tags)
        wanted = frozenset(self._tags)
        kept = {tag: status for tag, status in self._found.items() if tag in wanted}
        if len(kept) < len(self._found):
            self._found = kept
            self._edition += 1

    def _rest(self, now: int) -> None:
        if self._rules.concurrent:
            self._next = now + max(0, self._rules.interval)
        if self._next is None or self._next == now:
            self._next = None
            self._is_idle = True

    def _ask(self, tag: str) -> Ask:
        serial = next(self._serials)
        self._asked[serial] = tag
        rules = self._rules
        return Ask(serial, Purpose.PROBE, tag, rules.target, rules.method, rules.timeout, reads_body=False, fresh=True)

    def _put(self, tag: str, result: Result, now: int) -> Told:
        before = self._found.get(tag)
        tried = now // SECOND
        if result.ok:
            status = Status(tag, True, result.rtt // MS, "", tried, tried)
        else:
            reason = death(tag, self._rules.target, result.reason)
            status = Status(tag, False, DEAD_MS, reason, before.seen if before else 0, tried)
        self._found[tag] = status
        self._edition += 1
        changed = before is None or before.alive is not status.alive
        return Told(tag, status.alive, changed, status.delay, status.reason)
