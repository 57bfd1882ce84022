"""The ballots of one scope: who said what of which line, and who has fallen silent. Written by its ledger only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from reachline.core.quorum import Ballot, Tally, is_fresh, total
from reachline.core.rules import Rules
from reachline.core.zone import Verdict, calm_of, is_calm, verdict
from reachline.model import HELPERS, Kind, Line, LineId, Reading, VantageId, Vote, Zone

__all__ = ["Poll", "deciding"]

_SELF_DECIDING: Final = {kind.value: frozenset({kind}) for kind in HELPERS}
"""Lines of these schemes have nothing but the helper kind, so it decides."""


def deciding(line: Line) -> frozenset[Kind]:
    """The probe kinds that decide over a line; helpers only where the line is observed by nothing else."""
    return frozenset(Kind) - HELPERS | _SELF_DECIDING.get(line.endpoint.scheme, frozenset())


class Poll:
    """Newest ballot of each vantage on each line. `heard_ms` says when a line was last judged by anyone, longest silence first."""

    def __init__(self, lines: Mapping[LineId, Line], vantages: frozenset[VantageId], rules: Rules, now_ms: int) -> None:
        self.lines, self.vantages = lines, vantages
        self.ballots: dict[LineId, dict[VantageId, Ballot]] = {line: {} for line in lines}
        self.heard_ms = dict.fromkeys(lines, now_ms)
        self.doubtful: set[LineId] = set()
        """Lines on which some ballot is D or F: only these can leave a quiet row."""
        self.calm = calm_of(rules.limits)

    def cast(
        self, vantage: VantageId, line: Line, kinds: tuple[Reading, ...], *, now_ms: int, doubt: int, rules: Rules
    ) -> bool:
        """Replace what this vantage said of the line; whether it has an opinion at all."""
        ballots = self.ballots[line.id]
        if kinds and all(is_calm(reading, self.calm) and reading.kind not in HELPERS for reading in kinds):
            found = _calm_verdict(vantage, kinds[0])
        else:
            last = ballots.get(vantage)
            found = verdict(vantage, kinds, dict(last.held) if last else {}, rules, decides=deciding(line))
        # Replaced, never changed: whoever holds a moment still holds these by reference (`core.still`).
        self.ballots[line.id] = {**ballots, vantage: Ballot(found.zone, now_ms, doubt, found.vote, found.held)}
        self._doubt(line.id, found.zone)
        if found.zone is Zone.N:
            return False
        self.heard_ms.pop(line.id, None)
        self.heard_ms[line.id] = now_ms
        return True

    def counted(self, line: LineId, now_ms: int, rules: Rules) -> tuple[Tally, tuple[Vote, ...]]:
        """The common zone of the vantages that count now, and why the fresh ones among them say so, in order of their ids."""
        configured, quorum = self._configured(line), rules.quorum
        fresh = [
            ballot
            for name, ballot in sorted(self.ballots[line].items())
            if name in configured and is_fresh(ballot, now_ms, quorum)
        ]
        votes = tuple(ballot.vote for ballot in fresh if ballot.vote)
        return total(fresh, len(configured), quorum), votes

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

    def _doubt(self, line: LineId, zone: Zone) -> None:
        if zone in (Zone.D, Zone.F):
            self.doubtful.add(line)
        elif line in self.doubtful and not any(one.zone in (Zone.D, Zone.F) for one in self.ballots[line].values()):
            self.doubtful.discard(line)

    def moved(self, lines: Mapping[LineId, Line], names: Mapping[LineId, LineId], rules: Rules, now_ms: int) -> Poll:
        """The poll for other lines; `names` says what each was called before (empty: it is new)."""
        poll = Poll(lines, self.vantages, rules, now_ms)
        poll.restore({line: self.ballots.get(names[line], {}) for line in lines})
        silence = {line: self.heard_ms.get(names[line], now_ms) for line in lines}
        poll.heard_ms = dict(sorted(silence.items(), key=lambda item: item[1]))
        return poll

    def restore(self, ballots: dict[LineId, dict[VantageId, Ballot]]) -> None:
        """Take these ballots for the ones cast so far."""
        self.ballots = ballots
        for line, cast in ballots.items():
            for ballot in cast.values():
                self._doubt(line, ballot.zone)


def _calm_verdict(vantage: VantageId, reading: Reading) -> Verdict:
    vote = Vote(vantage, Zone.H, f"{reading.kind}.loss", reading.lost, reading.sent, 0)
    return Verdict(Zone.H, vote, ())
