"""How far a line is from degraded to failed: what its faults grow by. Pure, integers only.

A sum of `core.cusum` says that a rate is bad, not how bad it is: it stands at its height for 3.2 % as for 5 %. So what was seen of
late is remembered beside the sums, the vantages' attempts apart from the business's calls: calls end well by the hundred where they
are spared, and would hide what probes see of the packets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from reachline.core.cusum import Evidence, Question, Said
from reachline.model import Zone

__all__ = ["remembered", "severity_milli"]

_KEEP: Final = 7, 8
"""Of what was remembered, each tick: half of it is of the newest five ticks, ten seconds of a fault."""
_LEAST: Final = 25
"""Attempts that a rate needs, as for the limit of a rate."""
_MICRO: Final = 1_000_000
_TAIL: Final = 20
"""A P95 stands where one answer of so many is slower."""
_HALF: Final = 500
"""What stands for none of many: half an attempt, in 1/1000."""
_COLUMNS: Final = ("failed", "errors", "slow", "crawl")
_WIDTH: Final = 2 * len(_COLUMNS)


def remembered(before: tuple[int, ...], heard: Iterable[Said], calls: Evidence) -> tuple[int, ...]:
    """What is remembered after a tick: bad ones and of how many, for each column, of the vantages (by their trust) and of calls.

    In 1/1000 attempts, as trust is; nothing where there was nothing.
    """
    kept, whole = _KEEP
    fresh = [0] * _WIDTH
    for said in heard:
        for place, count in enumerate(_counts(said.seen)):
            fresh[place] += said.trust * count
    fresh += [1_000 * count for count in _counts(calls)]
    was = before or (0,) * (2 * _WIDTH)
    now = tuple(kept * old // whole + new for old, new in zip(was, fresh, strict=True))
    return now if any(now) else ()


def _counts(seen: Evidence) -> list[int]:
    return [count for what in _COLUMNS for count in seen.of(what)]


def severity_milli(recent: Sequence[int], sums: Sequence[int], questions: Sequence[Question]) -> int:
    """0…1000: the worst of each rate's way from where it turns against a line as degraded to where it does as failed, and of how
    full the sums of the failed zone are.
    """
    full = [
        1_000 * total // question.height
        for total, question in zip(sums, questions, strict=False)
        if question.zone is Zone.F
    ]
    sources = recent[:_WIDTH], recent[_WIDTH:]
    rates = [
        max(_far(seen[:2], "failed", questions), _far(seen[2:4], "errors", questions), _slower(seen[4], *seen[6:8]))
        for seen in sources
        if seen
    ]
    return max([*full, *rates], default=0)


def _far(seen: Sequence[int], what: str, questions: Sequence[Question]) -> int:
    """A rate's way between the two at which the sums turn against a line."""
    bad, whole = seen
    failed = [_even(question) for question in questions if question.zone is Zone.F and question.what == what]
    if whole < 1_000 * _LEAST or not failed:
        return 0
    degraded = [_even(question) for question in questions if question.zone is Zone.D and question.what == what]
    low, high = min(degraded, default=0), min(failed)
    rate = bad * _MICRO // whole
    return min(1_000, max(0, 1_000 * (rate - low) // (high - low)))


def _slower(slow: int, crawl: int, whole: int) -> int:
    """The P95's way from the degraded limit to the failed one, from how many answers were above each.

    Between the two the share that is slower falls by a constant factor, near enough: so the way is one of logarithms.
    """
    if whole < 1_000 * _LEAST or slow * _TAIL <= whole:
        return 0
    if crawl * _TAIL >= whole:
        return 1_000
    return 1_000 * (_log(slow * _TAIL) - _log(whole)) // max(1, _log(slow) - _log(max(crawl, _HALF)))


def _log(number: int) -> int:
    """The binary logarithm in 1/1000, straight between powers of two: never more than 0.09 below the true one."""
    power = number.bit_length() - 1
    return 1_000 * power + ((number * 1_000) >> power) - 1_000


def _even(question: Question) -> int:
    """The rate, in millionths, at which the question's sum neither grows nor falls."""
    return -question.miss * _MICRO // (question.hit - question.miss)
