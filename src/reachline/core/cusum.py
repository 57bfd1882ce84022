"""Evidence that adds up: a clipped CUSUM for each question the judge asks of a line, on counts pooled over its vantages.

A question compares two rates (1 % against 3.5 %). Each attempt moves the sum by its log-likelihood ratio; the sum never falls
below nothing and never rises above the question's height. One tick may move it by at most height/dwell: so a verdict needs that
many ticks at least, however loud one of them was, while a small steady excess still adds up. All integers, in micro-nats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from reachline.core.evidence import NOTHING, TRUST, Evidence, Said, pooled, together
from reachline.core.questions import QUESTIONS, Question, question
from reachline.model import Zone

__all__ = [
    "CALM",
    "NOTHING",
    "QUESTIONS",
    "Asked",
    "Evidence",
    "Question",
    "Said",
    "added",
    "asked",
    "carried",
    "grown",
    "loudest",
    "question",
    "spared",
    "speaks_against",
    "suspicion",
    "trimmed",
    "zone_of",
]

_LEAVE_MILLI: Final = 300
"""A zone is left once its sum has fallen under 0.3 of its height: what is left of a fault cannot flap the verdict."""
_SPARE: Final = 4
"""With this many vantages the one that complained most so far is left out: one sick vantage of five says nothing alone."""
_H: Final = Zone.H
_F: Final = Zone.F
_MOST: Final = 1 << 14
_RULES: Final = 64
"""What is remembered at most: evidence by what it adds, and questions of different rules."""
_FADE: Final = 8
"""A vantage's suspicion loses an eighth a tick: half of it is gone after five."""


class Asked(NamedTuple):
    """A line's sums, one a question, and which of them hold their zone (a bit each)."""

    sums: tuple[int, ...] = ()
    held: int = 0

    @property
    def is_calm(self) -> bool:
        """Nothing has added up."""
        return not self.held and not any(self.sums)


CALM: Final = Asked()


def asked(
    before: Asked,
    heard: Mapping[str, Said],
    questions: Sequence[Question],
    *,
    calls: Evidence = NOTHING,
    patience: int = 1,
) -> Asked:
    """The sums after one tick: what the vantages said since the last one, and what the business's own `calls` came to.

    `patience` multiplies the dwell: a vantage that nobody seconds needs more ticks.
    """
    return added(before, *pooled(trimmed(heard)), questions, calls=calls, patience=patience)


def added(
    before: Asked,
    seen: Evidence,
    doubted: Sequence[Said],
    questions: Sequence[Question],
    *,
    calls: Evidence = NOTHING,
    patience: int = 1,
) -> Asked:
    """As `asked`, of those who count: what those who are trusted fully saw together, and the words of the others."""
    # Of those who are trusted fully the sum of what each adds is what their sum adds.
    whole = seen if calls is NOTHING else together((calls, seen))
    last, was_held = before
    scale = _scale(questions)
    _, failed, slow, crawl, errors, _ = whole
    if scale.is_mild and not (doubted or failed or slow or crawl or errors or was_held or any(last)):
        return CALM
    gains = _gains(whole, doubted, patience, scale)
    sums, held, bit = [], 0, 1
    for old, gain, height, leaves in zip(last or scale.nothing, gains, scale.heights, scale.leaves, strict=True):
        new = old + gain
        if new <= 0:
            new = 0
        elif new >= height:
            new = height
            held |= bit
        elif was_held & bit and new >= leaves:
            held |= bit
        sums.append(new)
        bit <<= 1
    return Asked(tuple(sums) if any(sums) else (), held)


class _Scale(NamedTuple):
    """What follows from some questions alone, and what evidence came to by them so far: most lines are seen alike."""

    questions: Sequence[Question]
    is_mild: bool
    nothing: tuple[int, ...]
    heights: tuple[int, ...]
    leaves: tuple[int, ...]
    """From here down a sum holds its zone no more."""
    gains: dict[tuple[Evidence, int], tuple[int, ...]]
    zones: dict[int, Zone]
    """The worst zone of those held, by their bits."""


_SCALES: Final[dict[int, _Scale]] = {}
"""By the questions of some rules, which are these very ones at each tick; few rules are in force at a time."""


