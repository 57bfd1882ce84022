"""From the votes of all vantages to one zone. One vantage, one vote; the bad zone needs strictly more than its share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from reachline.core.evidence import TRUST
from reachline.core.rules import QuorumRules
from reachline.model import VantageId, Vote, Zone

__all__ = ["TRUST", "Ballot", "Tally", "is_fresh", "needed", "settled", "tally", "total"]

_H: Final = Zone.H
_D: Final = Zone.D
_F: Final = Zone.F
_N: Final = Zone.N
"""Looked up once: an enum's attribute costs eight times as much as a name."""


class Ballot(NamedTuple):
    """The newest verdict of one vantage on one line, and when it arrived."""

    zone: Zone
    received_ms: int
    doubt: int = 0
    """The vantage's own health score, 0…7: it halves, thirds… the weight of its vote."""
    vote: Vote | None = None
    held: tuple[tuple[str, int], ...] = ()
    suspicion: int = 0
    """`fast` mode: how much the vantage has complained of the line of late, in micro-nats…"""
    before: int = 0
    """…and how much it had before what it said since the last tick."""


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
    is_seconded: bool = False
    """The business's own calls say the same, or decided instead."""

    @property
    def is_lone(self) -> bool:
        """Only one vantage is configured, and nobody seconds it."""
        return self.configured == 1 and not self.is_seconded


def needed(configured: int) -> int:
    """Fresh vantages a verdict needs: a majority of those *configured*, never of those still heard, and at least two.

    One configured vantage is allowed (the judge is more patient then).
    """
    return 1 if configured <= 1 else max(2, configured // 2 + 1)


def is_fresh(ballot: Ballot, now_ms: int, rules: QuorumRules) -> bool:
    """Heard recently enough to count."""
    return now_ms - ballot.received_ms <= rules.fresh_ms


def tally(
    ballots: Iterable[tuple[VantageId, Ballot]],
    configured: int,
    now_ms: int,
    rules: QuorumRules,
    weights: Mapping[VantageId, int] | None = None,
) -> Tally:
    """What the ballots that are fresh by `now_ms` come to; without `weights` every vantage is trusted fully."""
    fresh = [(name, ballot) for name, ballot in ballots if is_fresh(ballot, now_ms, rules)]
    own = {name: TRUST // (1 + ballot.doubt) for name, ballot in fresh} | dict(weights or {})
    return total(((own[name], ballot) for name, ballot in fresh), configured, rules)


def total(fresh: Iterable[tuple[int, Ballot]], configured: int, rules: QuorumRules) -> Tally:
    """F if more than the share of the fresh weight says F, else D if more says D or worse, else H; N without quorum.

    Ballots come with their weight in 1/1000 vote. Ties keep the milder zone. A ballot of zone N has no opinion and is not
    counted as fresh. Quorum is by heads: a vantage that nobody trusts is there all the same.
    """
    count = weight = failed = bad = 0
    for own, ballot in fresh:
        zone = ballot.zone
        if zone is _N:
            continue
        count, weight = count + 1, weight + own
        if zone is not _H:
            bad += own
            if zone is _F:
                failed += own
    return settled((count, weight, failed, bad), configured, rules.share_milli)


@lru_cache(maxsize=1 << 12)  # most lines of a tick are seen by as many, who say the same
def settled(found: tuple[int, int, int, int], configured: int, share_milli: int) -> Tally:
    """What fresh vantages come to: how many they are, and their weights in all, of F, and of D and F together."""
    count, weight, failed, bad = found
    if configured < 1 or count < needed(configured):
        return Tally(_N, False, count, configured)
    share = share_milli * weight
    zone = _F if failed * 1_000 > share else _D if bad * 1_000 > share else _H
    return Tally(zone, True, count, configured, weight, failed, bad)
