"""A network that is a function of time, and a driver that plays a machine in it without a clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, NamedTuple

from reachline.core.observing.protocol import Observer
from reachline.core.observing.values import MS, SECOND, Ask, Purpose, Result, Told

__all__ = ["EPOCH", "Answer", "Driver", "Phase", "World", "chance"]

EPOCH: Final = 1_800_000_000 * SECOND
"""When the stories begin."""


class Answer(NamedTuple):
    """What a request begun at a moment comes to, and how long it takes."""

    took: int
    result: Result


class Phase(NamedTuple):
    """How an outbound is from a second on. `rtt` in ms; `failing` of a hundred requests are refused; a silent one never answers."""

    since: int
    rtt: int = 50
    failing: int = 0
    is_silent: bool = False
    status: int = 204


def chance(*of: object) -> int:
    """A number below 1 000 000 that depends on nothing but what it is of."""
    return int.from_bytes(blake2b(repr(of).encode(), digest_size=8).digest()) % 1_000_000


@dataclass(frozen=True, slots=True)
class World:
    """Phases of every outbound, in order of time; `outages` are spans of seconds in which our own network is down."""

    phases: Mapping[str, tuple[Phase, ...]]
    outages: tuple[tuple[int, int], ...] = ()

    def is_down(self, at: int) -> bool:
        second = (at - EPOCH) // SECOND
        return any(begin <= second < end for begin, end in self.outages)

    def answer(self, tag: str, url: str, at: int, timeout: int) -> Answer:
        """By which outbound, to where, when. The empty tag is no outbound: straight."""
        if self.is_down(at):
            return Answer(1 + chance("down", tag, url, at) % MS, Result(ok=False, reason="network is unreachable"))
        if not tag:
            return Answer(5 * MS + chance("up", url, at), Result(ok=True, rtt=5 * MS, status=204))
        second = (at - EPOCH) // SECOND
        now = [phase for phase in self.phases[tag] if phase.since <= second][-1]
        if now.is_silent:
            return Answer(timeout, Result(ok=False, reason="context deadline exceeded"))
        if chance("fails", tag, url, at) % 100 < now.failing:
            return Answer(1 + chance("took", tag, url, at), Result(ok=False, reason="connection refused"))
        rtt = now.rtt * MS + chance("rtt", tag, url, at) * 20
        return Answer(rtt, Result(ok=True, rtt=rtt, status=now.status))


@dataclass(slots=True)
class Driver:
    """Plays one machine. What ends at a moment is told before what is due then."""

    machine: Observer
    world: World
    now: int = EPOCH
    asked: list[tuple[int, Ask]] = field(default_factory=list)
    told: list[tuple[int, Told]] = field(default_factory=list)
    _ends: list[tuple[int, int, Result]] = field(default_factory=list)

    def until(self, moment: int) -> None:
        """Everything up to and with `moment`."""
        while True:
            ends = self._ends[0][0] if self._ends else None
            due = self.machine.deadline()
            following = [max(each, self.now) for each in (ends, due) if each is not None]
            if not following or min(following) > moment:
                break
            self.now = min(following)
            if ends is not None and ends <= self.now:
                _, serial, result = heapq.heappop(self._ends)
                self.told += ((self.now, each) for each in self.machine.ended(serial, result, self.now))
                continue
            for ask in self.machine.due(self.now):
                self._start(ask)
        self.now = moment

    def _start(self, ask: Ask) -> None:
        self.asked.append((self.now, ask))
        took, result = self.world.answer(ask.tag, ask.url, self.now, ask.timeout)
        if took >= ask.timeout:
            took, result = ask.timeout, Result(ok=False, reason="context deadline exceeded")
        heapq.heappush(self._ends, (self.now + took, ask.serial, result))

    def outbounds(self, tags: Iterable[str]) -> None:
        self.machine.outbounds(tags, self.now)

    def call(self, tag: str, passed: bool) -> None:
        """Somebody's connection ended now."""
        self.told += ((self.now, each) for each in self.machine.called(tag, passed, self.now))

    def each_second(self, seconds: int, look: Callable[[int], None], changes: Mapping[int, Iterable[str]]) -> None:
        """Play so many seconds; outbounds change at the beginning of some of them, and `look` is called at the end of each."""
        for second in range(seconds):
            if second in changes:
                self.now = EPOCH + second * SECOND
                self.outbounds(changes[second])
            self.until(EPOCH + (second + 1) * SECOND - 1)
            look(second)

    def probes(self, purpose: Purpose, since: int = EPOCH) -> list[tuple[int, Ask]]:
        return [(at, ask) for at, ask in self.asked if ask.purpose is purpose and at >= since]
