"""What each line gets in one client: the center's weights, with the client's own breakers worked into the group formulas.

The stricter of two breakers wins. While no local breaker is open the published weights stand as they are. Pure; refuses
to know how a line came to be published, and chooses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from reachline.core.local import UNTRIED, LocalBreaker, is_blocked, is_ready
from reachline.core.rules import FaultRules
from reachline.core.tiers import TABLE, Share, full_milli, spread
from reachline.core.weigh import MILLI, wire
from reachline.model import Gate, LineId

__all__ = ["SILENT_COOLDOWNS", "Admission", "Term", "Terms", "admissions", "agrees", "own_trial_ms"]

SILENT_COOLDOWNS: Final = 10
"""A center silent for this many cooldowns of an open line will not try it: the client may."""

_SILENT_LEAST_MS: Final = 60_000
"""…and never sooner than this, however short the cooldown: a center that merely holds a poll is heard every 30 s."""

_OWN_STEP_MILLI: Final = 50
"""The share of such a line, of its base: that of the center's own half-open trial."""

_TOLERANCE: Final = 2
"""Points by which a published weight may lag its formula: the center holds back smaller raises."""


class Term(NamedTuple):
    """One line as published: its weight in points, and what the formula needs (None: drained, outside every group)."""

    line: LineId
    weight: int
    share: Share | None
    cooldown_ms: int
    """How long the center keeps it open this time; only read while it is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """All lines of a cluster as published. `is_grouped` False: weights that the formula does not explain."""

    lines: tuple[Term, ...] = ()
    policy: tuple[str, ...] = ("weighted",)
    faults: FaultRules = FaultRules()
    is_grouped: bool = False


class Admission(NamedTuple):
    """What one line gets: a weight in 1/1000 point, and whether it is open to a single trial call only."""

    weight: int
    is_trial: bool


def admissions(
    terms: Terms, rows: Mapping[LineId, LocalBreaker], now_ms: int, *, silent_ms: int
) -> tuple[Admission, ...]:
    """What each line gets, in the order of `terms.lines`. `silent_ms` is how long no center was heard.

    Nothing is ever zero only because of breakers of our own: where they leave no line, they are ignored.
    """
    found = [rows.get(term.line, UNTRIED) for term in terms.lines]
    own = [_may_try(term, silent_ms) for term in terms.lines]
    blocked = [is_blocked(row, now_ms) for row in found]
    weights = _weights(terms, blocked, own)
    if not any(weights):
        weights = [term.weight * MILLI for term in terms.lines]
    return tuple(
        Admission(weight, is_ready(row, now_ms) or (tried and not row.proven))
        for weight, row, tried in zip(weights, found, own, strict=True)
    )


def agrees(terms: Terms) -> bool:
    """Whether the formula, redone from the terms as sent, gives the weights as published.

    It does not where the center suspended its rules, does not enforce them, or knows a policy that we do not: then a
    client only takes lines out and leaves the rest as published.
    """
    if any(name not in TABLE for name in terms.policy):
        return False
    redone = _regroup(terms, [False] * len(terms.lines), [False] * len(terms.lines))
    pairs = zip(terms.lines, redone, strict=True)
    return all(abs(wire(raw) - term.weight) <= _TOLERANCE for term, raw in pairs)


def own_trial_ms(terms: Terms) -> int | None:
    """The shortest silence after which this client may try a line that the center holds open, or None."""
    return min((_silence_ms(term) for term in terms.lines if _is_held_open(term)), default=None)


def _silence_ms(term: Term) -> int:
    return max(SILENT_COOLDOWNS * term.cooldown_ms, _SILENT_LEAST_MS)


def _is_held_open(term: Term) -> bool:
    return not term.weight and term.share is not None and term.share.gate is Gate.OPEN


def _may_try(term: Term, silent_ms: int) -> bool:
    return _is_held_open(term) and silent_ms >= _silence_ms(term)


def _weights(terms: Terms, blocked: Sequence[bool], own: Sequence[bool]) -> list[int]:
    if terms.is_grouped and (any(blocked) or any(own)):
        return _regroup(terms, blocked, own)
    return [
        0 if out else _own_weight(term) if tried else term.weight * MILLI
        for term, out, tried in zip(terms.lines, blocked, own, strict=True)
    ]


def _own_weight(term: Term) -> int:
    return term.share.base * _OWN_STEP_MILLI if term.share else 0


def _regroup(terms: Terms, blocked: Sequence[bool], own: Sequence[bool]) -> list[int]:
    shares = [
        _gated(term.share, out, tried)
        for term, out, tried in zip(terms.lines, blocked, own, strict=True)
        if term.share is not None
    ]
    raw = iter(spread(shares, terms.policy, full_milli(shares, terms.policy), terms.faults))
    return [0 if term.share is None else next(raw) for term in terms.lines]


def _gated(share: Share, out: bool, tried: bool) -> Share:
    """The line with the stricter of the two gates; one that we try ourselves stands at the trial's share."""
    if out:
        return share._replace(gate=Gate.OPEN, step_milli=0)
    if tried:
        return share._replace(gate=Gate.HALF_OPEN, step_milli=_OWN_STEP_MILLI, faults=0)
    return share
