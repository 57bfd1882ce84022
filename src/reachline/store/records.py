"""What a journal remembers, record by record: everything that enters a ledger, and everything it decides.

Integers only. A record's scope, time and kind are columns of its own; `Bodies` turns the rest into bytes and back. Bodies
of one segment are read in order, because a reading is written as its difference from the one before it. Knows nothing of
files, threads and clocks.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final

import msgspec

from reachline.core import rules as core_rules
from reachline.core.freeze import decode_lines, encode_lines
from reachline.core.orders import Order
from reachline.core.rules import Rules
from reachline.core.steer import Steer
from reachline.errors import JournalError
from reachline.model import Change, Line, LineId, Outcome, Reading, Scope, VantageId
from reachline.store.packing import Shapes

__all__ = [
    "SCHEMA",
    "Bodies",
    "Gap",
    "Members",
    "Opened",
    "Ordered",
    "Outcomes",
    "Planned",
    "Reconfigured",
    "Record",
    "RecordKind",
    "Reported",
    "Ticked",
    "Undone",
    "kind_of",
    "tick_body",
]

SCHEMA: Final = 1
"""Layout of segments and bodies. A reader refuses a higher number by name."""

_SQUEEZE: Final = 256
"""Bytes; a shorter body gains nothing from zlib."""


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A segment begins: one scope's whole ledger (`Ledger.freeze()`), from which everything after it replays."""

    scope: Scope
    at_ms: int
    checkpoint: bytes
    continues: bool = False
    """The ledger ran on from the segment before: replay must arrive at this very checkpoint."""


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a heartbeat, as given to `Ledger.report`."""

    scope: Scope
    at_ms: int
    vantage: VantageId
    doubt: int = 0
    readings: tuple[tuple[LineId, Reading], ...]


class Outcomes(msgspec.Struct, frozen=True, kw_only=True):
    """Call results of one client, as given to `Ledger.outcomes`."""

    scope: Scope
    at_ms: int
    client: str
    rows: tuple[Outcome, ...]
    shed: int = 0


class Members(msgspec.Struct, frozen=True, kw_only=True):
    """Who counts for the quorum from here on, as given to `Ledger.members`."""

    scope: Scope
    at_ms: int
    vantages: frozenset[VantageId]


class Reconfigured(msgspec.Struct, frozen=True, kw_only=True):
    """Lines and rules from here on, as given to `Ledger.reconfigure`."""

    scope: Scope
    at_ms: int
    lines: tuple[Line, ...]
    rules: Rules
    vantages: frozenset[VantageId]


class Ordered(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's order, as given to `Ledger.order`."""

    scope: Scope
    at_ms: int
    order: Order


class Undone(msgspec.Struct, frozen=True, kw_only=True):
    """An order ended by hand, as given to `Ledger.undo`; by whom, and why."""

    scope: Scope
    at_ms: int
    number: int
    by: str
    why: str = ""


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """The plan across regions gives the cluster another part, as told to `Ledger.steered`: replay makes it again from the ledgers
    of `clusters`, as they stand before it.
    """

    scope: Scope
    at_ms: int
    clusters: tuple[str, ...]
    steer: Steer | None


class Ticked(msgspec.Struct, frozen=True, kw_only=True):
    """One `Ledger.close(at_ms)` and what came of it."""

    scope: Scope
    at_ms: int
    changes: Sequence[Change]
    digest: bytes


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """Records were lost here because they could not be written: not replayable from the last record to the next Opened."""

    at_ms: int
    since_ms: int
    lost: int
    reason: str


Record = Opened | Reported | Outcomes | Members | Reconfigured | Ordered | Undone | Planned | Ticked | Gap


class RecordKind(IntEnum):
    """The `kind` column. DECIDED is a Ticked with changes, apart so that an index finds decisions among quiet ticks."""

    OPENED = 1
    REPORTED = 2
    OUTCOMES = 3
    MEMBERS = 4
    RECONFIGURED = 5
    TICKED = 6
    DECIDED = 7
    GAP = 8
    ORDERED = 9
    UNDONE = 10
    PLANNED = 11


_KINDS: Final[dict[type, RecordKind]] = {
    Opened: RecordKind.OPENED,
    Reported: RecordKind.REPORTED,
    Outcomes: RecordKind.OUTCOMES,
    Members: RecordKind.MEMBERS,
    Reconfigured: RecordKind.RECONFIGURED,
    Gap: RecordKind.GAP,
    Ordered: RecordKind.ORDERED,
    Undone: RecordKind.UNDONE,
    Planned: RecordKind.PLANNED,
}

# Bodies as they stand in the file: the fields that have no column of their own.
_Checkpoint = tuple[bytes, bool]
_Planning = tuple[tuple[str, ...], Steer | None]
_Reconfiguration = tuple[bytes, bytes, frozenset[VantageId]]
_Undoing = tuple[int, str, str]
_Decisions = tuple[bytes, tuple[Change, ...]]
_Loss = tuple[int, int, str]


class _OutcomeRows(msgspec.Struct, array_like=True):
    """Without `shed` where nothing was: as it was written before there was a plan."""

    client: str
    rows: tuple[Outcome, ...]
    shed: int = 0


_ENCODE: Final = msgspec.msgpack.Encoder().encode
_CHECKPOINT: Final = msgspec.msgpack.Decoder(_Checkpoint)
_OUTCOMES: Final = msgspec.msgpack.Decoder(_OutcomeRows)
_MEMBERS: Final = msgspec.msgpack.Decoder(frozenset[VantageId])
_RECONFIGURED: Final = msgspec.msgpack.Decoder(_Reconfiguration)
_ORDERED: Final = msgspec.msgpack.Decoder(Order)
_UNDONE: Final = msgspec.msgpack.Decoder(_Undoing)
_PLANNED: Final = msgspec.msgpack.Decoder(_Planning)
_DECISIONS: Final = msgspec.msgpack.Decoder(_Decisions)
_LOSS: Final = msgspec.msgpack.Decoder(_Loss)


