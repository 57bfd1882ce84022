"""From a journal back to running ledgers: the newest whole state, and the evidence since. Reads only."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from reachline.core.ledger import Closed, Ledger
from reachline.errors import JournalError
from reachline.model import Scope, Version
from reachline.store.records import (
    Bodies,
    Gap,
    Members,
    Opened,
    Ordered,
    Outcomes,
    Planned,
    Reconfigured,
    Record,
    Reported,
    Ticked,
    Undone,
)
from reachline.store.segment import Segment, listed

__all__ = ["Recovered", "feed", "recover", "restore"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """The ledgers as they stood behind the newest committed record; empty where there is no journal yet."""

    ledgers: dict[Scope, Ledger] = field(default_factory=dict)
    epoch: int = 0
    """Of the center that wrote last; 0 where none did."""
    last_seq: int = 0
    last_ms: int = 0
    records: int = 0
    """Read and fed since the newest whole state."""

    @property
    def version(self) -> Version:
        """The highest version any ledger had given."""
        return max((ledger.snapshot().version for ledger in self.ledgers.values()), default=Version(0, 0))


def recover(directory: Path | str) -> Recovered:
    """What a center that starts on `directory` goes on with.

    A torn tail cannot be: only committed transactions exist. JournalError where a newer release or other semantics wrote it.
    """
    paths = listed(Path(directory))
    for path in reversed(paths):
        with Segment(path) as segment:
            if segment.last() is not None:
                return restore(segment)
    if paths:
        with Segment(paths[-1]) as segment:
            return Recovered(epoch=segment.meta.epoch, last_ms=segment.meta.opened_ms)
    return Recovered()


def feed(ledger: Ledger, record: Record) -> Closed | None:
    """Give `record` to the ledger exactly as the center did; what the tick came to, where it is one."""
    match record:
        case Reported():
            ledger.report(record.vantage, record.readings, now_ms=record.at_ms, doubt=record.doubt)
        case Outcomes():
            ledger.outcomes(record.client, record.rows, now_ms=record.at_ms, shed=record.shed)
        case Members():
            ledger.members(record.vantages)
        case Reconfigured():
            ledger.reconfigure(record.lines, record.rules, record.vantages, now_ms=record.at_ms)
        case Ordered():
            ledger.order(record.order)
        case Undone():
            ledger.undo(record.number)
        case Planned():
            ledger.steered(record.steer, now_ms=record.at_ms)
        case Ticked():
            return ledger.close(record.at_ms)
        case Opened() | Gap():
            raise JournalError(f"a {type(record).__name__} record is no evidence")
    return None


def restore(segment: Segment, *, until_ms: int | None = None) -> Recovered:
    """The ledgers as they stood behind the segment's newest record, or behind the newest one at or before `until_ms`."""
    resume = segment.resume()
    if resume is not None and until_ms is not None and resume.at_ms > until_ms:
        resume = None
    ledgers: dict[Scope, Ledger] = {}
    bodies, seq, last_ms, count = Bodies(), 0, segment.meta.opened_ms, 0
    if resume is not None:
        ledgers = {scope: Ledger.thaw(frozen) for scope, frozen in resume.ledgers}
        bodies, seq, last_ms = Bodies.thaw(resume.bodies), resume.seq, resume.at_ms
    for stored in segment.records(after=seq):
        if until_ms is not None and stored.at_ms > until_ms:
            break
        record = bodies.read(stored.kind, stored.scope, stored.at_ms, stored.body)
        seq, last_ms, count = stored.seq, max(last_ms, stored.at_ms), count + 1
        if isinstance(record, Opened):
            ledgers[record.scope] = Ledger.thaw(record.checkpoint)
        elif not isinstance(record, Gap) and record.scope in ledgers:
            feed(ledgers[record.scope], record)
    return Recovered(ledgers=ledgers, epoch=segment.meta.epoch, last_seq=seq, last_ms=last_ms, records=count)
