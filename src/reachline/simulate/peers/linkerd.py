"""linkerd's proxy in each client: consecutive-failures accrual below a balancer of two random choices by peak EWMA.

Facts (linkerd.io reference "Circuit Breaking"; linkerd/linkerd2-proxy `outbound/src/http/breaker`): 7 failures in a row shut an
endpoint; 1 s later one request is let through; its failure doubles the wait up to 1 min, its success opens; waits carry up to
half of themselves as jitter; answers that arrive while shut are ignored. The balancer draws two endpoints and takes the one with
the lower peak-EWMA latency times requests in flight, plus one; the average falls with a decay of 10 s, asked or not, and rises at
once.

Breaking is off without its annotation; here it is on, with the defaults it then has. Transport failures and timeouts count as
failures too. What the draws come to is computed, not drawn: requests in flight as Poisson counts about pace × latency.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import lru_cache
from itertools import combinations
from random import Random
from typing import Final

from reachline.simulate.contender import STEP_MS, Called, Choice, Event, Run, Seen, What, Wish
from reachline.simulate.peers.common import Pace, Spread, failures, tiers

__all__ = ["Accrual", "Gate", "LinkerdLike", "PeakEwma", "shares"]

_FAILURES: Final = 7
_FIRST_MS: Final = 1_000
_LONGEST_MS: Final = 60_000
_JITTER: Final = 0.5
_DECAY_MS: Final = 10_000
_UNKNOWN_US: Final = 30_000
"""Latency of an endpoint that never answered: the balancer's default."""
_AGAIN_MS: Final = 1_000
"""Shares follow latency this often."""
_ROUNDS: Final = 8
_FINE: Final = 10_000
_IN_FLIGHT: Final = 40
"""Requests in flight beyond which two endpoints are told apart by latency alone."""


class Gate(Enum):
    """Open admits (as linkerd says, and nobody else here), shut does not, limited lets one through."""

    OPEN = 0
    SHUT = 1
    LIMITED = 2


class Accrual:
    """One endpoint's failure accrual in one client."""

    def __init__(self, rng: Random | None, *, most: int = _FAILURES, longest_ms: int = _LONGEST_MS) -> None:
        """`rng` None: no jitter."""
        self.gate = Gate.OPEN
        self._rng, self._most, self._longest_ms = rng, most, longest_ms
        self._row = 0
        self._wait_ms = _FIRST_MS
        self.until_ms = 0
        self.sent = False
        """Whether the one request has been sent."""

    def called(self, outcomes: Sequence[bool], now_ms: int) -> None:
        """Answers of one step, True for failures; ignored while shut."""
        for failed in outcomes:
            if self.gate is Gate.SHUT:
                return
            if self.gate is Gate.LIMITED:
                if failed:
                    self._shut(now_ms, min(2 * self._wait_ms, self._longest_ms))
                else:
                    self.gate, self._row = Gate.OPEN, 0
                continue
            self._row = self._row + 1 if failed else 0
            if self._row >= self._most:
                self._shut(now_ms, _FIRST_MS)

    def tick(self, now_ms: int) -> None:
        """One request may pass when the wait is over."""
        if self.gate is Gate.SHUT and now_ms >= self.until_ms:
            self.gate, self.sent = Gate.LIMITED, False

    def _shut(self, now_ms: int, wait_ms: int) -> None:
        jitter = self._rng.random() * _JITTER if self._rng else 0.0
        self.gate, self._row, self._wait_ms = Gate.SHUT, 0, wait_ms
        self.until_ms = now_ms + round(wait_ms * (1 + jitter))


class PeakEwma:
    """Latency that jumps to a peak at once and forgets it within some ten seconds. Microseconds."""

    def __init__(self) -> None:
        self.value = float(_UNKNOWN_US)
        self._at_ms = 0

    def put(self, rtt_us: float, now_ms: int) -> None:
        """One latency, or the mean of one step's."""
        if rtt_us > self.value:
            self.value = rtt_us
        else:
            kept = math.exp((self._at_ms - now_ms) / _DECAY_MS)
            self.value = self.value * kept + rtt_us * (1 - kept)
        self._at_ms = now_ms

    def at(self, now_ms: int) -> float:
        """What it has come down to without an answer since: who is not asked is tried again some time."""
        return self.value * math.exp((self._at_ms - now_ms) / _DECAY_MS)


