"""The one writer of every ledger: evidence in, ticks on time, snapshots out. Order: journal, ledger, commit, publish.

Knows no protocol: intake and API call its methods on the same loop. Ticks stand at multiples of a scope's tick on the
journal's clock; a late loop judges once and goes on at the next multiple.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from reachline.center.board import Board, Cluster
from reachline.center.disk import Disk
from reachline.center.hold import Hold
from reachline.center.ledgers import Compiled
from reachline.center.regions import Regions, noted
from reachline.center.stream import Stream
from reachline.center.ticking import Ticking, faults, whole
from reachline.core.ledger import Ledger, LineView
from reachline.core.quoting import notes
from reachline.core.rules import Rules
from reachline.core.settling import Settling
from reachline.model import LineId, Outcome, Scope, Seconds, Snapshot, VantageId, Version
from reachline.net import collector
from reachline.net.waiting import within
from reachline.store.journal import Journal
from reachline.store.records import Members, Ordered, Outcomes, Planned, Reconfigured, Record, Reported, Ticked, Undone
from reachline.store.recover import feed
from reachline.wire import view
from reachline.wire.frame import Report

__all__ = ["LOCAL", "Owner", "Principal"]

log = logging.getLogger("reachline.center")

Principal = str
"""Who asks for a change; `local` until there is authentication."""
LOCAL: Final[Principal] = "local"
_IDLE: Final[Seconds] = 60.0
"""A loop without any deadline looks again this often: a bound, not a poll."""
_HIGHEST_EPOCH: Final = 2**33 - 2**20
"""Unix seconds of the year 2242, with a million restarts to go before decisions' numbers reach 2**53. No honest center's epoch
is beyond; a client that names one is broken, and is refused without a trace."""


class Owner:
    """Ledgers of all scopes. All methods are for the loop that runs `run`."""

    def __init__(
        self,
        *,
        board: Board,
        stream: Stream,
        journal: Journal,
        ledgers: Mapping[Scope, Ledger],
        holds: Mapping[Scope, Hold],
    ) -> None:
        self._board = board
        self._stream = stream
        self._journal = journal
        self.disk = Disk(journal, board)
        self.regions = Regions(board)
        self._ledgers = dict(ledgers)
        self._holds = dict(holds)
        self._renewed: set[Scope] = set()
        """Scopes whose new document no tick has published yet."""
        self._due = {scope: board.clock() for scope in ledgers}
        self._scopes: dict[LineId, Scope] = {}
        self._settling = Settling()
        self._named: dict[Scope, frozenset[VantageId]] = {}
        self._wake = asyncio.Event()
        self.published: Callable[[], None] = lambda: None
        """Called after every publication: who keeps hints for agents looks again…"""
        self.heard: Callable[[Record], None] = lambda _: None
        """…and this with everything that the journal is told, in its order."""

    # -- evidence ------------------------------------------------------------------------------------------------

    def report(
        self,
        vantage: VantageId,
        reports: Sequence[Report],
        *,
        standing: Sequence[Report] = (),
        doubt: int = 0,
        ends_round: bool = True,
    ) -> int:
        """One part of a heartbeat; the journal's sequence number to wait for. Lines it may not vote on are counted and left.

        `standing` are earlier reports of the same lines by other kinds, for a vantage that sends its kinds one by one.
        """
        now_ms = self._board.clock()
        known = self._known(vantage, reports)
        self._board.counts["reports_unknown", ""] += len(reports) - len(known)
        last = 0
        for scope, rows in _by_scope([*known, *standing], self._scopes).items():
            said = ((LineId(row.line), row.reading) for row in rows)
            readings = self._settling.settled(vantage, said, self._ledgers[scope].poll.calm)
            last = self._append(Reported(scope=scope, at_ms=now_ms, vantage=vantage, doubt=doubt, readings=readings))
            self._ledgers[scope].report(vantage, readings, now_ms=now_ms, doubt=doubt)
            if ends_round and (hold := self._holds.get(scope)):
                hold.heard(vantage)
        self.show(vantage, known)
        return last

    def show(self, vantage: VantageId, reports: Sequence[Report], *, replayed: bool = False) -> None:
        """Readings for people only: never evidence."""
        known = self._known(vantage, reports)
        self._board.readings.take(vantage, known, self._board.clock(), replayed=replayed)
        self._stream.touched(LineId(row.line) for row in known)
        self._stream.agents()

    def _known(self, vantage: VantageId, reports: Sequence[Report]) -> list[Report]:
        return [row for row in reports if self._may_vote(vantage, LineId(row.line))]

    def _may_vote(self, vantage: VantageId, line: LineId) -> bool:
        scope = self._scopes.get(line)
        if scope is None:
            return False
        allowed = self._ledgers[scope].lines[line].vantages
        return not allowed or vantage in allowed

    def outcomes(
        self, scope: Scope, client: str, rows: Iterable[Outcome], principal: Principal = LOCAL, *, shed: int = 0
    ) -> int:
        """What one client's calls came to, and how many it refused as the plan says; the journal's sequence number to wait for."""
        now_ms = self._board.clock()
        ledger = self._ledgers[scope]
        known = tuple(row for row in rows if row.line in ledger.lines)
        if not known and not shed:
            return 0
        last = self._append(Outcomes(scope=scope, at_ms=now_ms, client=client, rows=known, shed=shed))
        ledger.outcomes(client, known, now_ms=now_ms, shed=shed)
        self._board.counts["outcomes", "shed"] += shed
        for row in known:
            self._board.counts["outcomes", "ok"] += row.ok
            self._board.counts["outcomes", "failed"] += row.failed
            self._board.counts["outcomes", "late"] += row.late
            self._board.counts["outcomes", "errors"] += row.errors
        log.debug("outcomes_taken", extra={"client": client, "rows": len(known), "principal": principal})
        return last

    def votes(self, line: LineId) -> list[dict[str, object]]:
        """Every vantage's newest vote on a line, for its page."""
        found = self.view(line)
        if found is None:
            return []
        now_ms, fresh_ms = self._board.clock(), found[1].quorum.fresh_ms
        rows: list[dict[str, object]] = []
        for vantage, ballot in found[0].ballots:
            age_ms = now_ms - ballot.received_ms
            shown = view.vote(ballot.vote) if ballot.vote else {"vantage": vantage, "zone": view.ZONES[ballot.zone]}
            rows.append({**shown, "age": age_ms / 1000, "fresh": age_ms <= fresh_ms, "doubt": ballot.doubt})
        return rows

    def view(self, line: LineId) -> tuple[LineView, Rules] | None:
        """A line's row as it is now, and the rules it is judged by; None for a line that is no longer, or was never judged."""
        scope = self._scopes.get(line)
        ledger = None if scope is None else self._ledgers.get(scope)
        if ledger is None or line not in ledger.board.standings or line not in ledger.rows:
            return None
        return ledger.view(line, self._board.clock()), ledger.rules

    # -- operators ----------------------------------------------------------------------------------------------

    @property
    def ledgers(self) -> Mapping[Scope, Ledger]:
        """To be read."""
        return self._ledgers

    def told(self, record: Ordered | Undone) -> int:
        """An operator's word, in force at the next tick, which does not wait; the journal's sequence number."""
        number = self._append(record)
        feed(self._ledgers[record.scope], record)
        self._renewed.add(record.scope)
        return number

    # -- who and what --------------------------------------------------------------------------------------------

    def members(self) -> None:
        """Agents came or went: the quorum follows where the document names none."""
        now_ms = self._board.clock()
        joined = self._board.roster.members(now_ms)
        counting = {scope: self._named.get(scope) or joined for scope in self._ledgers}
        if moved := [scope for scope, ledger in self._ledgers.items() if ledger.poll.vantages != counting[scope]]:
            self._settling.keep(self._scopes.keys(), joined)
        for scope in moved:
            self._append(Members(scope=scope, at_ms=now_ms, vantages=counting[scope]))
            self._ledgers[scope].members(counting[scope])
        self._board.readings.members(self._board.roster.localities(), now_ms)
        self._stream.agents()
        self._wake.set()

    def reconfigure(self, compiled: Mapping[Scope, Compiled], principal: Principal = LOCAL) -> None:
        """Another document: known clusters keep the rows of unchanged lines, new ones begin, others end."""
        now_ms = self._board.clock()
        before = self._ledgers.keys() | set()
        for scope in before - compiled.keys():
            self._end(scope)
        for scope, wanted in compiled.items():
            if ledger := self._ledgers.get(scope):
                self._change(ledger, wanted, now_ms)
            else:
                self._begin(scope, wanted, now_ms)
        if before != self._ledgers.keys():
            self._journal.follow(self._ledgers)
        self.index(compiled)
        log.info("document_applied", extra={"clusters": len(compiled), "principal": principal})
        self.members()

    def begin(self, compiled: Mapping[Scope, Compiled]) -> None:
        """After a start: ledgers as recovered meet the document, the journal follows them, their first snapshots are shown."""
        self._journal.follow(self._ledgers)
        self.publish_all()
        self.reconfigure(compiled)

    def index(self, compiled: Mapping[Scope, Compiled]) -> None:
        """Which scope a line belongs to and whom the document names, for the compiled document now in force."""
        self._scopes = {line: scope for scope, ledger in self._ledgers.items() for line in ledger.lines}
        self._named = {scope: wanted.vantages for scope, wanted in compiled.items()}
        self._board.readings.keep(frozenset(self._scopes))
        self._board.log.incidents.keep(frozenset(self._scopes))
        self._settling.keep(self._scopes.keys(), self._board.roster.members(self._board.clock()))

    def _change(self, ledger: Ledger, wanted: Compiled, now_ms: int) -> None:
        vantages = wanted.vantages or ledger.poll.vantages
        if wanted.is_in_force(ledger, vantages):
            return
        record = Reconfigured(
            scope=ledger.scope, at_ms=now_ms, lines=wanted.lines, rules=wanted.rules, vantages=vantages
        )
        self._append(record)
        gone = frozenset(ledger.lines) - {line.id for line in wanted.lines}
        ledger.reconfigure(wanted.lines, wanted.rules, vantages, now_ms=now_ms)
        self._due[ledger.scope] = now_ms
        self._renewed.add(ledger.scope)
        self._stream.left(gone)

    def _begin(self, scope: Scope, wanted: Compiled, now_ms: int) -> None:
        version = Version(self._board.version.epoch, 0)
        members = wanted.vantages or self._board.roster.members(now_ms)
        self._ledgers[scope] = Ledger(
            scope, wanted.lines, wanted.rules, vantages=members, version=version, now_ms=now_ms
        )
        self._due[scope] = now_ms

    def _end(self, scope: Scope) -> None:
        ledger = self._ledgers.pop(scope)
        self._due.pop(scope, None)
        self._holds.pop(scope, None)
        self._board.drop(scope.cluster)
        self._stream.left(ledger.lines)

    def outrank(self, version: Version) -> bool:
        """A client has seen `version`: every version from here on is above it. False where it cannot be one of ours.

        Our own are taken before anything else: whatever lifted them, who has read one may go on.
        """
        if version <= self._board.version or all(
            version <= ledger.snapshot().version for ledger in self._ledgers.values()
        ):
            return True
        if version.epoch >= _HIGHEST_EPOCH:
            return False
        epoch = version.epoch + 1
        log.warning("epoch_raised", extra={"epoch": epoch, "client": str(version)})
        for ledger in self._ledgers.values():
            ledger.rebase(Version(epoch, 0))
        # The checkpoints hold the version: the next start begins above it.
        self._journal.follow(self._ledgers)
        self.publish_all()
        return True

    # -- ticks ---------------------------------------------------------------------------------------------------

    def publish_all(self) -> None:
        """What every ledger says now, for readers: the first snapshot after a start, or all anew after a rebase."""
        for ledger in self._ledgers.values():
            self._publish(whole(ledger))

    async def run(self) -> None:
        """Ticks until cancelled."""
        collector.calm()
        while True:
            await self.tick()
            self._wake.clear()
            await within(self._wake, self._next())

    async def tick(self) -> None:
        """Every scope whose time has come: closed, journalled, committed (unless the disk hangs or refuses), published."""
        now_ms = self._board.clock()
        if (gone := self._board.roster.deadline()) is not None and gone <= now_ms:
            self.members()
        due = [scope for scope, due_ms in self._due.items() if due_ms <= now_ms]
        closed = [self._close(scope, now_ms) for scope in due]
        ticks = [one for one in closed if one is not None]
        if not ticks:
            return
        ticks += self._replanned(now_ms)
        if not await self.disk.stored(max(one.record for one in ticks)):
            self._board.counts["published_ahead", ""] += len(ticks)
        for one in ticks:
            self._publish(one)
        self.published()

    def _close(self, scope: Scope, now_ms: int) -> Ticking | None:
        """One ledger's tick, in the journal before anything else is; None while judging waits."""
        ledger = self._ledgers[scope]
        tick_ms = ledger.rules.tick_ms
        self._due[scope] = (now_ms // tick_ms + 1) * tick_ms
        if self._is_held(scope, now_ms):
            return None
        self._renewed.discard(scope)
        with collector.held():
            closed = ledger.close(now_ms)
        self._board.roster.trust(scope.cluster, ledger.poll.credit.trusts)
        told = notes(ledger.hearing.excused.values(), ledger.hearing.plane_ms)
        self._board.notes[scope.cluster] = (*told, *noted(ledger.board.steer))
        record = self._append(Ticked(scope=scope, at_ms=now_ms, changes=closed.changes, digest=closed.digest))
        return Ticking(ledger, closed, ledger.lines, ledger.rules, faults(ledger), record)

    def _replanned(self, now_ms: int) -> list[Ticking]:
        """Clusters that the plan across regions gives another part than they had, in the journal before it is theirs."""
        found = []
        for one in self.regions.moved(self._ledgers):
            ledger = self._ledgers[one.scope]
            record = self._append(Planned(scope=one.scope, at_ms=now_ms, clusters=one.clusters, steer=one.steer))
            ledger.steered(one.steer, now_ms=now_ms)
            found.append(whole(ledger, record))
        return found

    def _is_held(self, scope: Scope, now_ms: int) -> bool:
        """Whether judging waits. A changed document does not: one tick without votes cuts nobody off."""
        hold = self._holds.get(scope)
        if hold is None:
            return False
        if not hold.is_over(now_ms, self._ledgers[scope].poll.vantages):
            return scope not in self._renewed
        del self._holds[scope]
        log.info("judging_resumed", extra={"cluster": scope.cluster})
        return False

    def _publish(self, one: Ticking) -> None:
        scope, snapshot = one.ledger.scope, one.closed.snapshot
        self._board.judged_ms = self._board.clock()
        if self._ledgers.get(scope) is not one.ledger:
            return
        if snapshot is not None:
            # A client may have lifted the epoch while the tick was on its way to the disk: the version never falls.
            snapshot = max(snapshot, one.ledger.snapshot(), key=_version)
            steer = one.ledger.board.steer
            cluster = Cluster(
                scope=scope, lines=one.lines, rules=one.rules, snapshot=snapshot, faults=one.faults, steer=steer
            )
            news = self._board.publish(cluster, one.closed.changes)
            self._stream.decided((change.line for change in one.closed.changes), news)
            self._board.counts["decisions", ""] += len(one.closed.changes)
            for change in one.closed.changes:
                log.info(
                    "line_changed", extra={"line": change.line, "rule": change.rule, "weight": change.after.weight}
                )
        self._mark(scope)

    def _mark(self, scope: Scope) -> None:
        """One more point of every line's history."""
        board, now_ms = self._board, self._board.clock()
        cluster = board.clusters[scope.cluster].value
        for standing in cluster.snapshot.standings:
            board.readings.mark(
                standing.line, standing.weight, now_ms,
                fresh_ms=cluster.rules.quorum.fresh_ms, every_ms=cluster.rules.tick_ms,
            )  # fmt: skip

    def _next(self) -> Seconds:
        """Seconds until something happens by itself."""
        moments = [*self._due.values()]
        if (gone := self._board.roster.deadline()) is not None:
            moments.append(gone)
        return max(0.0, min(_IDLE, (min(moments) - self._board.clock()) / 1000)) if moments else _IDLE

    # -- the journal ---------------------------------------------------------------------------------------------

    def _append(self, record: Record) -> int:
        number = self._journal.append(record)
        self.heard(record)
        return number


def _version(snapshot: Snapshot) -> Version:
    return snapshot.version


def _by_scope(reports: Iterable[Report], scopes: Mapping[LineId, Scope]) -> dict[Scope, list[Report]]:
    """Reports by scope; the kinds of one line stand next to each other, as the ledger wants them."""
    found: dict[Scope, list[Report]] = {}
    for row in sorted(reports, key=lambda row: row.line):
        found.setdefault(scopes[LineId(row.line)], []).append(row)
    return found
