"""The balancer that is the default: groups by priority, failures before speed, no change for nothing, and never an outbound that
nobody named. Whoever is chosen was a candidate or the fallback; where there is nobody, the document says what happens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Final, NamedTuple

from reachline.core.observing.chosen import Balancer, Chosen, Why
from reachline.core.observing.load import node_of, qualifies, root_of, take
from reachline.core.observing.protocol import Observation
from reachline.core.observing.rules import AllUnhealthy, BalancerRules, LeastLoad, Strategy
from reachline.core.observing.selecting import selected
from reachline.core.observing.values import MS, Status

__all__ = ["Prudent"]

_WHOLE: Final = 1_000
_SLACK: Final = 100
"""Thousandths of failures that two outbounds may differ by and still be compared by speed: one result of ten, which may be chance."""


class _Choice(NamedTuple):
    tags: tuple[str, ...]
    why: Why
    nested: Balancer | None = None
    """Asked first where it is set."""


class Prudent:
    """Written by whoever makes connections. Chance is drawn only where there is more than one to choose from."""

    def __init__(self, rules: BalancerRules, observation: Observation | None, others: Mapping[str, Balancer]) -> None:
        self._rules: Final = rules
        self._seen: Final = observation
        self._others: Final = others
        self._known: frozenset[str] = frozenset()
        self._groups: tuple[tuple[str, ...], ...] = ()
        self._override = ""
        self._edition: int | None = None
        self._choice = _Choice((), Why.BLOCKED)
        self._good: tuple[str, ...] = ()
        """Whom the strategy chose last."""
        self._ready: tuple[Chosen, ...] = ()
        """The answers of a pick, made once."""
        self._instead: dict[frozenset[str], _Choice] = {}
        """Choices without those that could not be connected, until there is another choice."""
        self._turn = 0

    def outbounds(self, tags: Iterable[str], silent: Iterable[str] = ()) -> None:
        """A candidate is in the first group that selects it; those that no group selects come last. A silent one is none."""
        self._known = frozenset(tags)
        left = selected(self._known.difference(silent), self._rules.selectors)
        groups = []
        for selectors in self._rules.groups:
            chosen = selected(left, selectors)
            groups.append(chosen)
            left = tuple(tag for tag in left if tag not in chosen)
        self._groups = tuple(group for group in (*groups, left) if group)
        self._good = tuple(tag for tag in self._good if tag in self._known)
        self._edition = None
        if self._override not in self._known:
            self._override = ""

    def pick(self, now: int, rng: Random) -> Chosen:
        """One of those that are to share the traffic."""
        if self._override:
            return Chosen(self._override, Why.OVERRIDE)
        nested = self._current(now).nested
        if nested is not None and (found := nested.pick(now, rng).tag) is not None:
            return Chosen(found, Why.FALLBACK)
        ready = self._ready
        number = len(ready)
        if number == 1:
            return ready[0]
        if self._rules.strategy is Strategy.ROUND_ROBIN:
            turn = self._turn % number
            self._turn = turn + 1
            return ready[turn]
        return ready[int(rng.random() * number)]

    def targets(self, now: int) -> tuple[str, ...]:
        """Those that a pick is made among."""
        choice = self._current(now)
        return choice.tags if choice.nested is None else choice.nested.targets(now) or choice.tags

    def instead(self, tried: frozenset[str], now: int) -> tuple[str, ...]:
        """As if those were dead; an override is never gone against."""
        if self._override:
            return () if self._override in tried else (self._override,)
        self._current(now)
        choice = self._instead.get(tried)
        if choice is None:
            choice = self._instead[tried] = self._choose(self._known_of(now), tried)
        nested = () if choice.nested is None else choice.nested.instead(tried, now)
        return nested or tuple(tag for tag in choice.tags if tag not in tried)

    def override(self, tag: str) -> bool:
        """An outbound that exists, or none."""
        if tag and tag not in self._known:
            return False
        self._override = tag
        return True

    def overridden(self) -> str:
        """Gone with its outbound."""
        return self._override

    def _current(self, now: int) -> _Choice:
        edition = 0 if self._seen is None else self._seen.edition(now)
        if edition != self._edition:
            self._edition = edition
            self._instead.clear()
            self._choice = self._choose(self._known_of(now))
            tags, why, _ = self._choice
            self._ready = tuple(Chosen(tag, why) for tag in tags) or (Chosen(None, why),)
        return self._choice

    def _known_of(self, now: int) -> dict[str, Status]:
        return {} if self._seen is None else {each.tag: each for each in self._seen.statuses(now)}

    def _choose(self, statuses: Mapping[str, Status], tried: frozenset[str] = frozenset()) -> _Choice:
        """Down the groups, then those of whom nothing is known, then the fallback, then what the document says of nobody."""
        groups: Sequence[Sequence[str]] = self._groups
        if tried:
            groups = [[tag for tag in group if tag not in tried] for group in groups]
        for level, group in enumerate(groups):
            alive = [status for tag in group if (status := statuses.get(tag)) is not None and status.alive]
            if tags := self._best(alive):
                if not tried:
                    self._good = tags
                return _Choice(tags, Why.LOWER if level else Why.CHOSEN)
        for group in groups:
            if unobserved := tuple(tag for tag in group if tag not in statuses):
                return _Choice(unobserved, Why.UNOBSERVED)
        if (nested := self._others.get(self._rules.fallback)) is not None:
            return self._nobody(groups)._replace(nested=nested)
        if self._rules.fallback in self._known and self._rules.fallback not in tried:
            return _Choice((self._rules.fallback,), Why.FALLBACK)
        return self._nobody(groups)

    def _nobody(self, groups: Sequence[Sequence[str]]) -> _Choice:
        candidates = tuple(tag for group in groups for tag in group)
        match self._rules.all_unhealthy:
            case AllUnhealthy.LAST_GOOD:
                good = tuple(tag for tag in self._good if tag in candidates)
                return _Choice(good, Why.LAST_GOOD if good else Why.BLOCKED)
            case AllUnhealthy.ORDERED if candidates:
                return _Choice(candidates[:1], Why.ORDERED)
            case AllUnhealthy.SPREAD if candidates:
                return _Choice(candidates, Why.SPREAD)
            case _:
                return _Choice((), Why.BLOCKED)

    def _best(self, alive: Sequence[Status]) -> tuple[str, ...]:
        """Of one group's, those that share its traffic: who fails much more often than the best does not compete."""
        rules = self._rules
        if rules.strategy is Strategy.LEAST_LOAD:
            names = frozenset(status.tag for status in alive)
            alive = [status for status in alive if qualifies(status, names, rules.load)]
        if not alive:
            return ()
        shares = [_failing(status) for status in alive]
        most = min(shares) + _SLACK
        fit = [status for status, share in zip(alive, shares, strict=True) if share <= most]
        match rules.strategy:
            case Strategy.RANDOM | Strategy.ROUND_ROBIN:
                return tuple(status.tag for status in fit)
            case Strategy.LEAST_PING:
                return self._fastest(fit, LeastLoad(), 1)
            case Strategy.LEAST_LOAD if rules.load.baselines:
                return take(sorted(node_of(status, rules.load.costs) for status in fit), rules.load)
            case Strategy.LEAST_LOAD:
                wanted = max(rules.load.expected, 1)
                return self._fastest(fit if len(fit) >= wanted else alive, rules.load, wanted)

    def _fastest(self, fit: Sequence[Status], load: LeastLoad, wanted: int) -> tuple[str, ...]:
        """By latency times its weight; whoever was chosen last stays until another is better by the advantage."""
        kept = frozenset(self._good)
        scored = []
        for status in fit:
            tag = status.tag
            score = int(_latency(status) * root_of(tag, load.costs)) if load.costs else _latency(status)
            head = max(score * self._rules.advantage // _WHOLE, self._rules.least_advantage) if tag in kept else 0
            scored.append((score - head, tag))
        return tuple(tag for _, tag in sorted(scored)[:wanted])


def _failing(status: Status) -> int:
    """Thousandths of the valid results."""
    ping = status.ping
    return ping.fail * _WHOLE // ping.all if ping is not None and ping.all else 0


def _latency(status: Status) -> int:
    return status.ping.average if status.ping is not None and status.ping.average else status.delay * MS
