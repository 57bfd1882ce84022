"""One line's step of a tick, all rules taken together: a drill's, the judge's and the breaker's, an operator's, and blindness."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reachline.core.drill import acted
from reachline.core.obey import is_overruled, overruled
from reachline.core.publish import BLIND
from reachline.core.row import Stepped, step
from reachline.core.told import Told, named
from reachline.model import LineId

if TYPE_CHECKING:
    from reachline.core.ledger import Ledger

__all__ = ["stepped"]


def stepped(ledger: Ledger, line: LineId, told: Told, now_ms: int) -> Stepped:
    """Only a new verdict is a tick of the judge; a deadline alone moves the breaker."""
    rules, row = ledger.rules, told.row
    done = acted(ledger, line, told, now_ms) if row.obeys.drill else None
    if done is None:
        done = step(line, row, told.found, votes=told.votes, now_ms=now_ms, rules=rules, sums=told.sums)
    blind = ledger.poll.is_blind(line, now_ms, rules)
    if blind is done.row.blind and not done.rule and not is_overruled(done):
        return done  # as most are
    done = overruled(Stepped(done.row, named(done, told, rules), done.wants))
    if blind is done.row.blind:
        return done
    return done._replace(row=done.row._replace(blind=blind), rule=done.rule or BLIND[blind])