def _scale(questions: Sequence[Question]) -> _Scale:
    scale = _SCALES.get(id(questions))
    if scale is None or scale.questions is not questions:
        if len(_SCALES) >= _RULES:
            _SCALES.clear()
        heights = tuple([question.height for question in questions])
        leaves = tuple([-(-_LEAVE_MILLI * height // 1_000) for height in heights])
        nothing = (0,) * len(heights)
        scale = _SCALES[id(questions)] = _Scale(questions, _are_mild(questions), nothing, heights, leaves, {}, {})
    return scale


def _gains(whole: Evidence, doubted: Sequence[Said], patience: int, scale: _Scale) -> tuple[int, ...]:
    """What this evidence adds to each sum in one tick, at most a dwell's part of its height."""
    if not doubted and (known := scale.gains.get((whole, patience))) is not None:
        return known
    found = []
    for one in scale.questions:
        gain = _worth(whole, one) + sum(trust * _worth(seen, one) // TRUST for trust, seen, _ in doubted)
        bound = -(-one.height // (one.dwell * patience))
        found.append(min(bound, max(-bound, gain)))
    gains = tuple(found)
    if not doubted and len(scale.gains) < _MOST:
        scale.gains[whole, patience] = gains
    return gains


def carried(before: Asked, was: Sequence[Question], now: Sequence[Question]) -> Asked:
    """The sums where other questions are asked from here on: what is still asked goes on, whatever its dwell; the rest is new."""
    if not before.sums:
        return before
    places = {one._replace(dwell=0): place for place, one in enumerate(was)}
    sums, held = [], 0
    for new, one in enumerate(now):
        old = places.get(one._replace(dwell=0))
        sums.append(0 if old is None else before.sums[old])
        held |= 0 if old is None else (before.held >> old & 1) << new
    return Asked(tuple(sums), held) if any(sums) else CALM


def _are_mild(questions: Sequence[Question]) -> bool:
    """Whether an attempt without fault speaks for its line, whatever is asked."""
    return not any(question.miss > 0 for question in questions)


def suspicion(before: int, seen: Evidence, questions: Sequence[Question]) -> int:
    """How much a vantage complains of a line after this tick: its own evidence for any of these, fading, at most one height."""
    worth = max((_worth(seen, question) for question in questions), default=0)
    most = max((question.height for question in questions), default=0)
    return min(most, max(0, before - -(-before // _FADE) + worth))


def loudest(seen: Evidence, questions: Sequence[Question]) -> str:
    """What is asked for by the question that this speaks most for, or least against."""
    return max(questions, key=lambda question: _worth(seen, question) * 1_000 // question.height).what


def trimmed(heard: Mapping[str, Said]) -> Sequence[Said]:
    """Those who count. Judged by what they said *before*: to leave out the loudest of this tick would silence a faint fault.

    Whoever is fresh is counted, though it saw nothing new in this tick: rounds are rarer than ticks.
    The worst is who complained most by the weight of its word: whoever is hardly heard any more leaves the place to another.
    """
    return spared([said for _, said in sorted(heard.items())])


def spared(told: Sequence[Said]) -> Sequence[Said]:
    """`trimmed`, of words in the order of who says them."""
    if len(told) < _SPARE:
        return told
    worst, most = 0, -1
    for place, (trust, _, suspicion) in enumerate(told):
        if (blame := suspicion * trust) > most:
            worst, most = place, blame
    return [*told[:worst], *told[worst + 1 :]] if told[worst].suspicion else told


def _worth(seen: Evidence, question: Question) -> int:
    what = question.what
    if what == "failed":
        hits, whole = seen.failed, seen.attempts
    else:
        hits, whole = seen.of(what)
    return hits * question.hit + (whole - hits) * question.miss


def speaks_against(seen: Evidence, questions: Sequence[Question]) -> bool:
    """Whether it could move the sums of a line that has none: what speaks for it leaves nothing at nothing."""
    return any(_worth(seen, question) > 0 for question in questions)


def zone_of(state: Asked, questions: Sequence[Question]) -> Zone:
    """The worst zone that some sum holds."""
    held = state.held
    if not held:
        return _H
    zones = _scale(questions).zones
    if held not in zones:
        holding = [question.zone for place, question in enumerate(questions) if held >> place & 1]
        zones[held] = _F if _F in holding else max(holding, key=lambda zone: zone.value, default=_H)
    return zones[held]


def grown(state: Asked, questions: Sequence[Question]) -> tuple[str, int, int]:
    """The question that decides, as (what, its sum, its height): the fullest of the worst zone that is held."""
    if not state.held:
        return "", 0, 0
    zone = zone_of(state, questions)
    found = [
        (total * 1_000 // question.height, question.what, total, question.height)
        for place, (total, question) in enumerate(zip(state.sums, questions, strict=False))
        if state.held >> place & 1 and question.zone is zone
    ]
    _, what, total, height = max(found, default=(0, "", 0, 0))
    return what, total, height
