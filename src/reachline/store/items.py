"""What is given to a journal's writer, and what of it stands in memory until it is on disk."""

from __future__ import annotations

from typing import Final, NamedTuple

from reachline.core.still import Still
from reachline.model import Scope
from reachline.store.records import Outcomes, Reconfigured, Record, Reported, Ticked

__all__ = ["Cut", "Entry", "Item", "Mark", "Opening", "memory", "numbers"]

_READING: Final = 800
"""Bytes of one reading in memory; of the other rows likewise, rounded up."""
_OUTCOME: Final = 400
_CHANGE: Final = 4_000
_LINE: Final = 1_500
_RECORD: Final = 600


class Entry(NamedTuple):
    """One record with its number."""

    seq: int
    record: Record


class Opening(NamedTuple):
    """An `Opened` record with its number, before its checkpoint is made."""

    seq: int
    at_ms: int
    scope: Scope
    ledger: Still
    continues: bool


class Mark(NamedTuple):
    """A resume point behind everything put before it."""

    seq: int
    at_ms: int
    ledgers: tuple[tuple[Scope, Still], ...]


class Cut(NamedTuple):
    """A new segment begins with these entries."""

    entries: tuple[Entry | Opening, ...]
    at_ms: int
    unix_ms: int


Item = Entry | Cut | Mark


def numbers(item: Item) -> tuple[int, ...]:
    """The records an item is, or holds."""
    match item:
        case Entry():
            return (item.seq,)
        case Cut():
            return tuple(entry.seq for entry in item.entries)
        case Mark():
            return ()


def memory(item: Item) -> int:
    """What an item holds in memory, roughly."""
    match item:
        case Entry():
            return _RECORD + _rows(item.record)
        case Cut():
            return _RECORD + _LINE * sum(len(each.ledger.lines) for each in item.entries if isinstance(each, Opening))
        case Mark():
            return _RECORD + _LINE * sum(len(ledger.lines) for _, ledger in item.ledgers)


def _rows(record: Record) -> int:
    match record:
        case Reported():
            return _READING * len(record.readings)
        case Outcomes():
            return _OUTCOME * len(record.rows)
        case Ticked():
            return _CHANGE * len(record.changes)
        case Reconfigured():
            return _LINE * len(record.lines)
        case _:
            return 0
