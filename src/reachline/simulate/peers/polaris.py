"""Polaris, as its SDK in each client breaks single instances.

Facts (polarismesh/polaris-go `plugin/circuitbreaker`, its `polaris.yaml`): 10 failures in a row open at once; half of at least 10
calls of the last minute open at the next check, every 30 s; open for 30 s; half-open lets 10 calls through, of which one failure
opens it again; with every instance open all are used (`recoverAll`); weighted random choice. Two things are taken in its favour:
open ends when its time is over, not at the next check, and half-open ends with its tenth success.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import Final

from reachline.simulate.contender import Called, Choice, Event, Run, Seen, What, Wish
from reachline.simulate.peers.common import Pace, Ration, Spread, ended, failures, tiers

__all__ = ["Instance", "PolarisLike", "State"]

_IN_A_ROW: Final = 10
_CHECK_MS: Final = 30_000
_WINDOW_MS: Final = 60_000
_VOLUME: Final = 10
_RATE_PERCENT: Final = 50
_SLEEP_MS: Final = 30_000
_TRIAL: Final = 10
_FINE: Final = 1_000
"""Weights are so much finer than the document's, so that a trial's share can be said."""


class State(Enum):
    """A breaker's three states."""

    CLOSED = 0
    OPEN = 1
    HALF_OPEN = 2


class Instance:
    """One instance's breaker in one client."""

    def __init__(self, timeout_ms: int) -> None:
        self.state = State.CLOSED
        self._timeout_ms = timeout_ms
        self._row = 0
        self._until_ms = 0
        self._passed = 0
        self._window: deque[tuple[int, int, int]] = deque()
        self.trial = Ration(_TRIAL, timeout_ms)

    def called(self, called: Called, now_ms: int) -> None:
        """Its calls that ended in one step."""
        if self.state is State.OPEN:
            return
        if self.state is State.HALF_OPEN:
            self._tried(called, now_ms)
            return
        self._window.append((now_ms, ended(called), ended(called) - called.ok))
        for failed in failures(called):
            self._row = self._row + 1 if failed else 0
            if self._row >= _IN_A_ROW:
                self._open(now_ms)
                return

    def check(self, now_ms: int) -> None:
        """The periodic look at the error rate of the last minute."""
        while self._window and now_ms - self._window[0][0] > _WINDOW_MS:
            self._window.popleft()
        calls, failed = (sum(each[column] for each in self._window) for column in (1, 2))
        if self.state is State.CLOSED and calls >= _VOLUME and failed * 100 >= calls * _RATE_PERCENT:
            self._open(now_ms)

    def tick(self, now_ms: int) -> None:
        """Open becomes half-open when its time is over."""
        if self.state is State.OPEN and now_ms >= self._until_ms:
            self.state, self._passed = State.HALF_OPEN, 0
            self.trial = Ration(_TRIAL, self._timeout_ms)

    def _tried(self, called: Called, now_ms: int) -> None:
        if ended(called) > called.ok:
            self._open(now_ms)
            return
        self._passed += called.ok
        self.trial.saw(called.ok)
        if self._passed >= _TRIAL:
            self.state, self._row = State.CLOSED, 0
            self._window.clear()

    def _open(self, now_ms: int) -> None:
        self.state, self._until_ms, self._row = State.OPEN, now_ms + _SLEEP_MS, 0


class PolarisLike:
    """The SDK in each client: it probes nothing."""

    def __init__(self, run: Run) -> None:
        self._tiers = tiers(run)
        self._lines = {line.name: line for line in run.lines}
        self._instances = {
            client: {line.name: Instance(run.timeout_ms) for line in run.lines} for client in run.clients
        }
        self._paces = {client: Pace() for client in run.clients}
        self._spreads = {client: Spread() for client in run.clients}
        self._check_ms = {client: run.rng.randrange(1, _CHECK_MS) for client in run.clients}
        for client in run.clients:
            self._spread(client, 0)

    def wishes(self) -> Sequence[Wish]:
        """None: fault detection is off by default."""
        return ()

    def step(self, seen: Seen) -> Sequence[Event]:
        """Calls first, then what time brings."""
        by_client: dict[str, list[Called]] = {client: [] for client in self._instances}
        for called in seen.calls:
            by_client[called.client].append(called)
        events: list[Event] = []
        for client, calls in by_client.items():
            events += self._client(client, calls, seen.now_ms)
        return events

    def choice(self, client: str) -> Choice:
        """By weight over instances that are not open."""
        return self._spreads[client].choice

    def _client(self, client: str, calls: Sequence[Called], now_ms: int) -> list[Event]:
        self._paces[client].saw(calls)
        instances = self._instances[client]
        before = {name: each.state for name, each in instances.items()}
        for called in calls:
            instances[called.line].called(called, now_ms)
        if now_ms >= self._check_ms[client]:
            self._check_ms[client] += _CHECK_MS
            for each in instances.values():
                each.check(now_ms)
        for each in instances.values():
            each.tick(now_ms)
        moved = [name for name, each in instances.items() if each.state is not before[name]]
        if moved or State.HALF_OPEN in before.values():
            self._spread(client, now_ms)
        words = {State.CLOSED: What.CLOSE, State.OPEN: What.OPEN, State.HALF_OPEN: What.TRIAL}
        return [Event(now_ms, name, words[instances[name].state], client) for name in moved]

    def _spread(self, client: str, now_ms: int) -> None:
        instances = self._instances[client]
        for tier in self._tiers:
            usable = [line for line in tier if instances[line.name].state is not State.OPEN]
            total = sum(line.base for line in usable)
            weights = {}
            for line in usable:
                each, share = instances[line.name], 1.0
                if each.state is State.HALF_OPEN:
                    share = each.trial.share(now_ms, self._paces[client].per_step * line.base / total)
                weights[line.name] = round(line.base * _FINE * share)
            if any(weights.values()):
                self._spreads[client].put({name: weight for name, weight in weights.items() if weight})
                return
        self._spreads[client].put({line.name: line.base * _FINE for line in self._tiers[0]})
