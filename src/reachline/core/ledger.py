"""The heart: one scope's rows, and the order of steps from evidence to snapshot. Every formula lives elsewhere.

Evidence is pooled on arrival; a tick visits lines with new evidence or a deadline only. The same calls in the same order
give the same bytes on any machine, so replay, explain, what-if and a warm restart are this class called again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from reachline.core import freeze
from reachline.core.breaker import count, count_synthetic
from reachline.core.guard import allowed
from reachline.core.publish import BLIND, candidates, facts_of, is_news, order, rule_of, standing, weights
from reachline.core.quorum import Ballot, Tally, is_fresh, tally
from reachline.core.row import Row, Stepped, due_ms, hold, noted, open_now, step
from reachline.core.rules import Rules
from reachline.core.zone import verdict
from reachline.model import (
    Change,
    Gate,
    Kind,
    Line,
    LineId,
    Outcome,
    Reading,
    Scope,
    Snapshot,
    Standing,
    VantageId,
    Version,
    Vote,
    Zone,
)

__all__ = ["Closed", "Ledger", "LineView"]

_SELF_DECIDING: Final = {"dns": frozenset({Kind.DNS}), "icmp": frozenset({Kind.ICMP})}
"""Lines of these schemes have nothing but the helper kind, so it decides."""


class Closed(NamedTuple):
    """A tick's result. `snapshot` is None where nothing new is worth publishing; `digest` seals every row it changed."""

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


