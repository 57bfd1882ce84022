"""Evidence that adds up: a clipped CUSUM for each question the judge asks of a line, on counts pooled over its vantages.

A question compares two rates (1 % against 3.5 %). Each attempt moves the sum by its log-likelihood ratio; the sum never falls
below nothing and never rises above the question's height. One tick may move it by at most height/dwell: so a verdict needs that
many ticks at least, however loud one of them was, while a small steady excess still adds up. All integers, in micro-nats.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from reachline.core.evidence import NOTHING, Evidence, Said, together
from reachline.model import Zone

__all__ = [
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
    "speaks_against",
    "suspicion",
    "trimmed",
    "zone_of",
]

_MICRO: Final = 1_000_000
_LEAVE_MILLI: Final = 300
"""A zone is left once its sum has fallen under 0.3 of its height: what is left of a fault cannot flap the verdict."""
_SPARE: Final = 4
"""With this many vantages the one that complained most so far is left out: one sick vantage of five says nothing alone."""
_TRUST: Final = 1_000
_F: Final = Zone.F
_FADE: Final = 8
"""A vantage's suspicion loses an eighth a tick: half of it is gone after five."""


class Question(NamedTuple):
    """One comparison of rates. `hit` and `miss` are what one attempt that is, or is not, what is asked for adds."""

    zone: Zone
    what: str
    """`failed`: did not end well, or lost a packet; `errors`: calls that a server answered with an error (a probe's are `failed`);
    `slow`, `crawl`: answered above the line's degraded, failed RTT limit.
    """
    height: int
    dwell: int
    hit: int
    miss: int


def question(zone: Zone, what: str, *, usual: float, bad: float) -> Question:
    """The question whether a rate is `bad` rather than `usual`. The one place where floats make them; journals keep the result."""
    height, dwell = (9, 2) if zone is Zone.D else (11, 3)
    return Question(
        zone,
        what,
        height * _MICRO,
        dwell,
        round(_MICRO * math.log(bad / usual)),
        round(_MICRO * math.log((1 - bad) / (1 - usual))),
    )


QUESTIONS: Final = (
    question(Zone.D, "failed", usual=0.01, bad=0.035),
    question(Zone.D, "slow", usual=0.06, bad=0.25),
    question(Zone.F, "failed", usual=0.03, bad=0.08),
    question(Zone.F, "failed", usual=0.10, bad=0.60),
    question(Zone.F, "crawl", usual=0.08, bad=0.35),
    question(Zone.D, "errors", usual=0.01, bad=0.035),
    question(Zone.F, "errors", usual=0.05, bad=0.18),
)
"""Degraded and failed, each by failures, by slowness and by server errors (2 % and 10 % are where these turn against a line);
failed by failures twice: steadily above 8 %, or mostly.
"""


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
    return added(before, trimmed(heard), questions, calls=calls, patience=patience)


def added(
    before: Asked, told: Sequence[Said], questions: Sequence[Question], *, calls: Evidence = NOTHING, patience: int = 1
) -> Asked:
    """As `asked`, of those who count."""
    # Of those who are trusted fully the sum of what each adds is what their sum adds.
    whole = together([calls, *[said.seen for said in told if said.trust == _TRUST]])
    doubted = [said for said in told if said.trust != _TRUST]
    attempts, *bad, timed = whole
    last = before.sums or (0,) * len(questions)
    if not (doubted or any(bad) or before.held or any(last)) and _are_mild(questions):
        return CALM
    sums, held = [], 0
    of = {"failed": (bad[0], attempts), "slow": (bad[1], timed), "crawl": (bad[2], timed), "errors": (bad[3], attempts)}
    for place, (_, what, height, dwell, hit, miss) in enumerate(questions):
        hits, tried = of[what]
        gain = hits * hit + ((tried or 0) - hits) * miss
        for said in doubted:
            gain += said.trust * _worth(said.seen, questions[place]) // _TRUST
        bound = -(-height // (dwell * patience))
        new = min(height, max(0, last[place] + min(bound, max(-bound, gain))))
        sums.append(new)
        if new >= height or (before.held >> place & 1 and 1_000 * new >= _LEAVE_MILLI * height):
            held |= 1 << place
    return Asked(tuple(sums) if any(sums) else (), held)


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


def trimmed(heard: Mapping[str, Said]) -> list[Said]:
    """Those who count. Judged by what they said *before*: to leave out the loudest of this tick would silence a faint fault.

    Whoever is fresh is counted, though it saw nothing new in this tick: rounds are rarer than ticks.
    The worst is who complained most by the weight of its word: whoever is hardly heard any more leaves the place to another.
    """
    told = [said for _, said in sorted(heard.items())]
    if len(told) < _SPARE or not any(said.suspicion for said in told):
        return told
    blame = [said.suspicion * said.trust for said in told]
    worst = blame.index(max(blame))
    return [said for place, said in enumerate(told) if place != worst or not said.suspicion]


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
    if not state.held:
        return Zone.H
    holding = [question.zone for place, question in enumerate(questions) if state.held >> place & 1]
    return _F if _F in holding else max(holding, key=lambda zone: zone.value, default=Zone.H)


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
