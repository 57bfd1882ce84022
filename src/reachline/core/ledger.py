"""The heart: one scope's rows, and the order of steps from evidence to snapshot. Every formula lives elsewhere.

Evidence is pooled on arrival; a tick judges lines with new evidence or a deadline only. The same calls in the same order
give the same bytes on any machine, so replay, explain, what-if and a warm restart are this class called again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from reachline.core import freeze, leaving, looking, moving, offered, stepping
from reachline.core.board import Board
from reachline.core.counting import asked_anew
from reachline.core.groups import Groups
from reachline.core.hearing import Hearing
from reachline.core.obey import Turned, turned
from reachline.core.orders import NOBODY, Book, Order, left, next_ms, obeyed, placed, renamed, undone
from reachline.core.poll import Poll, deciding
from reachline.core.row import Row, Stepped, is_quiet
from reachline.core.rules import Rules
from reachline.core.scope import of_outcome
from reachline.core.settling import by_line
from reachline.core.steer import Steer
from reachline.core.tick import Changes, Closed, LineView, Taken
from reachline.core.turns import Answered, called, guarded, probed
from reachline.model import (
    Change,
    Gate,
    Line,
    LineId,
    Outcome,
    Reading,
    Scope,
    Snapshot,
    VantageId,
    Version,
)

__all__ = ["Closed", "Ledger", "LineView"]


class Ledger:
    """One scope's rows, ballots and board. Written by one task only; everybody else reads snapshots."""

    def __init__(
        self,
        scope: Scope,
        lines: Sequence[Line],
        rules: Rules,
        *,
        vantages: frozenset[VantageId] = frozenset(),
        version: Version,
        now_ms: int,
    ) -> None:
        self.scope, self.rules = scope, rules
        self.told = _by_id(lines)
        """The lines as the document says; `lines` are these as operators' orders leave them."""
        self.book = NOBODY
        self.lines, self.wanted = obeyed(NOBODY, self.told, rules.policy)
        self.rows = dict.fromkeys(self.lines, Row(since_ms=now_ms))
        self.poll = Poll(self.lines, vantages, rules, now_ms)
        self.board = Board(scope, version, now_ms)
        self.board.post(self.lines, self.rows, rules, now_ms=now_ms)
        self.board.version = version
        self.restless = looking.restless(self.rows, rules)
        self.groups = Groups(self.lines, self.rows, rules)
        self.fresh: set[LineId] = set()
        """Lines with new verdicts since the last tick…"""
        self.called: set[LineId] = set()
        """…and with new outcomes of calls."""
        self.answered: Answered = {}
        """Rows since the last success, by those before it."""
        self.hearing = Hearing()
        self.offered = self.asked = offered.NOTHING
        """What the lines are asked to carry, and that together with what clients refuse as the plan across regions says."""
        self.stale = True
        """To be published anew though no row moved: lines or rules changed, or nothing was published yet."""

    def restore(self, rows: Mapping[LineId, Row], book: Book) -> None:
        """Take these rows and orders for the ones there were so far."""
        self._follow(book)
        self.rows = dict(rows)
        self.restless = looking.restless(self.rows, self.rules)

    def report(
        self, vantage: VantageId, readings: Iterable[tuple[LineId, Reading]], *, now_ms: int, doubt: int = 0
    ) -> None:
        """One vantage's readings; a line's kinds stand next to each other and replace what this vantage said of it."""
        self.poll.heartbeat(vantage, now_ms, self.rules)
        for line, kinds in by_line(readings):
            if (known := self.lines.get(line)) is not None:
                if self.poll.cast(vantage, known, kinds, now_ms=now_ms, doubt=doubt, rules=self.rules):
                    self.fresh.add(line)
                # Not where it is merely doubted: that depends on who was heard first. It stays as restless as it is.
                if line in self.restless:
                    self.rows[line] = probed(
                        self.rows[line], kinds, deciding(known), now_ms, self.rules, known=self.answered
                    )

    def outcomes(self, client: str, rows: Iterable[Outcome], *, now_ms: int, shed: int = 0) -> None:
        """What one client's calls came to: counted into trial windows, and evidence of the business's own; `shed` it refused."""
        calls, add = 0, self.hearing.business.pending.add
        for seen in rows:
            line = seen.line
            row = self.rows.get(line)
            if row is not None:
                after = called(row, seen, now_ms, self.rules)
                if after.breaker is row.breaker:  # then it is as quiet as before
                    self.rows[line] = after
                else:
                    self._put(line, after)
                self.called.add(line)
                told = of_outcome(seen)
                add(line, (client, seen.service), told)
                calls += told.calls
        self.offered, self.asked = offered.counted(self.offered, calls), offered.counted(self.asked, calls + shed)

    def members(self, vantages: frozenset[VantageId]) -> None:
        """Who counts for the quorum from now on."""
        leaving.members(self.poll, vantages, self.rules.quorum.fresh_ms)

    def reconfigure(self, lines: Sequence[Line], rules: Rules, vantages: frozenset[VantageId], *, now_ms: int) -> None:
        """Other lines or rules, effective at the next tick; what a line *is* keeps its row through a rename."""
        was = {line.identity: line.id for line in self.lines.values()}
        rows = asked_anew(self.rows, self.rules.questions, rules.questions)
        self.told, self.rules = _by_id(lines), rules
        names = {line: was.get(each.identity, LineId("")) for line, each in self.told.items()}
        self._follow(renamed(self.book, {old: new for new, old in names.items() if old}))
        self.rows = {line: rows.get(old, Row(since_ms=now_ms)) for line, old in names.items()}
        self.poll = moving.moved(self.poll, self.lines, names, rules, now_ms)
        self.restless = looking.restless(self.rows, rules)
        self.fresh, self.called = self.fresh & self.rows.keys(), self.called & self.rows.keys()
        self.hearing.moved(names)
        self.members(vantages)

    def order(self, order: Order) -> None:
        """An operator's order, effective at the next tick."""
        self._follow(placed(self.book, order))

    def undo(self, number: int) -> None:
        """The order of that number ends at the next tick; nothing where there is none."""
        self._follow(undone(self.book, number))

    def steered(self, steer: Steer | None, *, now_ms: int) -> None:
        """The plan across regions from here on: published at once, for nothing is judged by it."""
        self.board.steered(steer, now_ms)

    def close(self, now_ms: int) -> Closed:
        """One tick: judge what was heard, move what is due, guard, weigh, publish."""
        ordered = self._obey(now_ms)
        touched = looking.touched(self, self.hearing.turn(now_ms, self.rules), ordered, now_ms)
        rows = {line: self.rows[line] for line in touched}
        before = rows | {line: turn.before for line, turn in ordered.items()}
        if self.groups.lines is not self.lines:
            self.groups = Groups(self.lines, self.rows, self.rules)
        asked = self.groups.warned(rows)
        told = self.hearing.tell(asked, self.fresh, self.poll, self.lines, now_ms=now_ms, rules=self.rules)
        steps = self.groups.in_turn(self.rows, stepping.steps(self, told, now_ms))
        self.rows.update({line: done.row for line, done in steps.items()})
        self.offered, self.asked = (offered.told(one, now_ms, self.rules.tick_ms) for one in (self.offered, self.asked))
        load = self.offered.level
        if wishes := [line for line, done in steps.items() if done.wants]:
            self._guard(wishes, steps, load, now_ms)
        stepping.note(self, steps, told, before=before, ordered=ordered, now_ms=now_ms)
        for line, row in self.groups.settled(before, self.rows).items():
            before.setdefault(line, self.rows[line])
            self._put(line, row)
        looked = touched if len(before) == len(touched) else sorted(before)
        after = self.rows
        moved = {line: None for line in looked if after[line] is not before[line] and after[line] != before[line]}
        last = self.board.version
        changes: Sequence[Change] = ()
        self.stale = self.board.learns(self.hearing.plane_ms is not None) or self.stale
        if moved or self.stale or self.board.follows(load, self.rules):
            news = self.board.post(
                self.lines, self.rows, self.rules, moved=None if self.stale else moved, offered=load, now_ms=now_ms
            )
            left = {now.line: after[now.line] for _, now in news}
            changes = Changes(news, Taken(before, left, told, steps, self.fresh, ordered), now_ms, self.rules)
        self.poll.habits.learn(
            self.fresh, self.lines, self.rows, vantages=self.poll.vantages, now_ms=now_ms, rules=self.rules
        )
        self.fresh, self.called, self.stale = set(), set(), False
        published = self.snapshot() if self.board.version != last else None
        sealed = [line for line in looked if line in moved or after[line].breaker.gate is not Gate.CLOSED]
        return Closed(published, changes, looking.seal(self, sealed, now_ms))

    def _guard(self, wishes: list[LineId], steps: Mapping[LineId, Stepped], load: int, now_ms: int) -> None:
        well, restless = self.groups.well, self.restless.union(steps)
        tripped = guarded(
            wishes, self.lines, self.rows, self.rules, well=well, restless=restless, offered=load, now_ms=now_ms
        )
        self.rows.update(tripped)

    def deadline(self) -> int | None:
        """The next ms at which close() changes something without new evidence, or None."""
        return looking.deadline(self)

    def snapshot(self) -> Snapshot:
        """The one now published."""
        return self.board.snapshot()

    def rebase(self, version: Version) -> None:
        """A new epoch: versions go on from here, never lower."""
        self.board.version = max(self.board.version, version)

    def view(self, line: LineId, now_ms: int) -> LineView:
        """One line as it stands; KeyError where there is none."""
        return looking.view(self, line, now_ms)

    def freeze(self) -> bytes:
        """A checkpoint from which `thaw` makes an equal ledger."""
        return freeze.encode(self)

    @classmethod
    def thaw(cls, frozen: bytes) -> Ledger:
        """The ledger of a checkpoint; JournalError where it is not one."""
        return freeze.decode(frozen, cls)

    def _follow(self, book: Book) -> None:
        """Other orders, or other lines for them: weights, breakers and the publication follow at the next tick."""
        self.book, self.stale = book, True
        self.lines, self.wanted = obeyed(book, self.told, self.rules.policy)
        self.poll.lines = self.lines

    def _obey(self, now_ms: int) -> dict[LineId, Turned]:
        """Rows that have to follow other orders from this tick on, turned."""
        ends = next_ms(self.book)
        if ends is not None and ends <= now_ms:
            self._follow(left(self.book, now_ms))
        found = turned(self.book, self.wanted, self.lines, self.rows, ends=self.stale, rules=self.rules, now_ms=now_ms)
        self.rows.update((line, turn.row) for line, turn in found.items())
        self.stale = self.stale or bool(found)
        return found

    def _put(self, line: LineId, row: Row) -> None:
        self.rows[line] = row
        if is_quiet(row, self.rules):
            self.restless.discard(line)
        else:
            self.restless.add(line)


def _by_id(lines: Sequence[Line]) -> dict[LineId, Line]:
    return {line.id: line for line in sorted(lines, key=lambda line: line.id)}
