"""One cluster in one process: its newest line list, the picker made of it, and what calls on it came to.

A driver (the client's thread, later the proxy's loop) feeds it lists and turns its timers; callers pick from any thread.
Refuses to know where lists come from and where outcomes go. Nothing here waits, and nothing raises on a caller.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from random import Random
from typing import Final, TypeVar, Unpack

from reachline.core.local import UNTRIED, LocalBreaker, claim, deadline, is_blocked, is_forgotten, may_trip
from reachline.core.outlier_rules import OutlierRules
from reachline.core.pick import WeightedRandom
from reachline.core.regroup import admissions
from reachline.core.weigh import MILLI
from reachline.model import Failure, Gate, LineId, Outcome, Seconds, Version
from reachline.upstream.attempt import Attempt
from reachline.upstream.care import Cares, other, spared
from reachline.upstream.judging import announce, announce_misuse, broken, ejecting, judged
from reachline.upstream.lately import Lately
from reachline.upstream.listing import Key, LineList, Listed, Pick, is_pick
from reachline.upstream.outcome import Column, FailureName, column_of_word, pace_of
from reachline.upstream.planned import Admitting, admitted, spread
from reachline.upstream.present import Present
from reachline.upstream.stats import ClusterStats, Source
from reachline.upstream.tally import Tally
from reachline.upstream.tries import Plan, Try, acall, attempts, call

__all__ = ["Cluster"]

_log: Final = logging.getLogger(__name__)

T = TypeVar("T")

_OK, _FAILED, _LATE = Column.OK, Column.FAILED, Column.LATE
"""By name here, as in `attempt`: on the way of every call."""
_EMPTY: Final[WeightedRandom[Pick]] = WeightedRandom((), ())
_REPICKS: Final = 4
"""Tries for a line whose one trial another thread took first; each try sees a newer picker."""
_NEVER: Final = -(10**12)
"""Ms. Long before any clock began: no center was ever heard."""


class Cluster:
    """Lists and timers are written by the driver alone; breakers by whoever ends a call, under `_lock`.

    `_lock` guards `_rows`, `_trips`, `_misuses` and the making of a new picker. `pick` reads one reference and takes no lock.
    """

    circuit: Final[None] = None
    told: Final[None] = None
    """Thresholds and reported loads are of clusters that are kept in process."""

    def __init__(
        self,
        name: str,
        *,
        clock: Callable[[], Seconds],
        rng: Random,
        patience: Seconds = 1.0,
        local_breaker: bool = True,
        outliers: OutlierRules | None = None,
        awaken: Callable[[], None] = lambda: None,
        moved: Callable[[], None] = lambda: None,
    ) -> None:
        self.name: Final = name
        self.patience: Final = patience
        """A call cancelled after this long is late; sooner it proves nothing."""
        self.tally = Tally()
        self.trouble = ""
        """What keeps the driver from newer lists, in words; empty while nothing does. Written by the driver."""
        self._clock, self._rng = clock, rng
        self._breaks = local_breaker
        self._awaken, self._moved = awaken, moved
        self._asleep = True
        self._lock = threading.Lock()
        self._rows: dict[LineId, LocalBreaker] = {}
        self._cares, self._lately = Cares(), Lately()
        self._trips = self._refused = self._misuses = 0
        self._own = ejecting(outliers, clock, rng)
        self._source: Source = "none"
        self._heard_ms = self._made_ms = _NEVER
        self._list = LineList(cluster=name, lines=())
        self._present = Present(self._list)
        self._made: WeightedRandom[Pick] | Admitting = _EMPTY
        self._picker: WeightedRandom[Pick] | Admitting = _EMPTY

    # What callers use.

    def lines(self) -> tuple[Listed, ...]:
        """All lines in the order published: weight down, then id. Empty before the first list."""
        self._wake()
        return self._list.lines

    def pick(self, key: Key = None, subset: Mapping[str, str] | None = None) -> Pick | None:  # noqa: ARG002 - as said
        """A line by weighted chance, or None where there is none to offer. Say how it went by `report`.

        No lock, no clock, no waiting. `key` and `subset` are for clusters that are kept in process; chance ignores them. Raises
        `Shed` where the plan across regions does not carry this call.
        """
        choice = self._picker.pick(self._rng)
        if choice is None or choice.is_trial:
            return self._pick_slowly(choice)
        return choice

    def attempt(self, key: Key = None, subset: Mapping[str, str] | None = None, *, high: bool = False) -> Attempt:
        """One call as `with cluster.attempt() as call:`, or `async with`; it times the block and records how it ended."""
        return Attempt(self, key, subset, mark=high)

    def attempts(self, **plan: Unpack[Plan]) -> Iterator[Try]:
        """Tries of one call, each on another line: `for each in cluster.attempts(idempotent=True): with each as call:`."""
        return attempts(self, **plan)

    def call(self, function: Callable[[Attempt], T], **plan: Unpack[Plan]) -> T:
        """What `function` comes to, called with each try of `attempts` in turn; the last one's error is raised."""
        return call(self, function, **plan)

    async def acall(self, function: Callable[[Attempt], Awaitable[T]], **plan: Unpack[Plan]) -> T:
        """`call` for a function that is awaited, under asyncio or trio."""
        return await acall(self, function, **plan)

    def report(self, pick: Pick, failure: FailureName | Failure | None = None) -> None:
        """How a call on a `pick` ended, where no `attempt` was used; None is well.

        Without a pick nothing is counted but the misuse; with a failure that is no word, the call proves nothing.
        """
        if not is_pick(pick):
            self.misused("report", pick)
            return
        column = _OK if failure is None else column_of_word(failure)
        if column is None:
            self.misused("report", failure)
        self.record(pick, Column.NONE if column is None else column)

    @property
    def version(self) -> Version | None:
        """Of the present list; None where no center ever published it."""
        return self._list.version

    @property
    def is_stale(self) -> bool:
        """Whether no center was heard for longer than the list's own `ttl`."""
        return self._now_ms() - self._heard_ms > self._list.ttl * 1_000

    def open_lines(self) -> tuple[LineId, ...]:
        """Lines that this client's own breakers keep out now, by id."""
        with self._lock:
            return tuple(sorted(line for line, row in self._breakers().items() if row.gate is not Gate.CLOSED))

    def stats(self) -> ClusterStats:
        """A moment's figures."""
        return ClusterStats(
            source=self._source,
            version=str(self.version or ""),
            lines=len(self._list.lines),
            silence=(self._now_ms() - self._heard_ms) / 1_000 if self._heard_ms != _NEVER else None,
            is_stale=self.is_stale,
            trouble=self.trouble,
            open=self.open_lines(),
            trips=self._trips + (0 if (own := self._own) is None else own.trips),
            refused_versions=self._refused,
            misuses=self._misuses,
            calls=self.tally.totals(),
            admitted=plan.share if (plan := self._list.plan) else 1.0,
        )

    # What the driver and attempts use.

    def begin(
        self, key: Key = None, subset: Mapping[str, str] | None = None, choice: Pick | None = None
    ) -> Pick | None:
        """`pick`, or the `choice` that `another` made, for a call that begins now, and whose end `finish` will say."""
        found = self.pick(key, subset) if choice is None else choice
        return found if found is None or found.care is None else spared(found, self.offers, self._rng)

    def another(self, tried: tuple[Pick, ...], key: Key = None, subset: Mapping[str, str] | None = None) -> Pick | None:  # noqa: ARG002
        """A line for a further try of one call, none of those `tried`; None where there is no other. Nothing is shed here."""
        return other(self.offers, self._rng, tried)

    @property
    def offers(self) -> tuple[tuple[Pick, float], ...]:
        """What the next pick is drawn from, and with which chance; who draws by it claims trials by `claim`."""
        return self._made.shares()

    def claim(self, choice: Pick) -> bool:
        """Take the line's one trial for this caller, unless another was faster."""
        with self._lock:
            now_ms, row = self._now_ms(), self._rows.get(choice.line, UNTRIED)
            if is_blocked(row, now_ms):
                return False
            self._rows[choice.line] = claim(row, now_ms, self._list.local)
            self._remake(now_ms)
        self._moved()
        return True

    @property
    def published(self) -> LineList:
        """The present list."""
        return self._list

    def replace(self, lines: LineList, *, source: Source, silence: Seconds = 0.0) -> bool:
        """Take a newer list; False where its version is lower than the present one's, which then stays.

        `silence` is how long ago the center said it: more than none for a list out of a file.
        """
        if self.version is not None and (lines.version is None or lines.version < self.version):
            self._refused += 1
            return False
        with self._lock:
            self._list, self._present, self._source = lines, Present(lines), source
            if source != "static":
                self._heard_ms = self._now_ms() - round(silence * 1_000)
            self._rows = {line: row for line, row in self._rows.items() if line in self._present.weights}
            if (own := self._own) is not None:
                own.replace(self._present.weights)
            self._hand_back()
            self._remake(self._now_ms())
        if own is not None:
            own.tell()
        return True

    def heard(self) -> None:
        """A center confirmed the present list. Lines tried on our own while it was silent are its affair again."""
        silent_ms, self._heard_ms = self._now_ms() - self._heard_ms, self._now_ms()
        if (due := self._present.own_trial_ms) is not None and silent_ms >= due:
            with self._lock:
                self._hand_back()
                self._remake(self._now_ms())

    def record(self, pick: Pick, column: Column, elapsed: Seconds | None = None, code: int | None = None) -> None:
        """One call's end, into the tally and the line's local breaker; `elapsed` is how long it took, where that is known."""
        if column is _OK:
            pace = 0 if elapsed is None else pace_of(elapsed, self._list.slow, self._list.crawl)
            self.tally.well(pick.line, pick.window, elapsed or 0.0, pace)
        else:
            self.tally.add(pick.line, pick.window, column, elapsed=elapsed or 0.0)
        if column is _FAILED or column is _LATE or pick.line in self._rows:
            self._judge(pick, column)
        if (own := self._own) is not None:
            with self._lock:
                if is_moved := own.saw(pick.line, column, elapsed, code):
                    self._remake(self._now_ms())
            if is_moved:
                self._moved()
                own.tell()

    def finish(self, pick: Pick, column: Column, elapsed: Seconds, code: int | None = None) -> None:
        """The end of a call that `begin` began."""
        if pick.care is not None:
            pick.care.leave()
        self.record(pick, column, elapsed, code)

    def misused(self, method: str, argument: object) -> None:
        """A caller's argument made no sense: counted each time, logged the first time, and never the end of its call."""
        with self._lock:
            self._misuses += 1
            is_first = self._misuses == 1
        if is_first:
            announce_misuse(_log, self.name, method, argument)

    def take(self, service: str) -> tuple[Outcome, ...]:
        """Outcomes since the last take; those of lines that no center published are nobody's business."""
        taken = self.tally.take(service)
        with self._lock:
            self._cares.seen(self.tally.take_busy(), self._clock())
            self._lately.took(taken, self._now_ms())
        return () if self.version is None else taken

    def shed(self) -> None:
        """One call is refused by the plan across regions: counted, for the center must know what is asked for."""
        self.tally.shed()

    def turn(self) -> None:
        """Let a breaker's wait, or a silence, take effect. To be called at `deadline` or later."""
        with self._lock:
            now_ms = self._now_ms()
            self._rows = {line: row for line, row in self._rows.items() if not is_forgotten(row, now_ms)}
            if (own := self._own) is not None:
                own.turn()
            self._remake(now_ms)
        if own is not None:
            own.tell()

    def deadline(self) -> Seconds | None:
        """When `turn` is due by the clock, perhaps already, or None."""
        with self._lock:
            # From the newest picker on: it knows of all that was due before it was made.
            moments = [due] if (due := deadline(self._rows.values(), self._made_ms)) is not None else []
            if (silence := self._present.own_trial_ms) is not None and self._heard_ms + silence > self._made_ms:
                moments.append(self._heard_ms + silence)
            if self._own is not None:
                moments.append(self._own.deadline_ms())
        return min(moments) / 1_000 if moments else None

    def forked(self, rng: Random) -> None:
        """In a forked child: the list stays, calls and breakers are the parent's, and `awaken` is called at the next use.

        Locks are made anew, for another thread may have held them at the fork; chance as well, for a child must not
        choose as its parent does.
        """
        self._lock, self._rng, self.tally = threading.Lock(), rng, Tally()
        self._rows, self._trips, self._misuses = {}, 0, 0
        if self._own is not None:
            self._own.forked(rng)
        self._cares.forked()
        self._asleep, self._lately = True, Lately()
        self._remake(self._now_ms())
        self._picker = _EMPTY

    def retire(self) -> None:
        """The driver is gone for good: picks go on from the last list, without breakers that nobody would turn back."""
        with self._lock:
            self._breaks, self._rows, self._own, self._asleep = False, {}, None, False
            self._remake(self._now_ms())

    def wake(self) -> None:
        """The driver runs: picks are served from the present list again."""
        with self._lock:
            self._asleep, self._picker = False, self._made

    def sleep(self) -> None:
        """The driver has failed: `awaken` is called at the next use, and at each one until a driver runs again."""
        with self._lock:
            self._asleep, self._picker = True, _EMPTY

    # Inside.

    def _now_ms(self) -> int:
        return int(self._clock() * 1_000)

    def _wake(self) -> None:
        """Have the driver started; while there is none, whoever uses the cluster turns its timers."""
        if self._asleep:
            self._awaken()
        if self._asleep and (due := self.deadline()) is not None and due <= self._clock():
            self.turn()

    def _pick_slowly(self, choice: Pick | None) -> Pick | None:
        if choice is None and self._asleep:
            self._wake()
            choice = self._made.pick(self._rng)
        for _ in range(_REPICKS):
            if choice is None or not choice.is_trial or self.claim(choice):
                return choice
            choice = self._made.pick(self._rng)
        return choice  # a second trial at once does less harm than a call without a line

    def _judge(self, pick: Pick, column: Column) -> None:
        if not self._breaks and pick.line not in self._rows:
            return
        with self._lock:
            now_ms, before = self._now_ms(), self._rows.get(pick.line, UNTRIED)
            stale_call = pick.generation != before.generation or (before.gate is Gate.HALF_OPEN and not pick.is_trial)
            after = before
            if not stale_call:
                rules, proven = self._list.local, not self._present.weights.get(pick.line)
                often = self._lately.is_often(pick, column, self.tally, now_ms, rules)
                free = often and self._breaks and may_trip(pick.line, self._present.weights, self._breakers(), rules)
                after = judged(before, column, now_ms, rules, may_trip=free, proven=proven)
            if after == before:
                return
            moved = after.gate is not before.gate
            is_over = is_forgotten(after, now_ms)
            if is_over:
                # So that calls on a healthy line find no row at all; picks made of its generation go with it.
                self._rows.pop(pick.line, None)
            else:
                self._rows[pick.line] = after
            self._trips += after.generation > before.generation
            if moved or (is_over and after.generation):
                self._remake(now_ms)
        if moved:
            self._moved()
            announce(pick.line, before, after, now_ms)

    def _breakers(self) -> Mapping[LineId, LocalBreaker]:
        """What holds lines out here; the lock is held."""
        return self._rows if self._own is None else self._own.over(self._rows)

    def _hand_back(self) -> None:
        """What our own trials proved while no center spoke counts no more; the lock is held."""
        self._rows = {line: row._replace(proven=False) for line, row in self._rows.items()}

    def _remake(self, now_ms: int) -> None:
        """A new picker from the present list and breakers; the lock is held."""
        weights = [each.weight * MILLI for each in self._list.lines]
        rows = self._breakers()
        picks = self._cares.applied(self._list, self._present.picks, rows)
        if rows or self._present.holds_open:
            found = admissions(self._present.terms, rows, now_ms, silent_ms=now_ms - self._heard_ms)
            weights = [each.weight for each in found]
            picks = broken(picks, found, rows)
        self._made = admitted(WeightedRandom(picks, spread(self._list, weights)), self._list, self.shed)
        self._made_ms = now_ms
        if not self._asleep:
            self._picker = self._made
