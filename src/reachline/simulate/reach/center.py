"""The center under virtual time: production's ledger, rules, hold and documents. What enters the ledger is kept, if wanted, as a journal
would keep it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from reachline.center.hold import Hold
from reachline.client.answer import line_list
from reachline.core.ledger import Closed, Ledger
from reachline.doors import reach
from reachline.doors.settings import Document
from reachline.model import Change, Gate, Health, LineId, Scope, Snapshot, VantageId, Version
from reachline.simulate.reach.agent import Beat
from reachline.simulate.reach.client import Post
from reachline.simulate.reach.document import CLUSTER
from reachline.store.records import Opened, Outcomes, Reconfigured, Record, Reported, Ticked
from reachline.upstream.listing import LineList
from reachline.wire import listed, view
from reachline.wire.frame import Hint

__all__ = ["Center", "Ticking"]

SCOPE: Final = Scope(cluster=CLUSTER)
_TTL: Final = 300.0


class Ticking(NamedTuple):
    """What one tick decided."""

    changes: Sequence[Change]
    snapshot: Snapshot | None


class Center:
    """One center. Written by the contender."""

    def __init__(self, document: Document, *, keeps: bool = False) -> None:
        self.records: list[Record] = []
        """Evidence and ticks in order, if they are to be kept."""
        self.keeps = keeps
        self._lines, self._rules = reach.lines(document, CLUSTER), reach.rules(document, CLUSTER)
        self._members = reach.vantages(document, CLUSTER)
        self.ledger = Ledger(SCOPE, self._lines, self._rules, vantages=self._members, version=Version(1, 0), now_ms=0)
        self._hold: Hold | None = None
        self._keep(Opened(scope=SCOPE, at_ms=0, checkpoint=self.ledger.freeze()))

    @property
    def tick_ms(self) -> int:
        """Between two ticks."""
        return self.ledger.rules.tick_ms

    def _keep(self, record: Record) -> None:
        if self.keeps:
            self.records.append(record)

    def report(self, beat: Beat, now_ms: int) -> None:
        """One heartbeat."""
        vantage = VantageId(beat.agent)
        self._keep(Reported(scope=SCOPE, at_ms=now_ms, vantage=vantage, doubt=beat.doubt, readings=beat.readings))
        self.ledger.report(vantage, beat.readings, now_ms=now_ms, doubt=beat.doubt)
        if self._hold and beat.ends_round:
            self._hold.heard(vantage)

    def outcomes(self, post: Post, now_ms: int) -> None:
        """One client's calls."""
        self._keep(Outcomes(scope=SCOPE, at_ms=now_ms, client=post.client, rows=post.rows))
        self.ledger.outcomes(post.client, post.rows, now_ms=now_ms)

    def reconfigure(self, document: Document, now_ms: int) -> None:
        """Another document."""
        self._lines, self._rules = reach.lines(document, CLUSTER), reach.rules(document, CLUSTER)
        self._keep(
            Reconfigured(scope=SCOPE, at_ms=now_ms, lines=self._lines, rules=self._rules, vantages=self._members)
        )
        self.ledger.reconfigure(self._lines, self._rules, self._members, now_ms=now_ms)

    def tick(self, now_ms: int) -> Ticking | None:
        """One tick, or None while judging waits after a restart."""
        if self._hold is not None:
            if not self._hold.is_over(now_ms, self.ledger.poll.vantages):
                return None
            self._hold = None
        closed: Closed = self.ledger.close(now_ms)
        self._keep(Ticked(scope=SCOPE, at_ms=now_ms, changes=closed.changes, digest=closed.digest))
        return Ticking(closed.changes, closed.snapshot)

    def restart(self, now_ms: int) -> None:
        """Come back from the checkpoint on disk, under a new epoch; nobody is cut off on old votes."""
        epoch = self.ledger.snapshot().version.epoch
        self.ledger = Ledger.thaw(self.ledger.freeze())
        self.ledger.rebase(Version(epoch + 1, 0))
        self._hold = Hold(since_ms=now_ms)
        self._keep(Opened(scope=SCOPE, at_ms=now_ms, checkpoint=self.ledger.freeze()))

    # -- what it says ----------------------------------------------------------------------------------------------------------------

    def listed(self) -> LineList:
        """What a client makes of the present snapshot, by way of the JSON door."""
        snapshot, rules = self.ledger.snapshot(), self.ledger.rules
        rows = [
            view.line(self.ledger.lines[each.line], each, view.NO_FIGURES, origin=0.0) for each in snapshot.standings
        ]
        document = {
            "cluster": CLUSTER,
            "version": str(snapshot.version),
            "issued": snapshot.issued_ms / 1_000,
            "ttl": _TTL,
            "policy": list(rules.policy),
            "panic": snapshot.panic,
            "lines": rows,
            "local_rules": listed.local_rules(rules, rows, self._faults()),
        }
        return line_list(json.loads(json.dumps(document)), cluster=CLUSTER)

    def _faults(self) -> Mapping[LineId, int]:
        cap = self.ledger.rules.faults.cap
        rows = ((line, cap if row.held else row.judgement.faults) for line, row in self.ledger.rows.items())
        return {line: faults for line, faults in rows if faults}

    def hint(self) -> Hint:
        """What agents are told of lines (`center.intake`)."""
        standings = self.ledger.snapshot().standings
        doubtful = (Health.DEGRADED, Health.UNHEALTHY)
        suspects = (
            one.line
            for one in standings
            if one.gate in (Gate.HALF_OPEN, Gate.RAMP) or (one.gate is Gate.CLOSED and one.health in doubtful)
        )
        return Hint(
            suspects=tuple(sorted(suspects)), open=tuple(sorted(o.line for o in standings if o.gate is Gate.OPEN))
        )
