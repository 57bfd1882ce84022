"""Outlier detection of this process beside a center's list: lines are ejected by what calls here come to, as in a cluster kept in process.

The stricter of the two wins: an ejected line is out as one whose local breaker is open, so that groups fail over by the same formulas. The
last line that carries anything stays. Refuses to know lists, pickers and locks.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from reachline.core.local import UNTRIED, LocalBreaker
from reachline.core.outlier import Outliers
from reachline.core.outlier_events import Action, Event
from reachline.core.outlier_rules import OutlierRules
from reachline.model import Gate, LineId, Seconds
from reachline.upstream.outcome import Column
from reachline.upstream.shown import shown

__all__ = ["Ejecting"]

_log: Final = logging.getLogger("reachline.upstream.cluster")


class Ejecting:
    """Of one cluster in one process; written under the cluster's lock, but for `tell`."""

    def __init__(self, rules: OutlierRules, *, clock: Callable[[], Seconds], rng: Random) -> None:
        self._rules, self._clock = rules, clock
        self._lines: Mapping[LineId, int] = {}
        self._untold: Final[deque[Event]] = deque()
        self.forked(rng)

    def forked(self, rng: Random) -> None:
        """In a forked child: what calls came to is the parent's."""
        self._outliers = Outliers(self._rules, seed=rng.getrandbits(63), now_ms=self._now_ms())
        self._untold.clear()
        self.replace(self._lines)

    @property
    def ejected(self) -> frozenset[str]:
        """Lines that are out by it, by id."""
        return self._outliers.ejected

    @property
    def trips(self) -> int:
        """Ejections so far."""
        return self._outliers.counts.get("ejections_enforced_total", 0)

    def replace(self, lines: Mapping[LineId, int]) -> None:
        """The cluster's lines with their weights, as published now."""
        self._lines = lines
        self._note(self._outliers.replace(dict.fromkeys(lines, 0), self._now_ms()))

    def saw(self, line: LineId, column: Column, elapsed: Seconds | None, code: int | None) -> bool:
        """One call's end; whether that moved a line out."""
        seen = shown(column)
        if seen is None:
            return False
        took_us = None if elapsed is None or column is not Column.OK else int(elapsed * 1e6)
        return self._note(self._outliers.saw(line, seen, self._now_ms(), code=code, took_us=took_us))

    def turn(self) -> None:
        """Let sweeps and returns that are due take effect."""
        if self._outliers.deadline() <= self._now_ms():
            self._note(self._outliers.turn(self._now_ms()))

    def deadline_ms(self) -> int:
        """When `turn` is due."""
        return self._outliers.deadline()

    def over(self, rows: Mapping[LineId, LocalBreaker]) -> Mapping[LineId, LocalBreaker]:
        """The local breakers, with those open too that outlier detection holds out."""
        out = {line: row for line, row in rows.items() if row.gate is not Gate.CLOSED}
        found = dict(rows)
        for line in sorted(self._outliers.ejected):
            known = LineId(line)
            others = (weight for each, weight in self._lines.items() if each not in out and each != known)
            if known not in out and any(others):
                until_ms = self._outliers.until_ms(line) or 0
                out[known] = found[known] = rows.get(known, UNTRIED)._replace(gate=Gate.OPEN, until_ms=until_ms)
        return found

    def tell(self) -> None:
        """Log ejections and returns. By whoever brought them about, once the lock is free: a log's handler may make calls itself."""
        while self._untold:
            try:
                each = self._untold.popleft()
            except IndexError:
                return  # another thread was faster
            fields = {"line": each.line, "detector": each.detector.value, "ejections": each.ejections}
            if each.action is Action.EJECT:
                _log.warning("line_ejected", extra=fields)
            else:
                _log.info("line_returned", extra={**fields, "by": each.why})

    def _note(self, events: tuple[Event, ...]) -> bool:
        """Keep ejections and returns until they are told; whether there are any."""
        acted = [each for each in events if each.enforced and each.action is not Action.HELD]
        self._untold.extend(acted)
        return bool(acted)

    def _now_ms(self) -> int:
        return int(self._clock() * 1_000)
