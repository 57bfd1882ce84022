"""How much a vantage's word counts. It falls by differing from the others, returns by agreeing with them, and is set aside
for a while where a vantage alone sees most of its lines fail: then it is likelier the vantage.

Trust belongs to the vantage, but each tick moves it once, by the *share* of its new verdicts that agreed: with one line that
is the spec's step whole, and a vantage with one odd line of ten thousand keeps its word on all others. Pure integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from reachline.core.quorum import Ballot
from reachline.model import Line, VantageId, Zone

__all__ = [
    "FULL",
    "LEAST",
    "QUARANTINED",
    "WHOLE",
    "Score",
    "Trust",
    "independent",
    "is_quarantined",
    "learned",
    "rest_is_well",
    "set_aside",
    "shared_by",
    "weight",
]

FULL: Final = 1_000_000
"""Full trust, in 1/1 000 000."""
LEAST: Final = 50_000
"""Nobody falls lower: 0.05 still lets agreement be seen."""
QUARANTINED: Final = 100_000
"""From here down a vantage is told to be in quarantine."""
_ASIDE_MS: Final = 60_000
_RETURN: Final = 20_000
"""Gained where all verdicts of a tick agreed: 0.02."""
_DIFFER_MILLI: Final = 200
"""Lost where all differed: a fifth…"""
_LOSE_MILLI: Final = 500
"""…and a half where all were on the losing side of a quarrel with the business's own calls."""


class Trust(NamedTuple):
    """One vantage's trust, and until when it is set aside (0: it is not)."""

    micro: int = FULL
    until_ms: int = 0


WHOLE: Final = Trust()


class Score(NamedTuple):
    """A vantage's new verdicts of one tick: how many, and those that differed, stood on a losing side, or had no result."""

    spoke: int = 0
    differed: int = 0
    lost: int = 0
    moot: int = 0


def weight(trust: Trust, doubt: int) -> int:
    """Of one vote, in 1/1000."""
    return max(1, trust.micro // (1_000 * (1 + doubt)))


def is_quarantined(trust: Trust) -> bool:
    """Whether people are told that its word hardly counts."""
    return trust.micro <= QUARANTINED


def learned(trust: Trust, score: Score, now_ms: int) -> Trust:
    """The trust after a tick with these verdicts; one that is set aside stays where it is."""
    if now_ms < trust.until_ms or score.spoke < 1:
        return trust
    differed, lost = min(score.differed, score.spoke), min(score.lost, score.spoke)
    agreed = max(0, score.spoke - differed - lost - score.moot)
    micro = trust.micro - trust.micro * (_DIFFER_MILLI * differed + _LOSE_MILLI * lost) // (1_000 * score.spoke)
    micro += _RETURN * agreed // score.spoke
    return Trust(min(FULL, max(LEAST, micro)), 0)


def set_aside(now_ms: int) -> Trust:
    """The trust of a vantage that alone sees most of its lines fail."""
    return Trust(LEAST, now_ms + _ASIDE_MS)


def rest_is_well(cast: Mapping[VantageId, Ballot], but: VantageId, configured: int) -> bool:
    """Whether most of *all* vantages are others that call the line healthy: a quorum by themselves.

    Counted by heads: whoever is in the minority with a sick vantage must not decide over it by its trust.
    """
    return 2 * sum(ballot.zone is Zone.H for name, ballot in cast.items() if name != but) > configured


def shared_by(line: Line) -> frozenset[str]:
    """What is known that the line shares with others: its groups, its provider, and the host it goes to."""
    named = (*(f"group {name}" for name in line.groups), f"host {line.endpoint.host}")
    return frozenset((*named, f"provider {line.provider}") if line.provider else named)


def independent(groups: Iterable[frozenset[str]]) -> int:
    """How many sets of lines there are of which no two share a group, directly or by way of others."""
    above: dict[str, str] = {}

    def top(name: str) -> str:
        above.setdefault(name, name)
        while above[name] != name:
            above[name] = name = above[above[name]]
        return name

    roots = 0
    for group in groups:
        first, *others = sorted(group) or [f"\x00{roots}"]
        roots += first not in above
        root = top(first)
        for other in others:
            roots += other not in above
            found = top(other)
            roots -= found != root
            above[found] = root
    return roots
