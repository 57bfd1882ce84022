"""One line's step of a tick, all rules taken together: a drill's, the judge's and the breaker's, an operator's, and blindness.

Lines that are alike share one row, be it of ten thousand lines that fail at once: what a tick makes of it is worked out once, and is
one row again. Only what is the same object is taken for alike: to compare rows costs as much as to make them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from reachline.core.breaker import CLOSED
from reachline.core.business import UNKNOWN
from reachline.core.cusum import grown
from reachline.core.drill import acted
from reachline.core.obey import Turned, is_overruled, overruled
from reachline.core.orders import NOTHING
from reachline.core.publish import BLIND
from reachline.core.reasons import turned
from reachline.core.row import Row, Stepped, is_quiet, step
from reachline.core.told import Told, named
from reachline.model import Gate, Health, LineId

if TYPE_CHECKING:
    from reachline.core.ledger import Ledger

__all__ = ["note", "stepped", "steps"]

_CLOSED: Final = Gate.CLOSED
_HEALTHY: Final = Health.HEALTHY
"""Looked up once: an enum's attribute costs eight times as much as a name, and this runs for every line of a tick."""
_REASON, _SINCE = map(Row._fields.index, ("reason", "since_ms"))


def steps(ledger: Ledger, told: Mapping[LineId, Told], now_ms: int) -> dict[LineId, Stepped]:
    """Each line's step by what the judge is told of it."""
    rules, heard_ms = ledger.rules, ledger.poll.heard_ms
    silent_ms = now_ms - rules.quorum.blind_ms
    known: dict[tuple[int, int, int, bool], tuple[Stepped, bool]] = {}
    found = {}
    for line, one in told.items():
        row = one.row
        key = id(row), id(one.found), id(one.sums), heard_ms[line] <= silent_ms
        alike = known.get(key)
        if alike is None:
            done = stepped(ledger, line, one, now_ms)
            # Chance, orders and the business speak of one line alone.
            if row.breaker is CLOSED and row.obeys is NOTHING and one.word is UNKNOWN:
                is_by_votes = done.rule.startswith("vote.") and not grown(done.row.asked, rules.questions)[0]
                known[key] = done, is_by_votes
        else:
            done, is_by_votes = alike
            if is_by_votes:
                after = done.row
                done = Stepped(after, turned(after.judgement.health, after.asked, one.votes, rules), done.wants)
        found[line] = done
    return found


def note(
    ledger: Ledger,
    done: Mapping[LineId, Stepped],
    told: Mapping[LineId, Told],
    *,
    before: Mapping[LineId, Row],
    ordered: Mapping[LineId, Turned],
    now_ms: int,
) -> None:
    """Write into the rows of these lines when and why their state changed, and which of them are quiet now."""
    rows, rules, restless = ledger.rows, ledger.rules, ledger.restless
    known: dict[tuple[int, int, str], tuple[Row, bool, Row]] = {}
    """By what they are made of; the last is only kept, that no other row takes its place in memory."""
    for line, each in done.items():
        row, rule = rows[line], (ordered[line].turn if line in ordered else "") or each.rule
        if each.wants and not (rule or row.held):
            rule = named(each, told[line], rules)
        was = before[line]
        alike = known.get(key := (id(was), id(row), rule))
        if alike is None:
            after = _noted(was, row, rule, now_ms)
            alike = known[key] = after, is_quiet(after, rules), row
        rows[line] = alike[0]
        if alike[1]:
            restless.discard(line)
        else:
            restless.add(line)


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


def _noted(before: Row, after: Row, rule: str, now_ms: int) -> Row:
    """The row with when and why its state changed, for people."""
    health, breaker, was, held = after.judgement.health, after.breaker, before.breaker, after.held
    if health is _HEALTHY and (breaker is CLOSED or breaker.gate is _CLOSED):
        reason = "faults.fading" if after.judgement.faults else ""
    else:
        reason = after.guard if held else rule or after.reason
    has_moved = (
        health is not before.judgement.health
        or (breaker is not was and (breaker.gate is not was.gate or breaker.step != was.step))
        or held != before.held
        or after.blind != before.blind
    )
    if not has_moved and reason == after.reason:
        return after
    values = [*after]
    values[_REASON] = reason
    if has_moved:
        values[_SINCE] = now_ms
    return Row._make(values)
