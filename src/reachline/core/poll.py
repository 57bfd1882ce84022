"""The ballots of one scope: who said what of which line, how far each vantage is trusted, and who has fallen silent. Written by
its ledger only.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from reachline.core.credit import Credit
from reachline.core.cusum import Evidence, Said, loudest, suspicion
from reachline.core.echo import FAILED, LOSS, calm_ballot, word
from reachline.core.habits import Habits
from reachline.core.kinds import deciding, speaks
from reachline.core.quorum import TRUST, Ballot
from reachline.core.roll import Roll
from reachline.core.rules import QuorumRules, Rules
from reachline.core.silence import Beat, after, is_silent
from reachline.core.zone import calm_of, evidence, is_calm, verdict
from reachline.model import HELPERS, Line, LineId, Reading, VantageId, Vote, Zone

__all__ = ["Poll", "deciding"]

_H: Final = Zone.H
_N: Final = Zone.N
_D: Final = Zone.D
_F: Final = Zone.F
"""Looked up once: an enum's attribute costs eight times as much as a name."""


class Poll:
    """Newest ballot of each vantage on each line. `heard_ms` says when a line was last judged by anyone, longest silence first."""

    def __init__(self, lines: Mapping[LineId, Line], vantages: frozenset[VantageId], rules: Rules, now_ms: int) -> None:
        self.lines, self.vantages = lines, vantages
        self.ballots: dict[LineId, dict[VantageId, Ballot]] = {line: {} for line in lines}
        self.roll = Roll(lines)
        """What they say, by number."""
        self.heard_ms = dict.fromkeys(lines, now_ms)
        self.doubtful: set[LineId] = set()
        """Lines on which some ballot is D or F: only these can leave a quiet row."""
        self.pending: dict[VantageId, dict[LineId, Said]] = {}
        """`fast` mode: what each vantage saw since the last tick, as where it is trusted fully."""
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
        self.roll.put(vantage, name, ballot)
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
            if known is not None:
                told[line.id] = known._replace(suspicion=before)
            return Ballot(zone, now_ms, doubt, vote and vote._replace(zone=zone), (), suspects, before)
        if is_quiet and not before:
            told[line.id] = word(seen if known is None else known.seen.plus(seen))
            return calm_ballot(vantage, (FAILED[kind], 0, seen.attempts), now_ms, doubt)
        told[line.id] = word(seen if known is None else known.seen.plus(seen), before)
        what = loudest(seen, rules.questions) if zone is _D else "failed"
        vote = Vote(vantage, zone, f"{kind}.{what}", *seen.of(what), 0)
        return Ballot(zone, now_ms, doubt, vote, (), suspects, before)

    def present(self, now_ms: int, rules: QuorumRules) -> tuple[VantageId, ...]:
        """The vantages that have not fallen silent, in order of their ids."""
        every_ms = _every_ms(rules)
        return tuple(name for name in sorted(self.vantages) if not is_silent(self.beats.get(name), now_ms, every_ms))

    def ballots_of(self, line: LineId) -> tuple[tuple[VantageId, Ballot], ...]:
        """Ballots of the vantages that count, fresh or not, in order of their ids."""
        configured = self.configured(line)
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

    def configured(self, line: LineId) -> frozenset[VantageId]:
        """The vantages that count for the line."""
        named = self.lines[line].vantages
        return self.vantages & named if named else self.vantages

    def _doubt(self, line: LineId, ballot: Ballot) -> None:
        if _is_bad(ballot):
            self.doubtful.add(line)
        elif line in self.doubtful and not any(map(_is_bad, self.ballots[line].values())):
            self.doubtful.discard(line)

    def recall(self, vantage: VantageId, line: LineId, seen: Evidence) -> None:
        """A vantage saw so much of the line since the last tick."""
        ballot = self.ballots.get(line, {}).get(vantage)
        self.pending.setdefault(vantage, {})[line] = Said(TRUST, seen, ballot.before if ballot else 0)

    def restore(self, ballots: dict[LineId, dict[VantageId, Ballot]]) -> None:
        """Take these ballots for the ones cast so far."""
        self.ballots, self.roll = ballots, Roll(self.lines)
        for line, cast in ballots.items():
            for vantage, ballot in cast.items():
                self._doubt(line, ballot)
                self.roll.put(vantage, line, ballot)
                self.credit.keep(vantage, line, ballot)


def _every_ms(rules: QuorumRules) -> int:
    """A heartbeat: a vote is fresh for two and a half of them."""
    return 2 * rules.fresh_ms // 5


def _is_bad(ballot: Ballot) -> bool:
    return ballot.zone in (_D, _F) or ballot.suspicion > 0
