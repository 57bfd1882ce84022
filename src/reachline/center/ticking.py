"""A tick on its way from the ledger to readers. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from reachline.core.ledger import Closed, Ledger
from reachline.core.rules import Rules
from reachline.model import Line, LineId

__all__ = ["Ticking", "faults", "whole"]


class Ticking(NamedTuple):
    """A closed tick on its way to be published, with the lines and rules it was judged by."""

    ledger: Ledger
    closed: Closed
    lines: Mapping[LineId, Line]
    rules: Rules
    faults: Mapping[LineId, int]
    record: int = 0
    """Its number in the journal."""


def whole(ledger: Ledger, record: int = 0) -> Ticking:
    """What the ledger says now, without any decision on a line."""
    return Ticking(ledger, Closed(ledger.snapshot(), (), b""), ledger.lines, ledger.rules, faults(ledger), record)


def faults(ledger: Ledger) -> dict[LineId, int]:
    """Lines with faults, in millionths; a held line counts as at the cap, as in its weight."""
    cap = ledger.rules.faults.cap
    rows = ((line, cap if row.held else row.judgement.faults) for line, row in ledger.rows.items())
    return {line: faults for line, faults in rows if faults}
