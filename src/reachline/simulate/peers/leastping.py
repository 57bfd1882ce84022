"""Xray's standard Observatory with a `leastPing` balancer, one in each client.

Facts (XTLS/Xray-core `app/observatory`, `app/router`; XTLS documents): one HTTP request through each outbound in the order of
tags, `probeInterval` 10 s of sleep after *each* (so N lines take N × 10 s a cycle), 5 s to answer, any status is alive, one
failure is dead; the balancer takes the alive one with the lowest delay, the first of equals, never one that was not
observed; with none it takes the first outbound. A request's own time is not added to the cycle here, which favours it a little.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from reachline.model import Failure, Kind
from reachline.simulate.contender import Choice, Event, Probed, Run, Seen, What, Wish
from reachline.simulate.peers.common import Spread, tiers

__all__ = ["DEAD_MS", "XrayLeastPing", "delay_of", "least"]

_INTERVAL_MS: Final = 10_000
_TIMEOUT_MS: Final = 5_000
DEAD_MS: Final = 99_999_999
"""The delay of a dead outbound, which no alive one reaches."""


def delay_of(probed: Probed) -> int:
    """Whole ms of one request, any status; `DEAD_MS` where it failed."""
    if probed.rtt_us is None or probed.failure not in (None, Failure.STATUS):
        return DEAD_MS
    return probed.rtt_us // 1_000


def least(delays: Mapping[str, int], candidates: Sequence[str]) -> str | None:
    """The alive candidate with the lowest delay, in the order in which they were first observed; None: none is alive."""
    best, found = DEAD_MS, None
    for tag, delay in delays.items():
        if tag in candidates and delay < best:
            best, found = delay, tag
    return found


class XrayLeastPing:
    """An observatory and a balancer in each client."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._tags = sorted(line.name for line in run.lines)
        self._tiers = tuple(tuple(line.name for line in tier) for tier in tiers(run))
        self._delays: dict[str, dict[str, int]] = {client: {} for client in run.clients}
        self._spreads = {client: Spread() for client in run.clients}
        for client in run.clients:
            self._spreads[client].put({self._tiers[0][0]: 1})

    def wishes(self) -> Sequence[Wish]:
        """One line after the other, each client from a moment of its own."""
        cycle_ms = _INTERVAL_MS * len(self._tags)
        starts = {client: self._run.rng.randrange(_INTERVAL_MS) for client in self._run.clients}
        return tuple(
            Wish(client, tag, Kind.HTTP, cycle_ms, _TIMEOUT_MS, start + number * _INTERVAL_MS)
            for client, start in starts.items()
            for number, tag in enumerate(self._tags)
        )

    def step(self, seen: Seen) -> Sequence[Event]:
        """Each result counts at once."""
        events: list[Event] = []
        for probed in seen.probes:
            client, tag = probed.wish.vantage, probed.wish.line
            delays = self._delays[client]
            was, now = delays.get(tag, 0), delay_of(probed)
            delays[tag] = now
            if (was >= DEAD_MS) != (now >= DEAD_MS):
                events.append(Event(seen.now_ms, tag, What.OPEN if now >= DEAD_MS else What.CLOSE, client))
            events += self._choose(client, seen.now_ms)
        return events

    def choice(self, client: str) -> Choice:
        """One line has it all."""
        return self._spreads[client].choice

    def _choose(self, client: str, now_ms: int) -> list[Event]:
        delays, spread = self._delays[client], self._spreads[client]
        found = next((tag for tier in self._tiers if (tag := least(delays, tier))), self._tiers[0][0])
        left = [tag for tag in spread.choice.weights if tag != found]
        spread.put({found: 1})
        return [Event(now_ms, tag, What.CUT, client) for tag in left if delays.get(tag, 0) < DEAD_MS]
