"""A cluster kept current in this process, without a center: endpoints as discovered, checked and ejected, and the picker of them.

A driver (`keeper`) feeds it updates and checks and turns its timers; callers pick and end calls from any thread. Refuses to know
where endpoints come from and how they are asked. Nothing here waits, and nothing raises on a caller but `Shed`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from random import Random
from typing import Final, TypeVar, Unpack

from reachline.core.checking import After, Verdict
from reachline.core.outlier_events import Saw
from reachline.core.pick import elsewhere
from reachline.core.pick.orca import Report
from reachline.members import Update
from reachline.model import Failure, LineId, Seconds, Version
from reachline.upstream.attempt import Attempt
from reachline.upstream.circuit import Circuit
from reachline.upstream.eventlog import EventLog, Hear
from reachline.upstream.judged import Judged, Moved
from reachline.upstream.judging import announce_misuse
from reachline.upstream.listing import Key, Listed, Pick, is_pick
from reachline.upstream.making import Making
from reachline.upstream.noted import Notes
from reachline.upstream.outcome import Column, FailureName, column_of_word
from reachline.upstream.picking import NOBODY, hashed
from reachline.upstream.roll import Row
from reachline.upstream.settings import ClusterSettings
from reachline.upstream.stats import ClusterStats
from reachline.upstream.tally import Tally, Totals
from reachline.upstream.told import Told, counted, explained, listed
from reachline.upstream.tries import Plan, Try, acall, attempts, call

__all__ = ["KeptCluster"]

_log: Final = logging.getLogger(__name__)

T = TypeVar("T")

_OK: Final = Column.OK


class KeptCluster:
    """`_lock` guards `_judged`, `_making`, `_misuses`, `_failed_by_call` and what is served.

    Updates, checks and timers come from the driver alone. `pick` reads one reference and takes no lock.
    """

    def __init__(
        self,
        settings: ClusterSettings,
        *,
        clock: Callable[[], Seconds],
        wall: Callable[[], Seconds],
        rng: Random,
        patience: Seconds = 1.0,
        awaken: Callable[[], None] = lambda: None,
        stir: Callable[[], None] = lambda: None,
        hear: Hear | None = None,
    ) -> None:
        """`awaken` has the driver started, `stir` has it look at `deadline` and the events again; both from any thread."""
        self.name: Final = settings.name
        self.settings: Final = settings
        self.patience: Final = patience
        """A call cancelled after this long is late; sooner it proves nothing."""
        self.tally = Tally()
        self.trouble = ""
        """What keeps the endpoints from being newer or more, in words. Written by the driver."""
        self.is_called = False
        """Whether anybody ever made a call: until then checks may be rare."""
        self.events: Final = EventLog(hear)
        self._clock, self._wall, self._rng = clock, wall, rng
        self._awaken, self._stir = awaken, stir
        self._asleep = True
        self._lock = threading.Lock()
        self._judged: Final = Judged(settings, seed=rng.getrandbits(63), now_ms=self._now_ms())
        self._misuses = 0
        self._failed_by_call: dict[str, None] = {}
        self._notes: Final = Notes(settings, self.events)
        self._making: Final = Making(settings, self._judged, self._notes)
        self._pickers = NOBODY
        self.circuit = self._new_circuit()
        """What limits how much may be under way; None: nothing does."""
        self.told: Final = None if self._judged.reports is None else self._told
        """Takes the load that an endpoint reports; None: nobody asks for it."""

    # What callers use.

    def pick(self, key: Key = None, subset: Mapping[str, str] | None = None) -> Pick | None:
        """An endpoint by the cluster's policy, or None where there is none to offer. Say how it went by `report`.

        No lock, no clock, no waiting. `key` keeps callers together under hash policies: 64 bits, or a text that is hashed;
        `subset` is metadata that the endpoint must have. Raises `Shed` where the control plane wants the call dropped.
        """
        number = key if key is None or isinstance(key, int) else hashed(key)
        pickers = self._pickers
        choice = (pickers.all if subset is None else pickers.of(subset)).pick(self._rng, number)
        return choice if choice is not None or not self._asleep else self._pick_awake(number, subset)

    def attempt(self, key: Key = None, subset: Mapping[str, str] | None = None, *, high: bool = False) -> Attempt:
        """One call as `with cluster.attempt() as call:`, or `async with`; it times the block and records how it ended."""
        return Attempt(self, key, subset, mark=high)

    def attempts(self, **plan: Unpack[Plan]) -> Iterator[Try]:
        """Tries of one call, each at another endpoint: `for each in cluster.attempts(idempotent=True): with each as call:`."""
        return attempts(self, **plan)

    def call(self, function: Callable[[Attempt], T], **plan: Unpack[Plan]) -> T:
        """What `function` comes to, called with each try of `attempts` in turn; the last one's error is raised."""
        return call(self, function, **plan)

    async def acall(self, function: Callable[[Attempt], Awaitable[T]], **plan: Unpack[Plan]) -> T:
        """`call` for a function that is awaited, under asyncio or trio."""
        return await acall(self, function, **plan)

    def another(self, tried: tuple[Pick, ...], key: Key = None, subset: Mapping[str, str] | None = None) -> Pick | None:
        """An endpoint for a further try of one call, none of those `tried`; None where there is no other."""
        pickers = self._making.made  # also while no driver runs
        picker = pickers.all if subset is None else pickers.of(subset)
        found = elsewhere(picker, self._rng, hashed(key), tried)
        # By line: one that was ejected since it was tried, and is offered all the same, is another pick of the same endpoint.
        return None if found is None or found.line in {each.line for each in tried} else found

    def report(self, pick: Pick, failure: FailureName | Failure | None = None) -> None:
        """How a call on a `pick` ended, where no `attempt` was used; None is well.

        Without a pick nothing is counted but the misuse; with a failure that is no word, the call proves nothing.
        """
        if not is_pick(pick):
            self.misused("report", pick)
            return
        column = Column.OK if failure is None else column_of_word(failure)
        if column is None:
            self.misused("report", failure)
        self.is_called = True
        self.record(pick, Column.NONE if column is None else column)

    def failed_by_call(self, pick: Pick) -> None:
        """A call on a `pick` was answered with `x-envoy-immediate-health-check-fail`: it fails its checks, if it has any, at once."""
        if self.settings.check is None:
            return
        with self._lock:
            self._failed_by_call[pick.target] = None
        self._stir()

    def lines(self) -> tuple[Listed, ...]:
        """All endpoints, as lines: by priority, then as discovered; weight 0 where something holds one out."""
        self._wake()
        with self._lock:
            return listed(self._judged.roll)

    def open_lines(self) -> tuple[LineId, ...]:
        """Endpoints that are ejected now, by id."""
        with self._lock:
            out = self._judged.ejected()
        return tuple(sorted(LineId(f"{self.name}/{key}") for key in out))

    def explain(self, address: str | None = None) -> tuple[Told, ...]:
        """Why each endpoint gets calls or gets none, until when, and what its calls came to; or of the one at `address:port`."""
        with self._lock:
            judged = self._judged
            return explained(judged.roll, judged.outliers, judged.memory, self._now_ms(), only=address)

    def metrics(self) -> dict[str, int]:
        """Counters and gauges by Envoy's names, without `cluster.NAME.`."""
        dropped = self.tally.totals().shed
        with self._lock:
            judged = self._judged
            found = counted(judged.roll, judged.outliers, judged.memory, judged.counts, dropped=dropped)
        return found if self.circuit is None else found | self.circuit.counts()

    @property
    def version(self) -> Version | None:
        """None: no center counts the versions of what is kept here."""
        return None

    @property
    def is_stale(self) -> bool:
        """Whether something keeps the endpoints from being newer; `trouble` says what."""
        return bool(self.trouble)

    def stats(self) -> ClusterStats:
        """A moment's figures."""
        with self._lock:
            sums, outliers = self._judged.roll.sums(), self._judged.outliers
            trips = 0 if outliers is None else outliers.counts.get("ejections_enforced_total", 0)
            calls = self.tally.totals()._replace(**dict(zip(Totals._fields, self._judged.ends, strict=False)))
        return ClusterStats(
            source="discovery" if sums.total else "none",
            version="",
            lines=sums.total,
            silence=None,
            is_stale=self.is_stale,
            trouble=self.trouble,
            open=self.open_lines(),
            trips=trips,
            refused_versions=0,
            misuses=self._misuses,
            calls=calls,
            healthy=sums.healthy,
            degraded=sums.degraded,
        )

    # What attempts and transports use.

    def begin(
        self, key: Key = None, subset: Mapping[str, str] | None = None, choice: Pick | None = None
    ) -> Pick | None:
        """`pick`, or the `choice` that `another` made, for a call that begins now, and whose end `finish` will say."""
        if choice is None:
            # A plain call asks the picker itself: on the way of most.
            is_plain = key is None and subset is None
            choice = (self._pickers.all.pick(self._rng) if is_plain else None) or self.pick(key, subset)
        if choice is not None:
            self.is_called = True
            judged = self._judged
            with self._lock:
                load = judged.memory.loads.get(choice.key) if judged.is_plain else None
                if load is None:
                    judged.began(choice.key)
                else:
                    load.active += 1
                if self._pickers.panics and self._panics(choice):
                    self._judged.counts["lb_healthy_panic"] += 1
        return choice

    def finish(self, pick: Pick, column: Column, elapsed: Seconds, code: int | None = None) -> None:
        """The end of a call that `begin` began; `code` is its HTTP status, if it had one."""
        if column is _OK and self._judged.is_plain:
            with self._lock:
                self._judged.went_well(pick.key, pick.target)
            return
        now_ms = self._now_ms()
        with self._lock:
            self._judged.ended(pick.key, column, elapsed, now_ms, patience=self.patience)
            moved = self._judged.called(pick.target, column, elapsed, code, now_ms)
        if moved.events:
            self._after(moved)

    def record(self, pick: Pick, column: Column, elapsed: Seconds | None = None, code: int | None = None) -> None:
        """The end of a call that no `begin` began; an ejection is obeyed by the next pick."""
        with self._lock:
            moved = self._judged.called(pick.target, column, elapsed, code, self._now_ms())
        self._after(moved)

    def saw(self, pick: Pick, saw: Saw, *, code: int | None = None, took: Seconds | None = None) -> None:
        """One thing seen of an endpoint, for transports that know more than how a whole call ended."""
        with self._lock:
            took_us = None if took is None else int(took * 1e6)
            moved = self._judged.saw(pick.target, saw, self._now_ms(), code=code, took_us=took_us)
        self._after(moved)

    def misused(self, method: str, argument: object) -> None:
        """A caller's argument made no sense: counted each time, logged the first time, and never the end of its call."""
        with self._lock:
            self._misuses += 1
            is_first = self._misuses == 1
        if is_first:
            announce_misuse(_log, self.name, method, argument)

    # What the driver uses.

    def rows(self) -> tuple[Row, ...]:
        """The endpoints of now."""
        with self._lock:
            return tuple(self._judged.roll)

    @property
    def is_large(self) -> bool:
        """Whether making a picker takes long: then `turn` alone does, and is to be called in a thread aside."""
        return self._making.is_large

    @property
    def is_current(self) -> bool:
        """Whether all that is known is served."""
        return self._making.is_current

    def update(self, update: Update) -> None:
        """Take a change that discovery told."""
        self._notes.updated(update)
        self.trouble = update.trouble
        with self._lock:
            self._making.membership = update.membership
            moved = self._judged.update(update.membership, self._now_ms())
        self._after(moved)

    def checked(self, key: str, after: After, verdict: Verdict) -> bool:
        """Take a check's result; whether the endpoint is here still, for one that discovery no longer names goes by a failure."""
        with self._lock:
            row = self._judged.roll.row(key)
            moved = self._judged.checked(key, after, verdict, self._now_ms())
            is_here = self._judged.roll.row(key) is not None
        if row is not None:
            self._notes.checked(row, after, verdict, self._wall())
        self._after(moved)
        return is_here

    def take_failed(self) -> tuple[str, ...]:
        """Endpoints that calls said fail their checks, since the last time."""
        with self._lock:
            taken, self._failed_by_call = tuple(self._failed_by_call), {}
        return taken

    def turn(self) -> None:
        """Let a sweep, a return or a step of slow start take effect. To be called at `deadline` or later."""
        now_ms = self._now_ms()
        with self._lock:
            moved = self._judged.turn(now_ms)
            due = self._making.due_ms(now_ms)
        is_due = due is not None and due <= now_ms
        self._after(moved._replace(is_moved=moved.is_moved or is_due), is_made=is_due or not self.settings.merge_window)

    def deadline(self) -> Seconds | None:
        """When `turn` is due by the clock, perhaps already, or None."""
        with self._lock:
            moments = [self._making.due_ms(self._now_ms()), self._judged.deadline()]
        return min((due / 1_000 for due in moments if due is not None), default=None)

    def forked(self, rng: Random) -> None:
        """In a forked child: endpoints and what checks made of them stay; calls and ejections are the parent's.

        Locks are made anew, for another thread may have held them at the fork; chance as well, for a child must not
        choose as its parent does.
        """
        self._lock = threading.Lock()
        self._making.forked()
        self._rng, self.tally, self.circuit = rng, Tally(), self._new_circuit()
        self._misuses, self._failed_by_call = 0, {}
        self.events.forget()
        self._judged.begin_anew(rng.getrandbits(63), self._now_ms())
        self.sleep()
        self._after(Moved(True), is_made=True)

    def wake(self) -> None:
        """The driver runs: picks are served from the present endpoints again."""
        with self._lock:
            self._asleep, self._pickers = False, self._making.made

    def sleep(self) -> None:
        """No driver runs: `awaken` is called at the next use, and at each one until one does."""
        with self._lock:
            self._asleep, self._pickers = True, NOBODY

    def retire(self) -> None:
        """The driver is gone for good: picks go on from the last endpoints, without ejections that nobody would turn back."""
        with self._lock:
            self._judged.retire(self._now_ms())
        self._asleep = False
        self._after(Moved(True), is_made=True)

    # Inside.

    def _now_ms(self) -> int:
        return int(self._clock() * 1_000)

    def _told(self, pick: Pick, report: Report) -> None:
        with self._lock:
            self._judged.told(pick.key, report, self._now_ms())

    def _new_circuit(self) -> Circuit | None:
        limits = self.settings.thresholds
        return None if limits is None else Circuit(self.name, *limits)

    def _panics(self, choice: Pick) -> bool:
        row = self._judged.roll.row(choice.target)
        return row is not None and row.member.priority in self._pickers.panics

    def _wake(self) -> None:
        """Have the driver started; while there is none, whoever uses the cluster turns its timers."""
        if self._asleep:
            self._awaken()
        if self._asleep and (due := self.deadline()) is not None and due <= self._clock():
            self.turn()

    def _pick_awake(self, key: int | None, subset: Mapping[str, str] | None) -> Pick | None:
        self._wake()
        pickers = self._making.made
        return (pickers.all if subset is None else pickers.of(subset)).pick(self._rng, key)

    def _after(self, moved: Moved, *, is_made: bool = False) -> None:
        """Once the lock is free: make the picker, or leave it to `turn`; note the events."""
        making = self._making
        if moved.is_moved:
            with self._lock:
                is_due = making.want(self._now_ms(), may_wait=moved.may_wait and not is_made)
            if is_made or self._asleep or (is_due and not making.is_large):
                making.run(self._lock, self._rng, self._now_ms, self.tally.shed, self._serve)
        self._notes.decided(moved.events, self._wall())
        if moved.events or making.is_dirty:
            self._stir()

    def _serve(self) -> None:
        """The newest pickers, while a driver runs; the lock is held."""
        if not self._asleep:
            self._pickers = self._making.made
