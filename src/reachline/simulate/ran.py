"""One run to be scored, and the questions that every figure asks of it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from reachline.simulate.contender import Run, What
from reachline.simulate.fleet import Sums
from reachline.simulate.observe import Observer, Second
from reachline.simulate.reach.told import Told
from reachline.simulate.scenarios import ALL
from reachline.simulate.timeline import ms

__all__ = ["FULL", "Fault", "Figure", "Ran", "between", "faults_of", "first"]

Figure = float | bool | str | list[float] | None
FULL = 0.95
"""Of its share: a line that has so much is back."""


class Fault(NamedTuple):
    """One line's fault from its onset to its repair, in ms."""

    line: str
    begin: int
    end: int
    down: int | None
    """When its truth class becomes down, if it does."""


class Ran(NamedTuple):
    """One run, and what it is held against."""

    run: Run
    seen: Observer
    oracle: Sums
    told: Told | None = None

    @property
    def hours(self) -> float:
        """Line-hours."""
        return self.seen.end_ms / 3_600_000 * len(self.run.lines)


def faults_of(ran: Ran) -> tuple[Fault, ...]:
    """Truths that touch each other are one fault."""
    found: list[Fault] = []
    for line in ran.run.lines:
        truths = sorted(
            (ms(one.from_), ms(one.to), one.class_) for one in ran.seen.scenario.truth if one.line in {line.name, ALL}
        )
        for begin, end, word in truths:
            down = begin if word == "down" else None
            last = found[-1] if found else None
            if last is not None and last.line == line.name and last.end >= begin:
                found[-1] = last._replace(end=max(last.end, end), down=last.down if last.down is not None else down)
            else:
                found.append(Fault(line.name, begin, end, down))
    return tuple(found)


def first(ran: Ran, line: str, what: Iterable[What], since_ms: int) -> int | None:
    """When it was first decided, for all or by half of the clients."""
    wanted, single = set(what), dict[str, int]()
    for event in ran.seen.events:
        if event.line == line and event.what in wanted and event.at_ms >= since_ms:
            if not event.client:
                return event.at_ms
            single.setdefault(event.client, event.at_ms)
    half = math.ceil(len(ran.run.clients) / 2)
    return sorted(single.values())[half - 1] if len(single) >= half else None


def between(ran: Ran, begin: int, end: int) -> list[Second]:
    """The full seconds from `begin` until before `end`, both in ms."""
    seconds = ran.seen.seconds
    return seconds[max(0, -(-begin // 1_000)) : max(0, -(-end // 1_000))]
