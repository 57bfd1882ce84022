"""Every vantage's trust in one scope, and what moves it: what each said since the last tick, and which lines it calls bad.

Written by its poll only. The formulas are `core.trust`'s.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from reachline.core.quorum import TRUST, Ballot
from reachline.core.trust import WHOLE, Score, Trust, learned, set_aside, weight
from reachline.model import LineId, VantageId, Zone

__all__ = ["Credit", "Result"]

_H: Final = Zone.H
_D: Final = Zone.D
_F: Final = Zone.F
_N: Final = Zone.N
"""Looked up once: an enum's attribute costs eight times as much as a name."""


class Result(NamedTuple):
    """What a tick found of one line: whether it is well (None: nothing was found), and, where the vantages lost a quarrel with
    the business just now, what the business says.
    """

    well: bool | None
    lost: bool | None = None

    def place(self, says_well: bool, *, is_pooled: bool) -> int:
        """Where in a `Score` a verdict counts besides `spoke`; 0: it agreed.

        Where evidence is pooled, whoever sees nothing wrong by itself has merely too little of it to say what all say together.
        """
        if self.lost is not None and says_well is not self.lost:
            return 2
        if self.well is None or (is_pooled and says_well and not self.well):
            return 3
        return int(says_well is not self.well)


class Credit:
    """Trust of each vantage. `trusts` holds those that are not trusted fully."""

    def __init__(self) -> None:
        self.trusts: dict[VantageId, Trust] = {}
        self.closed_ms = -1
        """When the last tick ended…"""
        self.spoke: dict[VantageId, int] = {}
        """…and on how many lines each vantage has given a verdict since."""
        self.bad: dict[VantageId, set[LineId]] = {}
        """Lines that each vantage calls bad…"""
        self.sees: dict[VantageId, int] = {}
        """…of how many it has a verdict on."""

    def of(self, vantage: VantageId) -> Trust:
        """How far this vantage is trusted."""
        return self.trusts.get(vantage, WHOLE)

    def weight(self, vantage: VantageId, doubt: int) -> int:
        """Of its vote, in 1/1000."""
        trust = self.trusts.get(vantage)
        return TRUST // (1 + doubt) if trust is None else weight(trust, doubt)

    def cast(self, vantage: VantageId, line: LineId, last: Ballot | None, ballot: Ballot) -> None:
        """A new ballot in the place of the last one."""
        if last is not None and last.zone is _H and ballot.zone is _H:  # as most are: nothing but that it spoke
            if last.received_ms <= self.closed_ms:
                self.spoke[vantage] = self.spoke.get(vantage, 0) + 1
            return
        was_known, is_known = last is not None and last.zone is not _N, ballot.zone is not _N
        if was_known is not is_known:
            self.sees[vantage] = self.sees.get(vantage, 0) + (1 if is_known else -1)
        self._blame(vantage, line, ballot)
        if is_known and (last is None or last.received_ms <= self.closed_ms):
            self.spoke[vantage] = self.spoke.get(vantage, 0) + 1

    def keep(self, vantage: VantageId, line: LineId, ballot: Ballot) -> None:
        """A ballot that stands: what the vantage says in all is kept current."""
        if ballot.zone is not _N:
            self.sees[vantage] = self.sees.get(vantage, 0) + 1
        self._blame(vantage, line, ballot)

    def _blame(self, vantage: VantageId, line: LineId, ballot: Ballot) -> None:
        if ballot.zone is _D or ballot.zone is _F:
            self.bad.setdefault(vantage, set()).add(line)
        elif vantage in self.bad:
            self.bad[vantage].discard(line)

    def is_news(self, ballot: Ballot) -> bool:
        """Whether a ballot is a verdict given since the last tick."""
        return ballot.zone is not _N and ballot.received_ms > self.closed_ms

    def sick(self, among: Collection[VantageId]) -> list[VantageId]:
        """Vantages that spoke and call more than half of their lines bad."""
        return sorted(
            vantage
            for vantage, lines in self.bad.items()
            if vantage in among and vantage in self.spoke and 2 * len(lines) > self.sees.get(vantage, 0)
        )

    def crowded(self, among: Iterable[VantageId], least: int) -> set[LineId]:
        """Lines that at least so many of these vantages call bad."""
        named = [lines for vantage in among if (lines := self.bad.get(vantage))]
        if not named or len(named) < least:
            return set()
        common = set.intersection(*named)  # nearly all of them, where lines fail
        found: list[set[LineId]] = [set() for _ in range(least)]
        for lines in (lines - common for lines in named):
            for place in range(least - 1, 0, -1):
                found[place] |= found[place - 1] & lines
            found[0] |= lines
        return found[-1] | common

    def learn(
        self,
        told: Iterable[tuple[Result, Mapping[VantageId, Ballot]]],
        among: Collection[VantageId],
        now_ms: int,
        *,
        is_pooled: bool = False,
    ) -> None:
        """Who agreed gains trust, who differed loses it. `told` are the lines with news that may be in dispute, each with the
        ballots that are news; on all other lines with news everybody said healthy.
        """
        scores = {vantage: [count, 0, 0, 0] for vantage, count in self.spoke.items() if vantage in among}
        for result, ballots in told:
            for vantage, ballot in ballots.items():
                if vantage in scores and (place := result.place(ballot.zone is Zone.H, is_pooled=is_pooled)):
                    scores[vantage][place] += 1
        for vantage, score in scores.items():
            self._put(vantage, learned(self.of(vantage), Score(*score), now_ms))

    def put_aside(self, vantage: VantageId, among: Collection[VantageId], now_ms: int) -> None:
        """It alone sees most of its lines fail. Never so many that the others are no majority: then it is likelier the lines,
        and each vantage merely noticed it a little earlier than the next one.
        """
        aside = {name for name, trust in self.trusts.items() if name in among and now_ms < trust.until_ms} | {vantage}
        if 2 * (len(among) - len(aside)) > len(among):
            self._put(vantage, set_aside(now_ms))

    def close(self, now_ms: int) -> None:
        """The tick is over."""
        self.closed_ms, self.spoke = now_ms, {}

    def _put(self, vantage: VantageId, trust: Trust) -> None:
        if trust == WHOLE:
            self.trusts.pop(vantage, None)
        else:
            self.trusts[vantage] = trust