class Ledger:
    """One scope's rows. Written by one task only; everybody else reads snapshots."""

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
        self.scope, self.rules, self.version = scope, rules, version
        self.lines = {line.id: line for line in sorted(lines, key=lambda line: line.id)}
        self.vantages = vantages
        self.rows = {line: Row(since_ms=now_ms) for line in self.lines}
        self.ballots: dict[LineId, dict[VantageId, Ballot]] = {line: {} for line in self.lines}
        self.heard_ms = dict.fromkeys(self.lines, now_ms)
        """When any vantage last had an opinion, longest silence first."""
        self.fresh: set[LineId] = set()
        """Lines with new evidence from vantages since the last tick…"""
        self.called: set[LineId] = set()
        """…and with new outcomes of calls."""
        self.stale = True
        """Weights must be made anew though no row moved: lines or rules changed."""
        found = weights(tuple(self.lines.values()), self.rows, rules)
        self.published = {line.id: standing(line, self.rows[line.id], found, rules) for line in self.lines.values()}
        self.panic, self.issued_ms = found.panic, now_ms

    def report(
        self, vantage: VantageId, readings: Iterable[tuple[LineId, Reading]], *, now_ms: int, doubt: int = 0
    ) -> None:
        """One vantage's readings; a line's kinds stand next to each other and replace what this vantage said of it."""
        for line, group in groupby(readings, key=lambda item: item[0]):
            if line not in self.lines:
                continue
            kinds = tuple(reading for _, reading in group)
            self._vote(vantage, self.lines[line], kinds, now_ms, doubt)

    def _vote(self, vantage: VantageId, line: Line, kinds: tuple[Reading, ...], now_ms: int, doubt: int) -> None:
        ballots, row = self.ballots[line.id], self.rows[line.id]
        last, decides = ballots.get(vantage), _SELF_DECIDING.get(line.endpoint.scheme)
        found = verdict(vantage, kinds, dict(last.held) if last else {}, self.rules, decides=decides)
        ballots[vantage] = Ballot(found.zone, now_ms, doubt, found.vote, found.held)
        if found.zone is not Zone.N:
            self.heard_ms.pop(line.id, None)
            self.heard_ms[line.id] = now_ms
            self.fresh.add(line.id)
        if row.breaker.gate in (Gate.HALF_OPEN, Gate.RAMP):
            breaker = count_synthetic(row.breaker, sum(reading.fresh_ok for reading in kinds if not reading.void))
            self.rows[line.id] = row._replace(breaker=breaker)

    def outcomes(self, client: str, rows: Iterable[Outcome], *, now_ms: int) -> None:  # noqa: ARG002
        """What one client's calls came to, counted into trial windows; timeouts and server errors fail a trial too.

        `client` and `now_ms` name the evidence for rules that weigh business against probes; none of these reads them.
        """
        for seen in rows:
            row = self.rows.get(seen.line)
            if row is not None:
                failed = seen.failed + seen.late + seen.errors
                breaker = count(row.breaker, window=seen.window, ok=seen.ok, failed=failed, rules=self.rules.breaker)
                self.rows[seen.line] = row._replace(breaker=breaker)
                self.called.add(seen.line)

    def members(self, vantages: frozenset[VantageId]) -> None:
        """Who counts for the quorum from now on."""
        self.vantages = vantages

    def reconfigure(self, lines: Sequence[Line], rules: Rules, vantages: frozenset[VantageId], *, now_ms: int) -> None:
        """Other lines or rules: what a line *is* keeps its row through a rename; effective at the next tick."""
        was = {line.identity: line.id for line in self.lines.values()}
        rows, ballots, heard = self.rows, self.ballots, self.heard_ms
        self.lines = {line.id: line for line in sorted(lines, key=lambda line: line.id)}
        kept = {line.id: was.get(line.identity, LineId("")) for line in self.lines.values()}
        self.rows = {line: rows.get(old, Row(since_ms=now_ms)) for line, old in kept.items()}
        self.ballots = {line: ballots.get(old, {}) for line, old in kept.items()}
        silence = {line: heard.get(old, now_ms) for line, old in kept.items()}
        self.heard_ms = dict(sorted(silence.items(), key=lambda item: item[1]))
        self.rules, self.vantages, self.stale = rules, vantages, True

    def close(self, now_ms: int) -> Closed:
        """One tick: judge what was heard, move what is due, guard, weigh, publish."""
        touched = sorted(self.fresh | self.called | self._due(now_ms))
        before = {line: self.rows[line] for line in touched}
        steps = {line: self._step(line, now_ms) for line in touched}
        self.rows.update((line, done.row) for line, done in steps.items())
        self._guard([line for line, done in steps.items() if done.wants], now_ms)
        self.rows.update((line, noted(before[line], self.rows[line], steps[line].rule, now_ms)) for line in touched)
        moved = [line for line in touched if self.rows[line] != before[line]]
        changes = self._publish(before, steps, now_ms) if moved or self.stale else ()
        renewed = self.stale
        self.fresh, self.called, self.stale = set(), set(), False
        return Closed(self.snapshot() if changes or renewed else None, changes, self._seal(moved, now_ms))

    def deadline(self) -> int | None:
        """The next ms at which close() changes something without new evidence, or None."""
        moments = [due for row in self.rows.values() if (due := due_ms(row, self.rules)) is not None]
        seen = [heard for line, heard in self.heard_ms.items() if not self.rows[line].blind]
        return min([*moments, *(heard + self.rules.quorum.blind_ms for heard in seen[:1])], default=None)

    def snapshot(self) -> Snapshot:
        """The one now published."""
        return Snapshot(
            scope=self.scope,
            version=self.version,
            issued_ms=self.issued_ms,
            standings=order(tuple(self.published.values())),
            panic=self.panic,
        )

    def rebase(self, version: Version) -> None:
        """A new epoch: versions go on from here, never lower."""
        self.version = max(self.version, version)

    def view(self, line: LineId, now_ms: int) -> LineView:
        """One line as it stands; KeyError where there is none."""
        row = self.rows[line]
        votes = tuple(sorted(self.ballots[line].items()))
        return LineView(
            self.lines[line], row, self.published[line], self._tally(line, now_ms), votes, due_ms(row, self.rules)
        )

    def freeze(self) -> bytes:
        """A checkpoint from which `thaw` makes an equal ledger."""
        return freeze.encode(self)

    @classmethod
    def thaw(cls, frozen: bytes) -> Ledger:
        """The ledger of a checkpoint; JournalError where it is not one."""
        return freeze.decode(frozen, cls)

    def _configured(self, line: Line) -> frozenset[VantageId]:
        return self.vantages & line.vantages if line.vantages else self.vantages

    def _counted(self, line: LineId) -> tuple[tuple[VantageId, Ballot], ...]:
        """Ballots of the vantages that count, in order of their ids."""
        configured = self._configured(self.lines[line])
        return tuple(sorted(item for item in self.ballots[line].items() if item[0] in configured))

    def _tally(self, line: LineId, now_ms: int) -> Tally:
        configured = self._configured(self.lines[line])
        return tally(self._counted(line), len(configured), now_ms, self.rules.quorum)

    def _votes(self, line: LineId, now_ms: int) -> tuple[Vote, ...]:
        counted = self._counted(line)
        return tuple(
            ballot.vote for _, ballot in counted if ballot.vote and is_fresh(ballot, now_ms, self.rules.quorum)
        )

    def _due(self, now_ms: int) -> set[LineId]:
        """Lines whose own deadline has come, and those nobody has seen for too long."""
        due = {line for line, row in self.rows.items() if (at := due_ms(row, self.rules)) is not None and at <= now_ms}
        for line, heard in self.heard_ms.items():
            if heard + self.rules.quorum.blind_ms > now_ms:
                break
            if not self.rows[line].blind:
                due.add(line)
        return due

    def _step(self, line: LineId, now_ms: int) -> Stepped:
        """Only new evidence is a tick of the judge; a deadline alone moves the breaker."""
        found = self._tally(line, now_ms)
        if line not in self.fresh:
            found = found._replace(zone=Zone.N, has_quorum=False)
        blind = now_ms - self.heard_ms[line] >= self.rules.quorum.blind_ms
        done = step(line, self.rows[line], found, votes=self._votes(line, now_ms), now_ms=now_ms, rules=self.rules)
        if blind is not done.row.blind:
            return done._replace(row=done.row._replace(blind=blind), rule=done.rule or BLIND[blind])
        return done

    def _guard(self, wishes: Sequence[LineId], now_ms: int) -> None:
        may, must_hold = (
            allowed(candidates(tuple(self.lines.values()), self.rows), wishes) if wishes else (set(), set())
        )
        for line in may:
            self.rows[line] = open_now(line, self.rows[line], now_ms, self.rules)
        for line in must_hold:
            self.rows[line] = hold(self.rows[line])

    def _publish(
        self, before: Mapping[LineId, Row], steps: Mapping[LineId, Stepped], now_ms: int
    ) -> tuple[Change, ...]:
        """Make all standings anew; those that are news are published, each with its change."""
        found = weights(tuple(self.lines.values()), self.rows, self.rules)
        changes = []
        for line in self.lines.values():
            after = standing(line, self.rows[line.id], found, self.rules)
            last = self.published.get(line.id)
            if last is None or is_news(last, after):
                self.published[line.id] = after
                changes.append(self._change(last or after, after, before, steps, now_ms))
        self.published = {line: self.published[line] for line in self.lines}
        if changes or self.stale:
            self.version = self.version._replace(counter=self.version.counter + 1)
            self.panic, self.issued_ms = found.panic, now_ms
        return tuple(changes)

    def _change(
        self,
        last: Standing,
        after: Standing,
        before: Mapping[LineId, Row],
        steps: Mapping[LineId, Stepped],
        now_ms: int,
    ) -> Change:
        line = after.line
        row = self.rows[line]
        done = steps.get(line)
        seen = self._tally(line, now_ms) if line in self.fresh else None
        return Change(
            line=line,
            at_ms=now_ms,
            before=last,
            after=after,
            rule=rule_of(last, after, done.rule if done else "", self.rules),
            votes=self._votes(line, now_ms) if done else (),
            facts=facts_of(before.get(line, row), row, seen, due_ms(row, self.rules), self.rules),
        )

    def _seal(self, moved: Sequence[LineId], now_ms: int) -> bytes:
        """What this tick left of every row it moved, in sixteen bytes."""
        rows = [[line, freeze.flat(self.rows[line])] for line in moved]
        text = json.dumps([now_ms, self.version, rows], separators=(",", ":"))
        return hashlib.blake2b(text.encode(), digest_size=16).digest()
