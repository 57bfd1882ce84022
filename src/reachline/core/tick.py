"""What one tick of a ledger knows, and what comes of it: the change that tells each step. Decides nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, overload

from reachline.core.business import UNKNOWN, Word
from reachline.core.conflict import CALM, Matter
from reachline.core.obey import Turned
from reachline.core.orders import Order
from reachline.core.publish import facts_of, rule_of
from reachline.core.quorum import Ballot, Tally
from reachline.core.row import Row, Stepped, due_ms
from reachline.core.rules import Rules
from reachline.core.told import Told, business_facts, named
from reachline.core.trust import Trust
from reachline.model import Change, Fact, Line, LineId, Snapshot, Standing, VantageId

__all__ = ["Changes", "Closed", "LineView", "Taken", "change"]


class Closed(NamedTuple):
    """A tick's result. `snapshot` is None where nothing new is worth publishing; `digest` seals every row it moved."""

    snapshot: Snapshot | None
    changes: Sequence[Change]
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
    word: Word = UNKNOWN
    """What the business says of it…"""
    matter: Matter = CALM
    """…and its quarrel with the vantages."""
    trusts: tuple[tuple[VantageId, Trust], ...] = ()
    """Of its vantages that are not trusted fully."""
    plane_ms: int | None = None
    """Since when the observers' own plane is broken, or None."""
    callers: tuple[str, ...] = ()
    """Who told of its calls lately, as the journal names them: SDKs, and data planes (`als:envoy-1`)."""


class Taken(NamedTuple):
    """The steps a tick took: rows before (of the lines it touched) and after, what was heard, which lines had new verdicts."""

    before: Mapping[LineId, Row]
    after: Mapping[LineId, Row]
    told: Mapping[LineId, Told]
    steps: Mapping[LineId, Stepped]
    fresh: Collection[LineId]
    ordered: Mapping[LineId, Turned] = MappingProxyType({})
    """Lines that began to follow other orders."""


class Changes(Sequence[Change]):
    """A tick's decisions, each told with all that it rests on once somebody reads them: to tell takes as long as to decide.

    Made of values that nobody changes any more, so any thread may read first; it tells all of them, once. Equal to a tuple of the
    same. A `Sequence` by inheritance, for that is what readers ask for.
    """

    __slots__ = ("_made", "_news", "_now_ms", "_rules", "_taken")

    def __init__(self, news: Sequence[tuple[Standing, Standing]], taken: Taken, now_ms: int, rules: Rules) -> None:
        self._news, self._taken, self._now_ms, self._rules = news, taken, now_ms, rules
        self._made: tuple[Change, ...] | None = None

    def told(self) -> tuple[Change, ...]:
        """All of them."""
        made = self._made
        if made is None:
            now_ms, rules = self._now_ms, self._rules
            made = self._made = tuple([change(was, now, self._taken, now_ms, rules) for was, now in self._news])
        return made

    def __len__(self) -> int:
        return len(self._news)

    @overload
    def __getitem__(self, at: int) -> Change: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[Change, ...]: ...

    def __getitem__(self, at: int | slice) -> Change | tuple[Change, ...]:
        return self.told()[at]

    def __iter__(self) -> Iterator[Change]:
        return iter(self.told())

    def __eq__(self, other: object) -> bool:
        return self.told() == (other.told() if isinstance(other, Changes) else other)

    def __hash__(self) -> int:
        return hash(self.told())

    def __repr__(self) -> str:
        return repr(self.told())


def change(was: Standing, now: Standing, taken: Taken, now_ms: int, rules: Rules) -> Change:
    """One line's decision with all that it rests on."""
    line, row = now.line, taken.after[now.line]
    done, heard = taken.steps.get(line), taken.told.get(line)
    tally = heard.found if heard and line in taken.fresh else None
    told = taken.ordered.get(line)
    order = (told.order if told else 0) or row.obeys.gate or row.obeys.drill
    facts = facts_of(taken.before.get(line, row), row, tally, due_ms(row, rules), rules)
    facts += business_facts(heard) if heard else ()
    return Change(
        line=line,
        at_ms=now_ms,
        before=was,
        after=now,
        rule=rule_of(
            was, now, (told.rule if told else "") or (named(done, heard, rules) if done and heard else ""), rules
        ),
        votes=heard.votes() if heard else (),
        facts=(*facts, Fact("order", order)) if order else facts,
    )
