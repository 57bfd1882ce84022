"""What the judge is told of one line, and what of it is said of a decision. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from reachline.core.business import UNKNOWN, Word
from reachline.core.conflict import CALM, Matter
from reachline.core.counting import Voters
from reachline.core.quorum import Ballot, Tally
from reachline.core.reasons import failed
from reachline.core.row import Row, Stepped, Sums
from reachline.core.rules import Rules
from reachline.model import Fact, VantageId, Vote, Zone

__all__ = ["Told", "business_facts", "named"]

_BAD: Final = (Zone.D, Zone.F)
_MILD: Final = (Zone.H, Zone.N)
"""Looked up once: an enum's attribute costs eight times as much as a name."""


class Told(NamedTuple):
    """What the judge is told of one line: its row with counters as they are now, its sums, and the common zone."""

    row: Row
    found: Tally
    cast: Mapping[VantageId, Ballot]
    """All ballots on the line…"""
    voters: Voters
    """…and whose of them count."""
    sums: Sums | None = None
    """`fast` mode: what has added up by now."""
    word: Word = UNKNOWN
    matter: Matter = CALM
    zone: Zone = Zone.N
    """Before a broken observers' plane made nothing of it."""
    seen: Zone = Zone.N
    """What the vantages say by themselves."""
    lost: bool | None = None
    """The vantages lost a quarrel just now: what the business says, well or not."""
    by_calls: bool = False
    """`fast` mode: degraded by all evidence together, failed by what calls alone said for long."""

    def votes(self) -> tuple[Vote, ...]:
        """Why those who count say what they say; worked out when somebody asks."""
        return self.voters.votes(self.cast)

    @property
    def is_business(self) -> bool:
        """Whether a bad zone is the business's doing: no majority of vantages says so."""
        if not self.word.metric or self.zone not in _BAD:
            return False
        return self.by_calls or self.seen in _MILD


def named(done: Stepped, told: Told, rules: Rules) -> str:
    """The rule of a step, with the business named where it was not the vantages' doing; of a line that wants to trip, why."""
    rule = done.rule or (failed(done.row.asked, told.votes, rules) if done.wants else "")
    if not told.is_business or not rule.startswith("vote."):
        return rule
    return f"business.{told.word.metric}.{rule.rpartition('.')[2]}"


def business_facts(told: Told) -> tuple[Fact, ...]:
    """The numbers of the business behind a decision: its deciding count, the quarrel, and what was not held against the line."""
    word, matter = told.word, told.matter
    if word.zone is Zone.N:
        return ()
    found = [Fact("business_calls", word.calls), Fact("business_clients", word.clients)]
    if word.metric:
        found += [Fact("business_bad", word.numerator), Fact("business_of", word.denominator)]
        found += [Fact("business_limit_milli", word.limit), Fact("business_ticks", matter.bad)]
    if matter.conflicts:
        found.append(Fact("conflict_ticks", matter.conflicts))
    found += [Fact(f"excused.{cause.kind}.{cause.name}.{cause.aspect}", 1) for cause in word.causes]
    return tuple(found)
