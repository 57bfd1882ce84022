"""What one process knows of a kept cluster's endpoints, and how it changes: by updates, checks, calls and time.

Pure but for its own state: `now_ms` comes in, what happened goes out. Refuses to know locks, pickers and logs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from reachline.core.checking import After, Verdict
from reachline.core.outlier import Outliers
from reachline.core.outlier_events import Action, Event, Saw
from reachline.core.pick import Member as Seat
from reachline.core.pick import Memory
from reachline.core.pick.orca import Report
from reachline.core.pick.peak_ewma import began, ended, left, settle
from reachline.members import Membership
from reachline.model import Seconds
from reachline.upstream.listing import Pick
from reachline.upstream.outcome import Column
from reachline.upstream.reported import Reports
from reachline.upstream.roll import Roll
from reachline.upstream.settings import ClusterSettings
from reachline.upstream.shown import shown
from reachline.upstream.told import check_counters

__all__ = ["NOTHING", "Judged", "Moved"]

_OK: Final = Column.OK
_NONE: Final = Column.NONE
_CONNECTED: Final = Saw.CONNECTED
_SETTLE_MS: Final = 1_000
"""Between two looks at averages that fade."""


class Moved(NamedTuple):
    """Whether pickers see a difference, and what outlier detection decided."""

    is_moved: bool = False
    events: tuple[Event, ...] = ()
    may_wait: bool = True
    """Whether it may wait for more of it: what checks and calls make of endpoints, not what discovery says."""


NOTHING: Final = Moved()


class Judged:
    """Written under its cluster's lock."""

    def __init__(self, settings: ClusterSettings, *, seed: int, now_ms: int) -> None:
        self.roll: Final = Roll(settings)
        self.outliers: Outliers | None = None
        self.memory = Memory(seed=seed & 0xFFFF_FFFF)
        self.counts: Counter[str] = Counter()
        """By Envoy's names."""
        self.ends = [0] * len(Column)
        """Calls by how they ended. Here, not in the tally, whose rows nobody takes: one lock less on the way of a call."""
        self.restart_ms: int | None = None
        """When slow start wants another picker."""
        weighing = settings.policy.weighing
        self.reports: Final = None if weighing is None else Reports(weighing)
        """Loads that endpoints report; None: nobody asks."""
        self._weights: tuple[int, ...] = ()
        """That are served, where reports make them."""
        self._settings: Final = settings
        self._averages: Final = settings.policy.name == "peak_ewma"
        """Whether anybody reads how long answers take: averages cost a fifth of an attempt."""
        rules = settings.outliers
        self.is_plain: Final = not self._averages and not (
            rules is not None and (rules.latency or rules.split_external_local_origin_errors)
        )
        """Whether nobody asks when a call that went well ended, or how long it took: then `went_well` says it all."""
        self._settled_ms = now_ms
        self.begin_anew(seed, now_ms)

    def begin_anew(self, seed: int, now_ms: int) -> None:
        """Forget calls and ejections, which are another process's; endpoints and what checks made of them stay."""
        rules = self._settings.outliers
        self.outliers = None if rules is None else Outliers(rules, seed=seed, now_ms=now_ms)
        self.memory = Memory(seed=seed & 0xFFFF_FFFF, hashes=self.memory.hashes, tables=self.memory.tables)
        self.counts, self.ends = Counter(), [0] * len(Column)
        if self.reports is not None:
            self.reports.forget()
        self._readmit(now_ms)

    def retire(self, now_ms: int) -> None:
        """Nobody will turn ejections back any more: there are none."""
        self.outliers = None
        self._readmit(now_ms)

    def ejected(self) -> frozenset[str]:
        """Endpoints that are out by outlier detection, by `address:port`."""
        return frozenset() if self.outliers is None else self.outliers.ejected

    def update(self, membership: Membership, now_ms: int) -> Moved:
        """Take the endpoints as they are now."""
        self.counts["membership_change"] += self.roll.replace(membership, now_ms)
        return Moved(True, self._readmit(now_ms), may_wait=False)

    def checked(self, key: str, after: After, verdict: Verdict, now_ms: int) -> Moved:
        """Take a check's result. The endpoint's ejection may be over by it, or its stay."""
        self.counts.update([f"health_check.{name}" for name in check_counters(verdict)])
        size = len(self.roll)
        is_moved = self.roll.checked(key, after.check, now_ms)
        if len(self.roll) < size:
            self.counts["membership_change"] += 1
            return Moved(True, self._readmit(now_ms), may_wait=False)
        if self.outliers is None or verdict.fault is not None or after.check.failed:
            return Moved(is_moved)
        found = self._obeyed(self.outliers.passed_check(key, now_ms), now_ms)
        return Moved(is_moved or found.is_moved, found.events)

    def seats(self, now_ms: int) -> Sequence[Seat[Pick]]:
        """What a picker is built of, each with the weight that counts now."""
        seats = self.roll.seats()
        return seats if self.reports is None else self.reports.weigh(seats, now_ms)

    def served(self, seats: Sequence[Seat[Pick]], restart_ms: int | None) -> None:
        """A picker of these is in place; slow start wants another at `restart_ms`. Who is gone is forgotten."""
        self.restart_ms = restart_ms
        if self.memory.holds_more_than(len(seats)):
            self.memory.keep(seat.key for seat in seats)
        if self.reports is not None:
            self._weights = tuple(seat.weight for seat in seats)
            self.reports.keep(seat.key for seat in seats)

    def began(self, key: str) -> None:
        """A call to an endpoint begins, by what its calls are counted by."""
        load = self.memory.loads.get(key)
        if load is None:
            load = self.memory.load(key)
        if self._averages:
            began(load)
        else:
            load.active += 1

    def went_well(self, key: str, line: str) -> None:
        """`ended` and `called` of a call that went well, while `is_plain`: counted by `key`, judged by `line`."""
        self.ends[0] += 1
        load = self.memory.loads.get(key)
        if load is not None and load.active > 0:
            load.active -= 1
        outliers = self.outliers
        if outliers is not None:
            outliers.well(line)

    def ended(self, key: str, column: Column, elapsed: Seconds, now_ms: int, *, patience: Seconds) -> None:
        """That call has ended."""
        load = self.memory.loads.get(key)
        if load is None:
            return
        if self._averages and column is not _NONE:
            ended(load, elapsed * 1e6, now_ms, failed=column is not _OK, patience_us=patience * 1e6)
        else:
            left(load)

    def called(self, key: str, column: Column, elapsed: Seconds | None, code: int | None, now_ms: int) -> Moved:
        """What a whole call came to, for outlier detection."""
        self.ends[column] += 1
        outliers, seen = self.outliers, shown(column)
        if outliers is None or seen is None:
            return NOTHING
        took_us = None if elapsed is None or column is not _OK else int(elapsed * 1e6)
        events = outliers.saw(key, seen, now_ms, code=code, took_us=took_us)
        if code is not None and outliers.rules.split_external_local_origin_errors:
            # Who answers was reached. (Envoy hears of that once a connection.)
            events += outliers.saw(key, _CONNECTED, now_ms)
        return self._obeyed(events, now_ms) if events else NOTHING

    def told(self, key: str, report: Report, now_ms: int) -> None:
        """The load that an endpoint reports, by what its calls are counted by; weights follow once they are due."""
        if self.reports is not None:
            self.reports.told(key, report, now_ms)

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
        if self._averages and now_ms >= self._settled_ms + _SETTLE_MS:
            settle(list(self.memory.loads.values()), now_ms)  # at once: whoever builds a picker aside adds to them
            self._settled_ms = now_ms
        restarts = self.restart_ms is not None and self.restart_ms <= now_ms
        return Moved(found.is_moved or restarts or self._reweighs(now_ms), found.events)

    def deadline(self) -> int | None:
        """When `turn` is due, in ms."""
        moments = [] if self.outliers is None else [self.outliers.deadline()]
        if self.restart_ms is not None:
            moments.append(self.restart_ms)
        if self._averages:
            moments.append(self._settled_ms + _SETTLE_MS)
        if self.reports is not None and self.reports.due_ms is not None:
            moments.append(self.reports.due_ms)
        return min(moments, default=None)

    def _reweighs(self, now_ms: int) -> bool:
        """Whether reports make other weights than those that are served."""
        reports = self.reports
        if reports is None or reports.due_ms is None or reports.due_ms > now_ms:
            return False
        return reports.turn(self.roll.seats(), self._weights, now_ms)

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
