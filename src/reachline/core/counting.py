"""Ballots counted: the common zone with the votes behind it, and in `fast` mode what each vantage said, by its trust."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from reachline.core.cusum import CALM, Question, added, carried, spared, zone_of
from reachline.core.evidence import NOTHING, Evidence, Said, pooled
from reachline.core.poll import Poll
from reachline.core.quorum import TRUST, Ballot, Tally, settled
from reachline.core.roll import Word, doubt_of, zone_said
from reachline.core.row import Row, Sums
from reachline.core.rules import Rules
from reachline.core.severity import remembered
from reachline.model import LineId, VantageId, Vote, Zone

__all__ = ["Count", "Polled", "Voters", "asked_anew", "summed"]

_H: Final = Zone.H
_D: Final = Zone.D
_F: Final = Zone.F
_N: Final = Zone.N
"""Looked up once: an enum's attribute costs eight times as much as a name, and this runs for every line of a tick."""
_new: Final = tuple.__new__
"""What a named tuple's own constructor calls, without the call."""


class Voters(NamedTuple):
    """Whose ballots count, in order of their ids, and from which ms on."""

    names: tuple[VantageId, ...] = ()
    since_ms: int = 0

    def votes(self, cast: Mapping[VantageId, Ballot]) -> tuple[Vote, ...]:
        """Why they say what they say, by all ballots on a line."""
        since_ms, counted = self.since_ms, [cast.get(name) for name in self.names]
        return tuple([one.vote for one in counted if one is not None and one.received_ms >= since_ms and one.vote])


class Polled(NamedTuple):
    """What a line's ballots came to: the common zone, whose they are, and in `fast` mode what these saw since the last tick, be it
    nothing, by their trust.
    """

    found: Tally
    voters: Voters
    said: Sequence[Said] = ()


class _Tallied(NamedTuple):
    """What words come to, the weights of those who say them (none: all are trusted fully), and the same with what these saw."""

    polled: Polled
    owns: tuple[int, ...]
    seen: dict[tuple[int, ...], Polled]
    """By which objects these are: what is pending keeps them."""


class Count:
    """The ballots of a poll as of one moment: made anew for each. Changes nothing."""

    def __init__(self, poll: Poll, now_ms: int, rules: Rules) -> None:
        self._poll, self._share_milli, self._adds_up = poll, rules.quorum.share_milli, bool(rules.questions)
        self._voters = Voters(poll.present(now_ms, rules.quorum), now_ms - rules.quorum.fresh_ms)
        self._speakers = poll.roll.known(self._voters.names)
        self._pending = [poll.pending.get(name, {}) for name in self._speakers]
        self._known: dict[tuple[Word, ...], _Tallied] = {}

    def every(self, lines: Sequence[LineId]) -> list[Polled]:
        """Each of these lines, in their order."""
        known, found = self._known, []
        for line, words in zip(
            lines, self._poll.roll.called(lines, self._speakers, self._voters.since_ms), strict=True
        ):
            if words is None:
                found.append(self.one(line))
                continue
            tallied = known.get(words)
            if tallied is None:
                tallied = known[words] = self._tallied(words)
            found.append(self._with_said(line, words, tallied) if self._adds_up else tallied[0])
        return found

    def one(self, line: LineId) -> Polled:
        """This line, by its ballots."""
        poll, named, voters = self._poll, self._poll.lines[line].vantages, self._voters
        if named:
            voters = voters._replace(names=tuple(name for name in voters.names if name in named))
        said, weighed = [], []
        for name in voters.names:
            ballot = poll.ballots[line].get(name)
            if ballot is not None and ballot.received_ms >= voters.since_ms and ballot.zone is not _N:
                own = self._weight(name, ballot.doubt)
                weighed.append((own, ballot.zone))
                saw = poll.pending.get(name, {}).get(line)
                said.append(Said(own, saw.seen if saw else NOTHING, ballot.before))
        return Polled(self._settled(weighed, len(poll.configured(line))), voters, said)

    def _weight(self, name: VantageId, doubt: int) -> int:
        credit = self._poll.credit
        return credit.weight(name, doubt) if doubt or name in credit.trusts else TRUST

    def _settled(self, weighed: Sequence[tuple[int, Zone]], configured: int) -> Tally:
        """As `quorum.total` counts them."""
        failed = sum([own for own, zone in weighed if zone is _F])
        bad = failed + sum([own for own, zone in weighed if zone is _D])
        whole = sum([own for own, _ in weighed])
        return settled((len(weighed), whole, failed, bad), configured, self._share_milli)

    def _tallied(self, words: tuple[Word, ...]) -> _Tallied:
        """What these words of those who ever spoke come to."""
        weighed = [
            (self._weight(name, doubt_of(word)), zone_said(word))
            for name, word in zip(self._speakers, words, strict=True)
            if word
        ]
        owns = tuple([own for own, _ in weighed])
        polled = Polled(self._settled(weighed, len(self._poll.vantages)), self._voters)
        return _Tallied(polled, () if all(own == TRUST for own in owns) else owns, {})

    def _with_said(self, line: LineId, words: tuple[Word, ...], tallied: _Tallied) -> Polled:
        """The same, with what each of them saw: one value for all lines that they saw alike."""
        polled, owns, known = tallied
        said = [told.get(line) for told in self._pending]
        alike = known.get(key := tuple(map(id, said)))
        if alike is not None:
            return alike
        is_whole = all(said) and all(words)
        if not is_whole:
            ballots = self._poll.ballots[line]
            said = [
                one or Said(TRUST, NOTHING, ballots[name].before)
                for name, word, one in zip(self._speakers, words, said, strict=True)
                if word
            ]
        if owns:
            said = [one._replace(trust=own) for one, own in zip(said, owns, strict=True) if one]
        found = _new(Polled, (polled[0], polled[1], said))
        if is_whole:
            known[key] = found
        return found


def summed(row: Row, found: Tally, heard: Sequence[Said], calls: Evidence, rules: Rules) -> tuple[Sums, Zone]:
    """`fast` mode: vantages and calls add up in the same sums; a quarrel only moves trust."""
    if not found.has_quorum and not calls.is_any:
        return (row.asked, row.recent), found.zone
    told, doubted = _heard(tuple(heard))
    sums = added(row.asked, told, doubted, rules.questions, calls=calls, patience=2 if found.is_lone else 1)
    if sums is CALM:
        return (CALM, ()), _H
    recent = () if sums.is_calm else remembered(row.recent, [_new(Said, (TRUST, told, 0)), *doubted], calls)
    return (sums, recent), zone_of(sums, rules.questions)


@lru_cache(maxsize=1 << 12)  # lines that are well again are seen alike, and stay under watch for long
def _heard(told: tuple[Said, ...]) -> tuple[Evidence, Sequence[Said]]:
    """What those who count saw, and the words of those who are not trusted fully."""
    return pooled(spared(told))


def asked_anew(rows: Mapping[LineId, Row], was: Sequence[Question], now: Sequence[Question]) -> Mapping[LineId, Row]:
    """The rows where other questions are asked from here on: a sum stands for its own question only."""
    if was == now:
        return rows
    return {
        line: row._replace(asked=carried(row.asked, was, now), recent=row.recent if now else ())
        for line, row in rows.items()
    }
