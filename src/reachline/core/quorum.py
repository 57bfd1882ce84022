"""From the votes of all vantages to one zone. One vantage, one vote; the bad zone needs strictly more than its share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from reachline.core.rules import QuorumRules
from reachline.model import VantageId, Vote, Zone

__all__ = ["TRUST", "Ballot", "Tally", "needed", "tally"]

TRUST: Final = 1_000
"""Full trust, in 1/1000."""


class Ballot(NamedTuple):
    """The newest verdict of one vantage on one line, and when it arrived."""

    zone: Zone
    received_ms: int
    doubt: int = 0
    """The vantage's own health score, 0…7: it halves, thirds… the weight of its vote."""
    vote: Vote | None = None
    held: tuple[tuple[str, int], ...] = ()


class Tally(NamedTuple):
    """The common zone and what it rests on; weights in 1/1000 vote. `has_quorum` False makes the zone N."""

    zone: Zone
    has_quorum: bool
    fresh: int
    configured: int
    weight: int = 0
    failed: int = 0
    bad: int = 0
    """Weight of D and F together."""

    @property
    def is_lone(self) -> bool:
        """Only one vantage is configured: nobody can second it."""
        return self.configured == 1


def needed(configured: int) -> int:
    """Fresh vantages a verdict needs: a majority of those *configured*, never of those still heard, and at least two.

    One configured vantage is allowed (the judge is more patient then).
    """
    return 1 if configured <= 1 else max(2, configured // 2 + 1)


def is_fresh(ballot: Ballot, now_ms: int, rules: QuorumRules) -> bool:
    """Heard recently enough to count."""
    return now_ms - ballot.received_ms <= rules.fresh_ms


def tally(ballots: Iterable[tuple[VantageId, Ballot]], configured: int, now_ms: int, rules: QuorumRules) -> Tally:
    """F if more than the share of the fresh weight says F, else D if more says D or worse, else H; N without quorum.

    Ties keep the milder zone. A ballot of zone N has no opinion and is not counted as fresh.
    """
    fresh = [ballot for _, ballot in ballots if ballot.zone is not Zone.N and is_fresh(ballot, now_ms, rules)]
    if configured < 1 or len(fresh) < needed(configured):
        return Tally(Zone.N, False, len(fresh), configured)
    weights = {Zone.H: 0, Zone.D: 0, Zone.F: 0}
    for ballot in fresh:
        weights[ballot.zone] += TRUST // (1 + ballot.doubt)
    total, failed = sum(weights.values()), weights[Zone.F]
    bad = failed + weights[Zone.D]
    zone = Zone.H
    if failed * 1_000 > rules.share_milli * total:
        zone = Zone.F
    elif bad * 1_000 > rules.share_milli * total:
        zone = Zone.D
    return Tally(zone, True, len(fresh), configured, total, failed, bad)
