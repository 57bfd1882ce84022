"""How a line's row follows orders: opened and closed by an operator, and let go again. Pure; the ledger owns the rows.

An operator outranks the judge, not the last line: only an order that says so by `force` takes the line away that alone
carries traffic. Until another one does, such an order waits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from reachline.core.breaker import Breaker
from reachline.core.drill import OVER, let_go
from reachline.core.guard import badness
from reachline.core.judge import after_close, at_trial
from reachline.core.orders import NOTHING, Book, Obeys, Order, order_of
from reachline.core.row import Row, Stepped
from reachline.core.rules import Patience, Rules
from reachline.core.spreading import candidates
from reachline.model import Gate, Health, Line, LineId

__all__ = ["Turned", "is_overruled", "overruled", "turned"]

_OPEN: Final = "open"
_CLOSE: Final = "close"


class Turned(NamedTuple):
    """A row before and after it began to follow other orders, the rule to name (empty: the judge's, for a drill begins), and the
    order's number (0: it ended).
    """

    before: Row
    row: Row
    rule: str
    order: int

    @property
    def turn(self) -> str:
        """The rule where the order moved the breaker: that is why the line stands as it does. Empty for weights."""
        return self.rule if self.before.breaker != self.row.breaker else ""


def turned(
    book: Book,
    wanted: Mapping[LineId, Obeys],
    lines: Mapping[LineId, Line],
    rows: Mapping[LineId, Row],
    *,
    ends: bool,
    rules: Rules,
    now_ms: int,
) -> dict[LineId, Turned]:
    """The rows that have to follow other orders than they do. `ends` says that orders may have ended since the last time."""
    former = {line for line, row in rows.items() if row.obeys != NOTHING} if ends else set()
    differ = {line: wanted.get(line, NOTHING) for line in sorted(wanted.keys() | former)}
    differ = {line: obeys for line, obeys in differ.items() if obeys != rows[line].obeys}
    if not differ:
        return {}
    waiting = _waiting(book, differ, lines, rows, rules)
    asked = {line: obeys._replace(gate=0, forced="") if line in waiting else obeys for line, obeys in differ.items()}
    return {
        line: _turned(book, rows[line], obeys, rules, now_ms)
        for line, obeys in asked.items()
        if obeys != rows[line].obeys
    }


def is_overruled(done: Stepped) -> bool:
    """Whether an operator keeps the breaker closed that the judge wants to trip."""
    return done.wants and done.row.obeys.forced == _CLOSE


def overruled(done: Stepped) -> Stepped:
    """Where an operator keeps the breaker closed, what the judge says is recorded and opens nothing."""
    if not is_overruled(done):
        return done
    judged = done.row.judgement._replace(health=Health.UNHEALTHY)
    return Stepped(done.row._replace(judgement=judged), done.rule)


def _waiting(
    book: Book, differ: Mapping[LineId, Obeys], lines: Mapping[LineId, Line], rows: Mapping[LineId, Row], rules: Rules
) -> Collection[LineId]:
    """Lines to be opened that must not be, for no other closed line would be left. The worst line goes first."""
    wishes = {line for line, obeys in differ.items() if obeys.forced == _OPEN and _takes_away(rows[line], lines[line])}
    wishes -= {line for line in wishes if (order := order_of(book, differ[line].gate)) is not None and order.force}
    if not wishes:
        return ()
    closing = {line for line, obeys in differ.items() if obeys.forced == _CLOSE}
    closed = {
        line
        for line, row in rows.items()
        if (row.breaker.gate is Gate.CLOSED or line in closing) and lines[line].base and not lines[line].drained
    } - {line for line, obeys in differ.items() if obeys.forced == _OPEN and line not in wishes}
    worst_first = sorted(candidates([lines[line] for line in wishes], rows, rules), key=badness, reverse=True)
    waiting = []
    for wish in worst_first:
        if closed - {wish.line}:
            closed.discard(wish.line)
        else:
            waiting.append(wish.line)
    return waiting


def _takes_away(row: Row, line: Line) -> bool:
    """Whether opening this line takes traffic from it."""
    return row.breaker.gate is not Gate.OPEN and bool(line.base) and not line.drained


def _turned(book: Book, row: Row, obeys: Obeys, rules: Rules, now_ms: int) -> Turned:
    was, rule, number = row.obeys, "operator.ended", 0
    after, patience = row._replace(obeys=obeys), rules.patience
    if obeys.drill != was.drill:
        rule, number = ("", obeys.drill) if obeys.drill else (OVER, 0)
        if not obeys.drill and obeys.forced != _OPEN:
            after = let_go(after, patience=patience, blind_ms=rules.quorum.blind_ms, now_ms=now_ms)
    if obeys.weight != was.weight and (order := order_of(book, obeys.weight)):
        rule, number = f"operator.{order.action.value}", order.number
    if obeys.drain != was.drain:
        after = after._replace(since_ms=now_ms)
        rule, number = ("operator.drain", obeys.drain) if obeys.drain else ("operator.undrain", 0)
    if (obeys.gate, obeys.forced) != (was.gate, was.forced):
        after = _gated(after, was, order_of(book, obeys.gate), patience=patience, now_ms=now_ms)
        if obeys.forced:
            rule, number = f"operator.{obeys.forced}", obeys.gate
    return Turned(row, after, rule, number)


def _gated(row: Row, was: Obeys, order: Order | None, *, patience: Patience, now_ms: int) -> Row:
    """The row with its breaker as ordered; one that was held open by an order goes to trial as soon as no verdict is against it."""
    breaker = row.breaker
    until_ms = (order.until_ms if order else None) or 0
    if row.obeys.forced == _OPEN:
        since_ms = breaker.since_ms if breaker.gate is Gate.OPEN else now_ms
        opened = Breaker(
            Gate.OPEN, since_ms=since_ms, until_ms=until_ms, reopens=breaker.reopens, window=breaker.window
        )
        return row._replace(breaker=opened, judgement=row.judgement._replace(health=Health.UNHEALTHY), held=False)
    if row.obeys.forced == _CLOSE:
        if breaker.gate is Gate.CLOSED and not row.held:
            return row
        closed = Breaker(since_ms=now_ms, reopens=breaker.reopens, window=breaker.window)
        return row._replace(breaker=closed, judgement=after_close(at_trial(row.judgement), patience), held=False)
    if was.forced == _OPEN and breaker.gate is Gate.OPEN:
        return row._replace(breaker=breaker._replace(until_ms=now_ms))
    return row
