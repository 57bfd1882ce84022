"""The ballots of one scope: who said what of which line, how far each vantage is trusted, and who has fallen silent. Written by
its ledger only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from types import MappingProxyType
from typing import Final

from reachline.core.counting import polled
from reachline.core.credit import Credit, Result
from reachline.core.cusum import Evidence, Said, loudest, suspicion
from reachline.core.echo import FAILED, LOSS, calm_ballot
from reachline.core.habits import Habits
from reachline.core.kinds import deciding, speaks
from reachline.core.quorum import Ballot, Tally, needed
from reachline.core.rules import QuorumRules, Rules
from reachline.core.silence import Beat, after, is_silent
from reachline.core.trust import independent, rest_is_well, shared_by
from reachline.core.zone import calm_of, evidence, is_calm, verdict
from reachline.model import HELPERS, Line, LineId, Reading, VantageId, Vote, Zone

__all__ = ["Poll", "deciding"]

_H: Final = Zone.H
_N: Final = Zone.N
_D: Final = Zone.D
_F: Final = Zone.F
"""Looked up once: an enum's attribute costs eight times as much as a name."""
_NOTHING: Final[Mapping[LineId, Evidence]] = MappingProxyType({})


class Poll:
    """Newest ballot of each vantage on each line. `heard_ms` says when a line was last judged by anyone, longest silence first."""

    def __init__(self, lines: Mapping[LineId, Line], vantages: frozenset[VantageId], rules: Rules, now_ms: int) -> None:
        self.lines, self.vantages = lines, vantages
        self.ballots: dict[LineId, dict[VantageId, Ballot]] = {line: {} for line in lines}
        self.heard_ms = dict.fromkeys(lines, now_ms)
        self.doubtful: set[LineId] = set()
        """Lines on which some ballot is D or F: only these can leave a quiet row."""
        self.pending: dict[VantageId, dict[LineId, Evidence]] = {}
        """`fast` mode: what each vantage saw since the last tick."""
        self.calm = calm_of(rules.limits)
        self.is_mild = all(question.miss <= 0 for question in rules.questions)
        """`fast` mode: an attempt without fault speaks for its line, whatever is asked."""
        self.credit = Credit()
        self.habits = Habits()
        """Of lines whose round trip is measured by their own."""
        self.beats: dict[VantageId, Beat] = {}

    def heartbeat(self, vantage: VantageId, now_ms: int, rules: Rules) -> None:
        """Something arrived from this vantage: whatever it says of lines, it is there."""
        self.beats[vantage] = after(self.beats.get(vantage), now_ms, _every_ms(rules.quorum))

    def cast(
        self, vantage: VantageId, line: Line, kinds: tuple[Reading, ...], *, now_ms: int, doubt: int, rules: Rules
    ) -> bool:
        """Replace what this vantage said of the line; whether it has an opinion at all."""
        if rules.baseline.degraded_milli:
            self.habits.hear(vantage, line.id, kinds, now_ms=now_ms, rules=rules)
        ballots, name = self.ballots[line.id], line.id
        last = ballots.get(vantage)
        if rules.questions:
            ballot = self._pooled(vantage, line, kinds, (last, now_ms, doubt), rules)
        elif self._is_calm(kinds):
            first = kinds[0]
            ballot = calm_ballot(vantage, (LOSS[first.kind], first.lost, first.sent), now_ms, doubt)
        else:
            held, own = dict(last.held) if last else {}, self.habits.limits(name, now_ms=now_ms, rules=rules)
            found = verdict(vantage, kinds, held, rules, decides=deciding(line), own=own)
            ballot = Ballot(found.zone, now_ms, doubt, found.vote, found.held)
        # Replaced, never changed: whoever holds a moment still holds these by reference (`core.still`).
        self.ballots[name] = {**ballots, vantage: ballot}
        if ballot.zone is not _H or ballot.suspicion or name in self.doubtful:
            self._doubt(name, ballot)
        self.credit.cast(vantage, name, last, ballot)
        if ballot.zone is _N:
            return False
        self.heard_ms.pop(name, None)
        self.heard_ms[name] = now_ms
        return True

    def _is_calm(self, kinds: tuple[Reading, ...]) -> bool:
        """Whether each of these decides, and is healthy whatever the line was."""
        for reading in kinds:
            if not is_calm(reading, self.calm) or reading.kind in HELPERS:
                return False
        return bool(kinds)

    def _pooled(
        self,
        vantage: VantageId,
        line: Line,
        kinds: tuple[Reading, ...],
        at: tuple[Ballot | None, int, int],
        rules: Rules,
    ) -> Ballot:
        """The evidence goes to what is pending; the ballot says what this vantage by itself makes of it.

        `at` is its last ballot, when this one arrived, and its doubt of itself.
        """
        decides, (last, now_ms, doubt) = deciding(line), at
        seen, kind = evidence(kinds, decides)
        if kind is None and (last is None or not any(map(partial(speaks, decides=decides), kinds))):
            return Ballot(_N, now_ms, doubt)
        told = self.pending.setdefault(vantage, {})
        known = told.get(line.id)
        before = 0 if last is None else last.suspicion if known is None else last.before
        suspected = last.suspicion if last else 0
        is_quiet = self.is_mild and not (suspected or seen.failed or seen.slow or seen.crawl)
        suspects = 0 if is_quiet else suspicion(suspected, seen, rules.questions)
        zone = _D if 2 * suspects >= rules.questions[0].height else _H
        if kind is None:
            # Between two rounds: nothing new, which takes nothing back.
            vote = last.vote if last else None
            return Ballot(zone, now_ms, doubt, vote and vote._replace(zone=zone), (), suspects, before)
        told[line.id] = seen if known is None else known.plus(seen)
        if is_quiet and not before:
            return calm_ballot(vantage, (FAILED[kind], 0, seen.attempts), now_ms, doubt)
        what = loudest(seen, rules.questions) if zone is _D else "failed"
        vote = Vote(vantage, zone, f"{kind}.{what}", *seen.of(what), 0)
        return Ballot(zone, now_ms, doubt, vote, (), suspects, before)

    def telling(self, now_ms: int, rules: QuorumRules) -> list[tuple[VantageId, Mapping[LineId, Evidence]]]:
        """Those present, each with what it saw since the last tick."""
        return [(name, self.pending.get(name, _NOTHING)) for name in self.present(now_ms, rules)]

    def polled(
        self,
        line: LineId,
        present: Sequence[tuple[VantageId, Mapping[LineId, Evidence]]],
        now_ms: int,
        rules: QuorumRules,
    ) -> tuple[Tally, tuple[Vote, ...], Sequence[Said]]:
        """The common zone of those present, why they say so, and what they saw since the last tick, in their order."""
        named, whole = self.lines[line].vantages, len(self.vantages)
        return polled(
            line,
            self.ballots[line],
            [one for one in present if one[0] in named] if named else present,
            self.credit,
            since_ms=now_ms - rules.fresh_ms,
            configured=len(self._configured(line)) if named else whole,
            share_milli=rules.share_milli,
        )

    def present(self, now_ms: int, rules: QuorumRules) -> tuple[VantageId, ...]:
        """The vantages that have not fallen silent, in order of their ids."""
        every_ms = _every_ms(rules)
        return tuple(name for name in sorted(self.vantages) if not is_silent(self.beats.get(name), now_ms, every_ms))

    def fresh(
        self, line: LineId, present: Sequence[VantageId], now_ms: int, rules: QuorumRules
    ) -> dict[VantageId, Ballot]:
        """Ballots that count now, of those who are present and in their order."""
        cast, named = self.ballots[line], self.lines[line].vantages
        since_ms = now_ms - rules.fresh_ms
        return {
            name: ballot
            for name in present
            if (ballot := cast.get(name)) is not None
            and ballot.received_ms >= since_ms
            and (not named or name in named)
        }

    def learn(self, results: Mapping[LineId, Result], now_ms: int, rules: Rules) -> None:
        """A tick ended with these results of the lines with news that may be in dispute: trust moves."""
        if len(self.vantages & self.credit.spoke.keys()) >= needed(len(self.vantages)):
            told = [(result, self._news(line)) for line, result in results.items()]
            self.credit.learn(told, self.vantages, now_ms, is_pooled=bool(rules.questions))
        sick, whole = self.credit.sick(self.vantages), len(self.vantages)
        # Where half of all call a line bad, no majority is left that calls it healthy.
        crowded = self.credit.crowded(self.vantages, whole - whole // 2) if sick else set()
        own = {line for line, each in self.lines.items() if each.vantages} if sick else set()
        for vantage in sick:
            bad = self.credit.bad[vantage]
            if self._is_alone(vantage, (bad - crowded) | (bad & own), now_ms, rules.quorum):
                self.credit.put_aside(vantage, self.vantages, now_ms)
        self.credit.close(now_ms)
        self.pending = {}

    def _news(self, line: LineId) -> dict[VantageId, Ballot]:
        """Verdicts since the last tick of the vantages that count for the line."""
        configured = self._configured(line)
        cast = self.ballots[line].items()
        return {name: ballot for name, ballot in cast if name in configured and self.credit.is_news(ballot)}

    def _is_alone(self, vantage: VantageId, asked: AbstractSet[LineId], now_ms: int, rules: QuorumRules) -> bool:
        """Whether most of its lines, which are not one risk, are bad in its eyes and healthy in those of the rest: `asked` may be."""
        present = self.present(now_ms, rules)
        alone = [
            line
            for line in asked
            if rest_is_well(self.fresh(line, present, now_ms, rules), vantage, len(self._configured(line)))
        ]
        most = 2 * len(alone) > self.credit.sees[vantage]
        return most and independent(shared_by(self.lines[line]) for line in alone) > 1

    def ballots_of(self, line: LineId) -> tuple[tuple[VantageId, Ballot], ...]:
        """Ballots of the vantages that count, fresh or not, in order of their ids."""
        configured = self._configured(line)
        return tuple(sorted(item for item in self.ballots[line].items() if item[0] in configured))

    def is_blind(self, line: LineId, now_ms: int, rules: Rules) -> bool:
        """Nobody has had an opinion for too long: the line's state is held, not judged."""
        return now_ms - self.heard_ms[line] >= rules.quorum.blind_ms

    def silent(self, now_ms: int, rules: Rules) -> list[LineId]:
        """The blind lines, longest silence first."""
        found = []
        for line in self.heard_ms:
            if not self.is_blind(line, now_ms, rules):
                break
            found.append(line)
        return found

    def _configured(self, line: LineId) -> frozenset[VantageId]:
        named = self.lines[line].vantages
        return self.vantages & named if named else self.vantages

    def _doubt(self, line: LineId, ballot: Ballot) -> None:
        if _is_bad(ballot):
            self.doubtful.add(line)
        elif line in self.doubtful and not any(map(_is_bad, self.ballots[line].values())):
            self.doubtful.discard(line)

    def restore(self, ballots: dict[LineId, dict[VantageId, Ballot]]) -> None:
        """Take these ballots for the ones cast so far."""
        self.ballots = ballots
        for line, cast in ballots.items():
            for vantage, ballot in cast.items():
                self._doubt(line, ballot)
                self.credit.keep(vantage, line, ballot)


def _every_ms(rules: QuorumRules) -> int:
    """A heartbeat: a vote is fresh for two and a half of them."""
    return 2 * rules.fresh_ms // 5


def _is_bad(ballot: Ballot) -> bool:
    return ballot.zone in (_D, _F) or ballot.suspicion > 0