def kind_of(record: Record) -> RecordKind:
    """The `kind` column of `record`."""
    if isinstance(record, Ticked):
        return RecordKind.DECIDED if record.changes else RecordKind.TICKED
    return _KINDS[type(record)]


def tick_body(digest: bytes, changes: Sequence[Change]) -> bytes:
    """The body of a tick: equal bytes mean equal decisions."""
    return _squeeze(_ENCODE((digest, tuple(changes))))


class Bodies:
    """Bodies of one segment, written or read in order by one thread; begins empty with each segment."""

    def __init__(self, shapes: Shapes | None = None) -> None:
        self._shapes = shapes or Shapes()

    def freeze(self) -> Iterator[bytes]:
        """What the next body depends on at the call, so that reading can begin behind it; in pieces, to be joined."""
        return self._shapes.freeze()

    @classmethod
    def thaw(cls, frozen: bytes) -> Bodies:
        """Bodies as they were when frozen."""
        return cls(Shapes.thaw(frozen))

    def write(self, record: Record) -> bytes:
        """The body of `record`."""
        if isinstance(record, Reported):
            return self._shapes.write(record.scope, record.vantage, record.doubt, record.readings)
        if isinstance(record, Ticked):
            return tick_body(record.digest, record.changes)
        return _squeeze(_ENCODE(_fields(record)))

    def read(self, kind: int, scope: Scope | None, at_ms: int, body: bytes) -> Record:
        """The record whose columns and body these are; JournalError where they make none."""
        try:
            return self._read(RecordKind(kind), scope, at_ms, body)
        except (ValueError, TypeError, IndexError, KeyError, msgspec.MsgspecError, zlib.error) as error:
            raise JournalError(f"malformed record body (kind {kind}): {error}") from error

    def _read(self, kind: RecordKind, scope: Scope | None, at_ms: int, body: bytes) -> Record:
        if kind is RecordKind.GAP:
            since_ms, lost, reason = _LOSS.decode(_unsqueeze(body))
            return Gap(at_ms=at_ms, since_ms=since_ms, lost=lost, reason=reason)
        if scope is None:
            raise JournalError(f"{kind.name.lower()} record without a scope")
        if kind is RecordKind.REPORTED:
            vantage, doubt, readings = self._shapes.read(scope, body)
            return Reported(scope=scope, at_ms=at_ms, vantage=vantage, doubt=doubt, readings=readings)
        return _plain(kind, scope, at_ms, _unsqueeze(body))


def _fields(record: Record) -> object:
    """What has no column of its own."""
    match record:
        case Opened():
            return (record.checkpoint, record.continues)
        case Outcomes():
            return (record.client, record.rows, *((record.shed,) if record.shed else ()))
        case Members():
            return sorted(record.vantages)
        case Reconfigured():
            return core_rules.encode(record.rules), encode_lines(record.lines), sorted(record.vantages)
        case Ordered():
            return record.order
        case Undone():
            return (record.number, record.by, record.why)
        case Planned():
            return (record.clusters, record.steer)
        case Gap():
            return (record.since_ms, record.lost, record.reason)
        case _:
            raise JournalError(f"a {type(record).__name__} record has no plain body")


def _plain(kind: RecordKind, scope: Scope, at_ms: int, body: bytes) -> Record:
    match kind:
        case RecordKind.OPENED:
            checkpoint, continues = _CHECKPOINT.decode(body)
            return Opened(scope=scope, at_ms=at_ms, checkpoint=checkpoint, continues=continues)
        case RecordKind.OUTCOMES:
            seen = _OUTCOMES.decode(body)
            return Outcomes(scope=scope, at_ms=at_ms, client=seen.client, rows=seen.rows, shed=seen.shed)
        case RecordKind.MEMBERS:
            return Members(scope=scope, at_ms=at_ms, vantages=_MEMBERS.decode(body))
        case RecordKind.RECONFIGURED:
            encoded, encoded_lines, vantages = _RECONFIGURED.decode(body)
            rules, lines = core_rules.decode(encoded), decode_lines(encoded_lines)
            return Reconfigured(scope=scope, at_ms=at_ms, lines=lines, rules=rules, vantages=vantages)
        case RecordKind.ORDERED:
            return Ordered(scope=scope, at_ms=at_ms, order=_ORDERED.decode(body))
        case RecordKind.UNDONE:
            number, by, why = _UNDONE.decode(body)
            return Undone(scope=scope, at_ms=at_ms, number=number, by=by, why=why)
        case RecordKind.PLANNED:
            clusters, steer = _PLANNED.decode(body)
            return Planned(scope=scope, at_ms=at_ms, clusters=clusters, steer=steer)
        case RecordKind.TICKED | RecordKind.DECIDED:
            digest, changes = _DECISIONS.decode(body)
            return Ticked(scope=scope, at_ms=at_ms, changes=changes, digest=digest)
        case _:
            raise JournalError(f"no plain body of kind {kind.name}")


def _squeeze(body: bytes) -> bytes:
    """`body` behind one byte that says whether it is deflated."""
    if len(body) < _SQUEEZE:
        return b"\x00" + body
    return b"\x01" + zlib.compress(body, 6)


def _unsqueeze(body: bytes) -> bytes:
    return zlib.decompress(memoryview(body)[1:]) if body[0] else body[1:]
