"""Lines that were open, or are on their way back: what a client with connections of its own needs to know of them.

Kept beside the picker, so that a line that never was ill costs nothing on the way of a call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from time import monotonic
from typing import Final

from reachline.core.local import LocalBreaker
from reachline.core.returning import Flight, Pace, calls_most
from reachline.core.rules import LocalRules
from reachline.model import Gate, LineId, Seconds
from reachline.upstream.listing import LineList, Pick

__all__ = ["Care", "Cares", "other", "spared"]


class Care:
    """One line's. Gate and openings are written under the cluster's lock; calls and connections by whoever makes them."""

    __slots__ = ("_flight", "_is_open", "_most", "_pace", "gate", "openings")

    openings: int
    """How often it was open, here or at the center: a connection made before the last time is not to be used again."""
    gate: Gate
    """The center's breaker."""

    def __init__(self, openings: int = 0) -> None:
        self.openings = openings
        self.gate = Gate.CLOSED
        self._is_open = False
        self._most: Callable[[], int] = lambda: 1
        self._flight: Final = Flight()
        self._pace: Pace | None = None

    def enter(self) -> bool:
        """Whether one more call may begin: on trial only so many at a time. Each that may is to `leave`."""
        return self._flight.enter(self._most() if self.gate is Gate.HALF_OPEN else None)

    def insist(self) -> None:
        """A call begins, limit or not, for there is no other line."""
        self._flight.enter(None)

    def leave(self) -> None:
        """A call has ended."""
        self._flight.leave()

    def may_connect(self) -> bool:
        """Whether a new connection may be made now: so many in any second, while the line returns."""
        pace = self._pace
        return pace is None or pace.take(int(monotonic() * 1_000))

    def move(self, gate: Gate, *, is_open: bool, rules: LocalRules, most: Callable[[], int]) -> None:
        """A new list, or a step of the local breaker."""
        self.openings += is_open and not self._is_open
        is_returning = gate in (Gate.HALF_OPEN, Gate.RAMP)
        if not is_returning:
            self._pace = None
        elif self._pace is None:
            self._pace = Pace(rules.ramp_connects, int(monotonic() * 1_000))
        self._is_open, self.gate, self._most = is_open, gate, most


class Cares:
    """All of a cluster's. Written under its lock."""

    __slots__ = ("_concurrency", "_known", "_rules", "_since")

    def __init__(self) -> None:
        self._known: dict[LineId, Care] = {}
        self._concurrency = 0
        self._since: Seconds | None = None
        self._rules = LocalRules()

    def seen(self, busy: Seconds, now: Seconds) -> None:
        """Calls that ended since the last time took `busy` seconds together: divided by the time between, that many were in flight."""
        if self._since is not None and now > self._since:
            # What was a moment ago fades by half each time, so that a lull of a second does not starve a trial.
            self._concurrency = max(round(busy / (now - self._since)), self._concurrency // 2)
        self._since = now

    def applied(self, lines: LineList, picks: Sequence[Pick], rows: Mapping[LineId, LocalBreaker]) -> list[Pick]:
        """The picks, with the care that those lines need which were open or are returning."""
        self._rules = lines.local
        found = list(picks)
        for place, (line, pick) in enumerate(zip(lines.lines, picks, strict=True)):
            row = rows.get(pick.line)
            is_open = line.breaker is Gate.OPEN or (row is not None and row.gate is Gate.OPEN)
            care = self._known.get(pick.line)
            if care is None:
                if line.breaker is Gate.CLOSED and not is_open:
                    continue
                care = self._known[pick.line] = Care()
            care.move(line.breaker, is_open=is_open, rules=lines.local, most=self._most)
            found[place] = pick._replace(care=care)
        if len(self._known) > len(picks):
            self._known = {pick.line: pick.care for pick in found if pick.care is not None}
        return found

    def forked(self) -> None:
        """In a forked child: openings stay, calls in flight are the parent's."""
        self._known = {line: Care(each.openings) for line, each in self._known.items()}
        self._since = None

    def _most(self) -> int:
        return calls_most(self._rules, self._concurrency)


def other(offers: Sequence[tuple[Pick, float]], rng: Random, tried: Sequence[Pick]) -> Pick | None:
    """Another line than those `tried`, by its share; never one on its one trial here, for which any call is good enough."""
    lines = {each.line for each in tried}
    left = [(pick, share) for pick, share in offers if pick.line not in lines and not pick.is_trial]
    return rng.choices([pick for pick, _ in left], [share for _, share in left])[0] if left else None


def spared(pick: Pick, offers: Sequence[tuple[Pick, float]], rng: Random) -> Pick:
    """The pick, or another one where its line has as many calls in flight as it may have now; the call is counted."""
    if pick.care is None or pick.care.enter():
        return pick
    instead = None if pick.is_trial else other(offers, rng, (pick,))
    if instead is None:
        pick.care.insist()
        return pick
    if instead.care is not None:
        instead.care.insist()
    return instead
