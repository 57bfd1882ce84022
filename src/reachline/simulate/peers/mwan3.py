"""mwan3, OpenWrt's multi-WAN package: one router at each client pings over every line and takes silent ones out.

Facts: the tracker's script and the interface section that the package shipped for years (openwrt/packages, net/mwan3:
`mwan3track`, `etc/config/mwan3`): two addresses to ping every 5 s, 2 s to answer, one of them must (`reliability` 1), `down` 3,
`up` 8, `last_resort` default. The script's own fallbacks (10 s, 4 s, 5 and 5) are slower and were not taken.
Latency and loss limits (`check_quality`) are off by default, and here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from reachline.model import Kind
from reachline.simulate.contender import Choice, Event, Run, Seen, What, Wish
from reachline.simulate.peers.common import Spread, tiers

__all__ = ["Mwan3Like", "Score"]

_INTERVAL_MS: Final = 5_000
_TIMEOUT_MS: Final = 2_000
_ADDRESSES: Final = 2
_RELIABILITY: Final = 1
_DOWN: Final = 3
_UP: Final = 8


class Score(NamedTuple):
    """One line's counter: full while well, down to `up` is offline, and from 0 back up to `up` is online again."""

    value: int
    down: int = _DOWN
    up: int = _UP
    online: bool = True

    @classmethod
    def full(cls, down: int = _DOWN, up: int = _UP) -> Score:
        """A line that was never silent."""
        return cls(down + up, down, up)

    def after(self, *, answered: bool) -> Score:
        """The score after one round."""
        if answered:
            value = self.value + 1
            if value >= self.up:
                return self._replace(value=self.down + self.up, online=True)
            return self._replace(value=value)
        value = self.value - 1
        if value <= self.up:
            return self._replace(value=0, online=False)
        return self._replace(value=value)


class Mwan3Like:
    """A router at each client."""

    def __init__(self, run: Run) -> None:
        self._run, self._tiers = run, tiers(run)
        self._scores = {(client, line.name): Score.full() for client in run.clients for line in run.lines}
        self._rounds: dict[tuple[str, str], list[bool]] = {key: [] for key in self._scores}
        self._spreads = {client: Spread() for client in run.clients}
        for client in run.clients:
            self._spread(client)

    def wishes(self) -> Sequence[Wish]:
        """Two addresses over each line, all trackers started at a moment of their own."""
        return tuple(
            Wish(client, line, Kind.ICMP, _INTERVAL_MS, _TIMEOUT_MS, self._run.rng.randrange(_INTERVAL_MS), _ADDRESSES)
            for client, line in self._scores
        )

    def step(self, seen: Seen) -> Sequence[Event]:
        """A round is judged when all its echoes have ended."""
        events = []
        for probed in seen.probes:
            key = probed.wish.vantage, probed.wish.line
            answers = self._rounds[key]
            answers.append(probed.failure is None)
            if len(answers) >= probed.wish.burst:
                events += self._judge(key, seen.now_ms, answered=sum(answers) >= _RELIABILITY)
                answers.clear()
        return events

    def choice(self, client: str) -> Choice:
        """By weight over the lines that are online."""
        return self._spreads[client].choice

    def _judge(self, key: tuple[str, str], now_ms: int, *, answered: bool) -> list[Event]:
        was = self._scores[key]
        now = self._scores[key] = was.after(answered=answered)
        if was.online is now.online:
            return []
        client, line = key
        self._spread(client)
        return [Event(now_ms, line, What.CLOSE if now.online else What.OPEN, client)]

    def _spread(self, client: str) -> None:
        for tier in self._tiers:
            online = {line.name: line.base for line in tier if self._scores[client, line.name].online}
            if online:
                self._spreads[client].put(online)
                return
        self._spreads[client].put({line.name: line.base for line in self._tiers[0]})
