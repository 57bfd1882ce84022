"""Xray's burst Observatory with a `leastLoad` balancer, one in each client.

Facts (XTLS/Xray-core `app/observatory/burst`, `app/router`; XTLS documents): 10 requests (`sampling`) at random moments of
each window of `interval` 1 min × 10, and one at the start; 5 s to answer, any status is alive; a ring of as many results, valid
for two windows; alive while one of them passed; average and population deviation of those that did, half the average for a
single one. The balancer sorts by deviation, then average, failures, number, tag, and takes `expected` (here, as by default,
none named: the first). Moments are drawn once a run, not once a window, and no result is thrown away at a window's end,
both of which favour it a little.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from reachline.model import Kind
from reachline.simulate.contender import Choice, Event, Run, Seen, What, Wish
from reachline.simulate.peers.common import Spread, tiers
from reachline.simulate.peers.leastping import DEAD_MS, delay_of

__all__ = ["Node", "Ring", "XrayLeastLoad", "select"]

_INTERVAL_MS: Final = 60_000
_SAMPLING: Final = 10
_WINDOW_MS: Final = _INTERVAL_MS * _SAMPLING
_VALID_MS: Final = 2 * _WINDOW_MS
_TIMEOUT_MS: Final = 5_000
_ONCE_MS: Final = 10**12
"""An interval that no run is long enough for."""


class Node(NamedTuple):
    """One candidate as the balancer sorts them: the least first. Times in one unit, whichever."""

    cost: int
    average: int
    failed: int
    fewer: int
    """Minus the number of results."""
    tag: str


class Ring:
    """The newest results of one outbound, in microseconds; None: failed."""

    def __init__(self, capacity: int = _SAMPLING, valid_ms: int = _VALID_MS) -> None:
        self._results: deque[tuple[int, int | None]] = deque(maxlen=capacity)
        self._valid_ms = valid_ms

    def put(self, at_ms: int, rtt_us: int | None) -> None:
        """One result."""
        self._results.append((at_ms, rtt_us))

    @property
    def tried(self) -> bool:
        """Whether there ever was a result."""
        return bool(self._results)

    def node(self, tag: str, now_ms: int) -> Node | None:
        """What it comes to, of results still valid; None: dead, or never tried."""
        valid = [rtt for at_ms, rtt in self._results if now_ms - at_ms <= self._valid_ms]
        passed = [rtt for rtt in valid if rtt is not None]
        if not passed:
            return None
        average = sum(passed) // len(passed)
        if len(passed) == 1:
            deviation = average // 2
        else:
            deviation = int(math.sqrt(sum((rtt - average) ** 2 for rtt in passed) / len(passed)))
        return Node(deviation, average, len(valid) - len(passed), -len(valid), tag)


def select(nodes: Iterable[Node], *, expected: int = 0, baselines: Sequence[int] = ()) -> tuple[str, ...]:
    """The tags that share the traffic, best first: enough to have `expected`, by the first baseline that gives as many."""
    ranked = sorted(nodes)
    if expected > len(ranked):
        return tuple(node.tag for node in ranked)
    wanted = max(expected, 1)
    if not baselines:
        return tuple(node.tag for node in ranked[:wanted])
    count = 0
    for baseline in baselines:
        while count < len(ranked) and ranked[count].cost < baseline:
            count += 1
        if count >= wanted:
            break
    return tuple(node.tag for node in ranked[: max(count, expected)])


class XrayLeastLoad:
    """An observatory and a balancer in each client."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._tiers = tuple(tuple(line.name for line in tier) for tier in tiers(run))
        self._rings = {client: {line.name: Ring() for line in run.lines} for client in run.clients}
        self._alive = dict.fromkeys(((client, line.name) for client in run.clients for line in run.lines), True)
        self._spreads = {client: Spread() for client in run.clients}
        for client in run.clients:
            self._spreads[client].put({self._tiers[0][0]: 1})

    def wishes(self) -> Sequence[Wish]:
        """One request at the start, then `sampling` of them at random moments of every window."""
        found = []
        for client, line in self._alive:
            found.append(Wish(client, line, Kind.HTTP, _ONCE_MS, _TIMEOUT_MS))
            moments = [self._run.rng.randrange(_WINDOW_MS) for _ in range(_SAMPLING)]
            found += [Wish(client, line, Kind.HTTP, _WINDOW_MS, _TIMEOUT_MS, moment) for moment in moments]
        return tuple(found)

    def step(self, seen: Seen) -> Sequence[Event]:
        """Each result counts at once."""
        events: list[Event] = []
        for probed in seen.probes:
            rtt_us = None if delay_of(probed) >= DEAD_MS else probed.rtt_us
            self._rings[probed.wish.vantage][probed.wish.line].put(probed.at_ms, rtt_us)
        for client in dict.fromkeys(probed.wish.vantage for probed in seen.probes):
            events += self._choose(client, seen.now_ms)
        return events

    def choice(self, client: str) -> Choice:
        """Even over the selected lines."""
        return self._spreads[client].choice

    def _choose(self, client: str, now_ms: int) -> list[Event]:
        nodes = {tag: node for tag, ring in self._rings[client].items() if (node := ring.node(tag, now_ms))}
        chosen: tuple[str, ...] = ()
        for tier in self._tiers:
            chosen = chosen or select(nodes[tag] for tag in tier if tag in nodes)
        events = self._turned(client, nodes.keys(), now_ms)
        spread = self._spreads[client]
        left = [tag for tag in spread.choice.weights if tag not in chosen]
        spread.put(dict.fromkeys(chosen or self._tiers[0][:1], 1))
        return events + [Event(now_ms, tag, What.CUT, client) for tag in left if tag in nodes]

    def _turned(self, client: str, alive: Iterable[str], now_ms: int) -> list[Event]:
        events = []
        for tag, ring in self._rings[client].items():
            is_alive = tag in set(alive) or not ring.tried
            if is_alive is not self._alive[client, tag]:
                self._alive[client, tag] = is_alive
                events.append(Event(now_ms, tag, What.CLOSE if is_alive else What.OPEN, client))
        return events