def shares(loads: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Each endpoint's part of the calls, from its latency and its mean number in flight: two drawn, the lighter one taken."""
    if len(loads) < 2:
        return dict.fromkeys(loads, 1.0)
    found = dict.fromkeys(loads, 0.0)
    pairs = list(combinations(loads, 2))
    for one, other in pairs:
        (left_us, left), (right_us, right) = loads[one], loads[other]
        won = _lighter(round(20 * math.log(max(right_us, 1) / max(left_us, 1))), round(8 * left), round(8 * right))
        found[one] += won / len(pairs)
        found[other] += (1 - won) / len(pairs)
    return found


@lru_cache(maxsize=65_536)
def _lighter(log_ratio: int, left: int, right: int) -> float:
    """How often the left one has the lower load; `log_ratio`: of the right latency to the left one, in twentieths."""
    ratio = math.exp(log_ratio / 20)
    won = 0.0
    others = _poisson(right / 8)
    for mine, chance in enumerate(_poisson(left / 8)):
        for its, likely in enumerate(others):
            weight, against = mine + 1, (its + 1) * ratio
            won += chance * likely * (0.5 if math.isclose(weight, against) else float(weight < against))
    return won


@lru_cache(maxsize=4_096)
def _poisson(mean: float) -> tuple[float, ...]:
    mean = min(mean, _IN_FLIGHT / 2)
    chances = [math.exp(-mean)]
    for count in range(1, _IN_FLIGHT):
        chances.append(chances[-1] * mean / count)
        if count > mean and chances[-1] < 1e-4:
            break
    total = sum(chances)
    return tuple(chance / total for chance in chances)


class _Proxy:
    """One client's proxy."""

    def __init__(self, run: Run) -> None:
        self.tiers = tiers(run)
        self.timeout_ms = run.timeout_ms
        self.ends = {line.name: Accrual(run.rng) for line in run.lines}
        self.latency = {line.name: PeakEwma() for line in run.lines}
        self.part = {line.name: 1 / len(run.lines) for line in run.lines}
        self.pace, self.spread = Pace(), Spread()
        self._again_ms = 0

    def step(self, calls: Sequence[Called], sent: Sequence[str], now_ms: int) -> list[tuple[str, Gate]]:
        """The endpoints whose gate moved; `sent` are those whose one request has begun."""
        self.pace.saw(calls)
        for name in sent:
            self.ends[name].sent = True
        before = {name: end.gate for name, end in self.ends.items()}
        for called in calls:
            self._learn(called, now_ms)
            self.ends[called.line].called(tuple(failures(called)), now_ms)
        for end in self.ends.values():
            end.tick(now_ms)
        moved = [(name, end.gate) for name, end in self.ends.items() if end.gate is not before[name]]
        if moved or sent or now_ms >= self._again_ms:
            self._balance(now_ms)
        return moved

    def _learn(self, called: Called, now_ms: int) -> None:
        if called.late:
            self.latency[called.line].put(self.timeout_ms * 1_000, now_ms)
        elif called.mean_us:
            self.latency[called.line].put(called.mean_us, now_ms)

    def _balance(self, now_ms: int) -> None:
        if now_ms >= self._again_ms:
            self._again_ms = now_ms + _AGAIN_MS
        for tier in self.tiers:
            ready = [line.name for line in tier if self._takes(self.ends[line.name])]
            if ready:
                self._weigh(ready, now_ms)
                return
        self.spread.put({line.name: line.base for line in self.tiers[0]})

    @staticmethod
    def _takes(end: Accrual) -> bool:
        return end.gate is Gate.OPEN or (end.gate is Gate.LIMITED and not end.sent)

    def _weigh(self, ready: Sequence[str], now_ms: int) -> None:
        per_us = self.pace.per_step / (STEP_MS * 1_000)
        latency = {name: self.latency[name].at(now_ms) for name in ready}
        part = {name: self.part.get(name, 0.0) for name in ready}
        for _ in range(_ROUNDS):
            # Every request sees those in flight before it, so shares settle at once: half a step at a time does too.
            loads = {name: (each, per_us * part[name] * each) for name, each in latency.items()}
            part = {name: (part[name] + found) / 2 for name, found in shares(loads).items()}
        total = sum(part.values())
        self.part = {name: each / total for name, each in part.items()}
        trials = frozenset(name for name in ready if self.ends[name].gate is Gate.LIMITED)
        self.spread.put({name: round(_FINE * part) for name, part in self.part.items()}, trials)


class LinkerdLike:
    """A proxy at each client: it probes nothing."""

    def __init__(self, run: Run) -> None:
        self._proxies = {client: _Proxy(run) for client in run.clients}
        for proxy in self._proxies.values():
            proxy.step((), (), 0)

    def wishes(self) -> Sequence[Wish]:
        """None."""
        return ()

    def step(self, seen: Seen) -> Sequence[Event]:
        """Answers first, then what time brings."""
        by_client: dict[str, list[Called]] = {client: [] for client in self._proxies}
        for called in seen.calls:
            by_client[called.client].append(called)
        sent = {client: [line for whose, line in seen.trials if whose == client] for client in self._proxies}
        words = {Gate.OPEN: What.CLOSE, Gate.SHUT: What.OPEN, Gate.LIMITED: What.TRIAL}
        return [
            Event(seen.now_ms, line, words[gate], client)
            for client, calls in by_client.items()
            for line, gate in self._proxies[client].step(calls, sent[client], seen.now_ms)
        ]

    def choice(self, client: str) -> Choice:
        """What two random choices come to."""
        return self._proxies[client].spread.choice
