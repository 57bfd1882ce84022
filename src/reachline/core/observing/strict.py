"""A balancer strictly as Xray's: its health filter where it has one, its order of ties, and its leak to the first outbound."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Final

from reachline.core.observing.chosen import Chosen, Why
from reachline.core.observing.load import ranked, take
from reachline.core.observing.protocol import Observation
from reachline.core.observing.rules import BalancerRules, Strategy
from reachline.core.observing.selecting import selected
from reachline.core.observing.values import DEAD_MS, Status

__all__ = ["Strict", "least_ping"]


def least_ping(statuses: Iterable[Status], candidates: frozenset[str]) -> tuple[str, ...]:
    """The alive candidate of the least delay, the first of equals; failures do not count."""
    best, found = DEAD_MS, ""
    for status in statuses:
        if status.alive and status.delay < best and status.tag in candidates:
            best, found = status.delay, status.tag
    return (found,) if found else ()


class Strict:
    """Written by whoever makes connections. Chance is drawn only where there is more than one to choose from."""

    def __init__(self, rules: BalancerRules, observation: Observation | None) -> None:
        self._rules: Final = rules
        self._seen: Final = observation
        self._override = ""
        self._default: str | None = None
        self._candidates: tuple[str, ...] = ()
        self._edition: int | None = None
        self._tags: tuple[str, ...] = ()
        self._ready: tuple[Chosen, ...] = ()
        """The answers of a pick, made once."""
        self._turn = 0
        self._takes_turns = False

    def outbounds(self, tags: Iterable[str], silent: Iterable[str] = ()) -> None:  # noqa: ARG002  (Xray takes these as well)
        """The first of them, tagged or not, is where connections go that nobody was chosen for."""
        known = tuple(tags)
        self._default = known[0] if known else None
        self._candidates = selected(known, self._rules.selectors)
        self._edition = None

    def pick(self, now: int, rng: Random) -> Chosen:
        """An override and a fallback are taken unchecked, as Xray does."""
        if self._override:
            return Chosen(self._override, Why.OVERRIDE)
        self._current(now)
        ready = self._ready
        number = len(ready)
        if self._takes_turns:
            found = ready[self._turn % number]
            self._turn = (self._turn + 1) % number
            return found
        return ready[int(rng.random() * number)] if number > 1 else ready[0]

    def targets(self, now: int) -> tuple[str, ...]:
        """All candidates where the strategy is to take turns or chance: unfiltered, as Xray tells them."""
        if self._rules.strategy in {Strategy.RANDOM, Strategy.ROUND_ROBIN}:
            return self._candidates
        return self._current(now)

    def instead(self, tried: frozenset[str], now: int) -> tuple[str, ...]:
        """The others of its targets: Xray has no second try, so there is nothing of its own to follow."""
        if self._override:
            return () if self._override in tried else (self._override,)
        return tuple(tag for tag in self.targets(now) if tag not in tried)

    def override(self, tag: str) -> bool:
        """Anything goes."""
        self._override = tag
        return True

    def overridden(self) -> str:
        """As it was set."""
        return self._override

    def _current(self, now: int) -> tuple[str, ...]:
        edition = 0 if self._seen is None else self._seen.edition(now)
        if edition != self._edition:
            self._edition = edition
            self._tags = self._chosen(() if self._seen is None else self._seen.statuses(now))
            self._ready = tuple(Chosen(tag, Why.CHOSEN) for tag in self._tags) or (self._nobody(),)
            self._takes_turns = self._rules.strategy is Strategy.ROUND_ROBIN and bool(self._tags)
        return self._tags

    def _nobody(self) -> Chosen:
        if self._rules.fallback:
            return Chosen(self._rules.fallback, Why.FALLBACK)
        return Chosen(self._default, Why.DEFAULT)

    def _chosen(self, statuses: tuple[Status, ...]) -> tuple[str, ...]:
        candidates = frozenset(self._candidates)
        match self._rules.strategy:
            case Strategy.LEAST_PING:
                return least_ping(statuses, candidates)
            case Strategy.LEAST_LOAD:
                return take(ranked(statuses, candidates, self._rules.load), self._rules.load)
            case Strategy.RANDOM | Strategy.ROUND_ROBIN:
                if not self._rules.fallback:
                    return self._candidates
                dead = {status.tag for status in statuses if not status.alive}
                return tuple(tag for tag in self._candidates if tag not in dead)
