"""What one process knows of a kept cluster's endpoints, and how it changes: by updates, checks, calls and time.

Pure but for its own state: `now_ms` comes in, what happened goes out. Refuses to know locks, pickers and logs.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from reachline.core.checking import After, Verdict
from reachline.core.outlier import Outliers
from reachline.core.outlier_events import Action, Event, Saw
from reachline.core.pick import Memory
from reachline.core.pick.peak_ewma import began, ended, left, settle
from reachline.members import Membership
from reachline.model import Seconds
from reachline.upstream.outcome import Column
from reachline.upstream.roll import Roll
from reachline.upstream.settings import ClusterSettings
from reachline.upstream.told import check_counters

__all__ = ["NOTHING", "Judged", "Moved"]

_SAWS: Final = {
    Column.OK: Saw.ANSWERED, Column.ERRORS: Saw.FAILED, Column.LATE: Saw.TIMEOUT, Column.FAILED: Saw.UNCONNECTED,
}  # fmt: skip
"""What a call's end shows outlier detection, as Envoy's router tells it: a reset is of our own side there too."""
_SETTLE_MS: Final = 1_000
"""Between two looks at averages that fade."""


class Moved(NamedTuple):
    """Whether pickers see a difference, and what outlier detection decided."""

    is_moved: bool = False
    events: tuple[Event, ...] = ()


NOTHING: Final = Moved()


class Judged:
    """Written under its cluster's lock."""

    def __init__(self, settings: ClusterSettings, *, seed: int, now_ms: int) -> None:
        self.roll: Final = Roll(settings)
        self.outliers: Outliers | None = None
        self.memory = Memory(seed=seed & 0xFFFF_FFFF)
        self.counts: Counter[str] = Counter()
        """By Envoy's names."""
        self.restart_ms: int | None = None
        """When slow start wants another picker."""
        self._settings: Final = settings
        self._settled_ms = now_ms
        self.begin_anew(seed, now_ms)

    def begin_anew(self, seed: int, now_ms: int) -> None:
        """Forget calls and ejections, which are another process's; endpoints and what checks made of them stay."""
        rules = self._settings.outliers
        self.outliers = None if rules is None else Outliers(rules, seed=seed, now_ms=now_ms)
        self.memory = Memory(seed=seed & 0xFFFF_FFFF, hashes=self.memory.hashes)
        self.counts = Counter()
        self._readmit(now_ms)

    def retire(self, now_ms: int) -> None:
        """Nobody will turn ejections back any more: there are none."""
        self.outliers = None
        self._readmit(now_ms)

    @property
    def splits(self) -> bool:
        """Whether connects are counted apart from answers."""
        return self.outliers is not None and self.outliers.rules.split_external_local_origin_errors

    def ejected(self) -> frozenset[str]:
        """Endpoints that are out by outlier detection, by `address:port`."""
        return frozenset() if self.outliers is None else self.outliers.ejected

    def update(self, membership: Membership, now_ms: int) -> Moved:
        """Take the endpoints as they are now."""
        self.counts["membership_change"] += self.roll.replace(membership, now_ms)
        return Moved(True, self._readmit(now_ms))

    def checked(self, key: str, after: After, verdict: Verdict, now_ms: int) -> Moved:
        """Take a check's result. The endpoint's ejection may be over by it, or its stay."""
        self.counts.update([f"health_check.{name}" for name in check_counters(verdict)])
        size = len(self.roll)
        is_moved = self.roll.checked(key, after.check, now_ms)
        if len(self.roll) < size:
            self.counts["membership_change"] += 1
            return Moved(True, self._readmit(now_ms))
        if self.outliers is None or verdict.fault is not None or after.check.failed:
            return Moved(is_moved)
        found = self._obeyed(self.outliers.passed_check(key, now_ms), now_ms)
        return Moved(is_moved or found.is_moved, found.events)

    def began(self, key: str) -> None:
        """A call to an endpoint begins, by what its calls are counted by."""
        began(self.memory.load(key))

    def ended(self, key: str, column: Column, elapsed: Seconds, now_ms: int, *, patience: Seconds) -> None:
        """That call has ended."""
        load = self.memory.loads.get(key)
        if load is None:
            return
        if column is Column.NONE:
            left(load)
        else:
            ended(load, elapsed * 1e6, now_ms, failed=column is not Column.OK, patience_us=patience * 1e6)

    def called(self, key: str, column: Column, elapsed: Seconds | None, code: int | None, now_ms: int) -> Moved:
        """What a whole call came to, for outlier detection."""
        if self.outliers is None or column is Column.NONE:
            return NOTHING
        took_us = None if elapsed is None or column is not Column.OK else int(elapsed * 1e6)
        found = self.saw(key, _SAWS[column], now_ms, code=code, took_us=took_us)
        if code is not None and self.splits:
            # Who answers was reached. (Envoy hears of that once a connection.)
            more = self.saw(key, Saw.CONNECTED, now_ms)
            found = Moved(found.is_moved or more.is_moved, found.events + more.events)
        return found

    def saw(self, key: str, saw: Saw, now_ms: int, *, code: int | None = None, took_us: int | None = None) -> Moved:
        """One thing seen of an endpoint."""
        if self.outliers is None:
            return NOTHING
        return self._obeyed(self.outliers.saw(key, saw, now_ms, code=code, took_us=took_us), now_ms)

    def turn(self, now_ms: int) -> Moved:
        """Let a sweep, a return or a step of slow start take effect."""
        found = NOTHING
        if self.outliers is not None and self.outliers.deadline() <= now_ms:
            found = self._obeyed(self.outliers.turn(now_ms), now_ms)
        if self._fades and now_ms >= self._settled_ms + _SETTLE_MS:
            settle(self.memory.loads.values(), now_ms)
            self._settled_ms = now_ms
        restarts = self.restart_ms is not None and self.restart_ms <= now_ms
        return Moved(found.is_moved or restarts, found.events)

    def deadline(self) -> int | None:
        """When `turn` is due, in ms."""
        moments = [] if self.outliers is None else [self.outliers.deadline()]
        if self.restart_ms is not None:
            moments.append(self.restart_ms)
        if self._fades:
            moments.append(self._settled_ms + _SETTLE_MS)
        return min(moments, default=None)

    @property
    def _fades(self) -> bool:
        return self._settings.policy.name == "peak_ewma"

    def _readmit(self, now_ms: int) -> tuple[Event, ...]:
        """Tell outlier detection who is here now, and obey what it remembers of them."""
        events: tuple[Event, ...] = ()
        if self.outliers is not None:
            events = self.outliers.replace(self.roll.priorities(), now_ms)
        self.roll.eject_only(self.ejected(), now_ms)
        return events

    def _obeyed(self, events: tuple[Event, ...], now_ms: int) -> Moved:
        """Ejections and returns take effect."""
        if not events:
            return NOTHING
        acted = [each for each in events if each.enforced and each.action is not Action.HELD]
        moved = [self.roll.eject(each.line, each.action is Action.EJECT, now_ms) for each in acted]
        return Moved(any(moved), events)
