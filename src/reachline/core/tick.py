"""What one tick of a ledger knows, and what comes of it: the change that tells each step. Decides nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

from reachline.core.obey import Turned
from reachline.core.orders import Order
from reachline.core.publish import facts_of, rule_of
from reachline.core.quorum import Ballot, Tally
from reachline.core.row import Row, Stepped, due_ms
from reachline.core.rules import Rules
from reachline.model import Change, Fact, Line, LineId, Snapshot, Standing, VantageId, Vote

__all__ = ["Closed", "LineView", "Taken", "change"]


class Closed(NamedTuple):
    """A tick's result. `snapshot` is None where nothing new is worth publishing; `digest` seals every row it moved."""

    snapshot: Snapshot | None
    changes: tuple[Change, ...]
    digest: bytes


class LineView(NamedTuple):
    """One line as it stands, for explain and console."""

    line: Line
    row: Row
    standing: Standing
    tally: Tally
    ballots: tuple[tuple[VantageId, Ballot], ...]
    due_ms: int | None
    orders: tuple[Order, ...] = ()
    """Those that name the line, oldest first."""


class Taken(NamedTuple):
    """The steps a tick took: rows before (of the lines it touched) and after, what was heard, which lines had new verdicts."""

    before: Mapping[LineId, Row]
    after: Mapping[LineId, Row]
    heard: Mapping[LineId, tuple[Tally, tuple[Vote, ...]]]
    steps: Mapping[LineId, Stepped]
    fresh: Collection[LineId]
    ordered: Mapping[LineId, Turned] = MappingProxyType({})
    """Lines that began to follow other orders."""


def change(was: Standing, now: Standing, taken: Taken, now_ms: int, rules: Rules) -> Change:
    """One line's decision with all that it rests on."""
    line, row = now.line, taken.after[now.line]
    done, (seen, votes) = taken.steps.get(line), taken.heard.get(line, (None, ()))
    tally = seen if line in taken.fresh else None
    told = taken.ordered.get(line)
    order = (told.order if told else 0) or row.obeys.gate
    facts = facts_of(taken.before.get(line, row), row, tally, due_ms(row, rules), rules)
    return Change(
        line=line,
        at_ms=now_ms,
        before=was,
        after=now,
        rule=rule_of(was, now, told.rule if told else done.rule if done else "", rules),
        votes=votes,
        facts=(*facts, Fact("order", order)) if order else facts,
    )
