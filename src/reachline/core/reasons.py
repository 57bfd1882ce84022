"""Which rule is named where a line's state changes: the metric that decided, for people and for the journal. Pure."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from reachline.core.cusum import Asked, grown
from reachline.core.rules import Rules
from reachline.model import Health, Vote, Zone

__all__ = ["Votes", "failed", "turned"]

Votes = Callable[[], tuple[Vote, ...]]
"""Why vantages say what they say, worked out where somebody asks: most ticks of most lines change no state."""
_D: Final = Zone.D
_F: Final = Zone.F


def failed(asked: Asked, votes: Votes, rules: Rules) -> str:
    """The rule by which a line has failed."""
    return f"vote.{_cause(asked, votes, _F, rules)}.failed"


def turned(health: Health, asked: Asked, votes: Votes, rules: Rules) -> str:
    """The rule by which the judge called a line degraded, or well again."""
    if health is Health.DEGRADED:
        return f"vote.{_cause(asked, votes, _D, rules)}.degraded"
    return "judge.recovered"


def _cause(asked: Asked, votes: Votes, zone: Zone, rules: Rules) -> str:
    """What decided: the metric that most vantages name; in `fast` mode what was asked and has added up."""
    return grown(asked, rules.questions)[0] or _named(votes(), zone)


def _named(votes: tuple[Vote, ...], zone: Zone) -> str:
    """The metric that most vantages of this zone or worse name, without its probe kind; ties by name.

    Where none is so bad by itself (they add up), it is the metric of those that complain at all.
    """
    worst = [vote.metric for vote in votes if vote.zone is zone] if zone is not _D else ()
    return _most(tuple(worst or [vote.metric for vote in votes if vote.zone is _D or vote.zone is _F]))


@lru_cache(maxsize=1 << 10)  # most lines of a tick complain of the same
def _most(metrics: tuple[str, ...]) -> str:
    names = [metric.partition(".")[2] for metric in metrics]
    return max(sorted(set(names)), key=names.count, default="unknown")
