"""What there is to see of a ledger without moving it: one line, what a tick has to look at, the next deadline, a seal."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from struct import pack
from typing import TYPE_CHECKING, Final

from reachline.core.breaker import CLOSED
from reachline.core.conflict import CALM
from reachline.core.counting import Count
from reachline.core.orders import covering, next_ms
from reachline.core.row import Row, due_ms, is_quiet
from reachline.core.rules import Rules
from reachline.core.sealed import sealed
from reachline.core.tick import LineView
from reachline.core.trust import WHOLE
from reachline.model import Gate, LineId

if TYPE_CHECKING:
    from reachline.core.ledger import Ledger

__all__ = ["deadline", "drilled", "due", "restless", "seal", "touched", "unquiet", "view"]

_MANY: Final = 8
"""Passing over all lines costs as much as sorting an eighth of them."""


def view(ledger: Ledger, line: LineId, now_ms: int) -> LineView:
    """One line as it stands; KeyError where there is none."""
    row, ballots = ledger.rows[line], ledger.poll.ballots_of(line)
    found = Count(ledger.poll, now_ms, ledger.rules).one(line).found
    orders, due_at = covering(ledger.book, ledger.told[line]), due_ms(row, ledger.rules)
    hearing = ledger.hearing
    matter = hearing.matters.get(line, CALM)
    return LineView(
        ledger.lines[line],
        row,
        ledger.board.standings[line],
        found,
        ballots,
        due_at,
        orders,
        word=hearing.business.word(line, matter.held, ledger.rules),
        matter=matter,
        trusts=tuple((name, trust) for name, _ in ballots if (trust := ledger.poll.credit.of(name)) != WHOLE),
        plane_ms=hearing.plane_ms,
        callers=hearing.business.callers(line),
    )


def deadline(ledger: Ledger) -> int | None:
    """The next ms at which a tick changes something without new evidence, or None."""
    moments = [at for line in ledger.restless if (at := due_ms(ledger.rows[line], ledger.rules)) is not None]
    heard = (at for line, at in ledger.poll.heard_ms.items() if not ledger.rows[line].blind)
    if (longest := next(heard, None)) is not None:
        moments.append(longest + ledger.rules.quorum.blind_ms)
    if (ends := next_ms(ledger.book)) is not None:
        moments.append(ends)
    played = (ledger.rows[line] for line in drilled(ledger))
    moments += [row.judged_ms + ledger.rules.tick_ms for row in played if row.breaker.gate is Gate.CLOSED]
    return min(moments, default=None)


def touched(ledger: Ledger, troubled: AbstractSet[LineId], ordered: Iterable[LineId], now_ms: int) -> list[LineId]:
    """Lines that a tick has to look at, in order of their ids: with news that could change them, due, or under new orders."""
    found = unquiet(ledger, troubled).union(due(ledger, now_ms), ordered)
    if _MANY * len(found) > len(ledger.lines):
        return [line for line in ledger.lines if line in found]  # they are in that order
    return sorted(found)


def unquiet(ledger: Ledger, troubled: AbstractSet[LineId]) -> set[LineId]:
    """Lines with news that could change them; most lines at most ticks are not among them. `troubled` are those by their calls."""
    news = ledger.fresh | ledger.called if ledger.called else ledger.fresh
    return news & (ledger.poll.doubtful | ledger.restless | ledger.hearing.matters.keys() | troubled)


def due(ledger: Ledger, now_ms: int) -> set[LineId]:
    """Lines whose own deadline has come, those that have just gone blind, and those that a drill is played on."""
    rows, rules = ledger.rows, ledger.rules
    # A quiet line's breaker has nothing to wait for.
    moving = [line for line in ledger.restless if rows[line].breaker is not CLOSED]
    found = {line for line in moving if (at := due_ms(rows[line], rules)) is not None and at <= now_ms}
    return found | drilled(ledger) | {line for line in ledger.poll.silent(now_ms, rules) if not rows[line].blind}


def drilled(ledger: Ledger) -> set[LineId]:
    """Lines that a drill names: its verdict needs no news."""
    return {line for line, obeys in ledger.wanted.items() if obeys.drill}


def restless(rows: Mapping[LineId, Row], rules: Rules) -> set[LineId]:
    """Lines whose row a tick may change without a bad ballot."""
    return {line for line, row in rows.items() if not is_quiet(row, rules)}


def seal(ledger: Ledger, lines: Sequence[LineId], now_ms: int) -> bytes:
    """What a tick left of every row it moved or counted for, in sixteen bytes."""
    seen = hashlib.blake2b(pack("<3q", now_ms, *ledger.board.version), digest_size=16)
    seen.update(sealed(lines, ledger.rows))
    return seen.digest()
