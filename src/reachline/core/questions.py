"""What the judge asks of a line in `fast` mode: comparisons of two rates, and which there are. Values only."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from reachline.model import Zone

__all__ = ["QUESTIONS", "Question", "question"]

_MICRO: Final = 1_000_000


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
