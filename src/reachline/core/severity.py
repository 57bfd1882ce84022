"""How far a line is from degraded to failed: what its faults grow by. Pure, integers only.

A sum of `core.cusum` says that a rate is bad, not how bad it is: it stands at its height for 3.2 % as for 5 %. So what was seen of
late is remembered beside the sums, the vantages' attempts apart from the business's calls: calls end well by the hundred where they
are spared, and would hide what probes see of the packets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from reachline.core.cusum import NOTHING, Evidence, Question, Said
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
_NONE: Final = (0,) * _WIDTH
_Way = tuple[int, int] | None
_Ways = tuple[_Way, _Way, tuple[tuple[int, int], ...]]
_MOST: Final = 64
_TOP: Final = 2**62
"""No sum is higher: a seal writes it in 64 bits. It takes 5·10¹⁴ attempts a tick to get there."""
_KNOWN: Final[dict[int, tuple[tuple[Question, ...], _Ways]]] = {}
"""Worked out once for the questions of some rules, which are these very ones at each tick; the oldest rules are forgotten."""
_F: Final = Zone.F
"""Looked up once: an enum's attribute costs eight times as much as a name, and this runs for every bad line of a tick."""


def remembered(before: tuple[int, ...], heard: Iterable[Said], calls: Evidence) -> tuple[int, ...]:
    """What is remembered after a tick: bad ones and of how many, for each column, of the vantages (by their trust) and of calls.

    In 1/1000 attempts, as trust is; nothing where there was nothing.
    """
    attempts = failed = slow = crawl = errors = whole = 0
    for trust, seen, _ in heard:
        if seen is NOTHING:
            continue
        own, bad, late, later, wrong, timed = seen
        attempts += trust * own
        failed += trust * bad
        errors += trust * wrong
        slow += trust * late
        crawl += trust * later
        whole += trust * (own if timed is None else timed)
    kept, parts = _KEEP
    fresh: tuple[int, ...] = failed, attempts, errors, attempts, slow, whole, crawl, whole
    if before:
        fresh = tuple([kept * old // parts + new for old, new in zip(before, fresh, strict=False)])
    called = before[_WIDTH:] or _NONE
    if calls is not NOTHING or called != _NONE:
        called = tuple([kept * old // parts + new for old, new in zip(called, _counts(calls), strict=True)])
    fresh += called
    if max(fresh) > _TOP:
        fresh = tuple([min(_TOP, each) for each in fresh])
    return fresh if any(fresh) else ()


def _counts(seen: Evidence) -> tuple[int, ...]:
    """The columns of calls, in 1/1000."""
    if seen is NOTHING:
        return _NONE
    return tuple([1_000 * count for what in _COLUMNS for count in seen.of(what)])


def severity_milli(recent: Sequence[int], sums: Sequence[int], questions: tuple[Question, ...]) -> int:
    """0…1000: the worst of each rate's way from where it turns against a line as degraded to where it does as failed, and of how
    full the sums of the failed zone are.
    """
    worst = 0
    failed, errors, heights = _ways(questions)
    for place, height in heights if sums else ():
        if total := sums[place]:
            worst = max(worst, 1_000 * total // height)
    for part in (recent[:_WIDTH], recent[_WIDTH:]):
        if not part or part == _NONE:
            continue
        bad, whole, wrong, answers, slow, _, crawl, timed = part
        if bad and failed:
            worst = max(worst, _far(bad, whole, failed))
        if wrong and errors:
            worst = max(worst, _far(wrong, answers, errors))
        if slow:
            worst = max(worst, _slower(slow, crawl, timed))
    return worst


def _ways(questions: tuple[Question, ...]) -> _Ways:
    """The rates between which a line goes from degraded to failed, by failures and by errors (None: nothing asks for them), and
    the places and heights of the failed zone's sums.
    """
    if (known := _KNOWN.get(id(questions))) is not None and known[0] is questions:
        return known[1]
    if len(_KNOWN) >= _MOST:
        _KNOWN.clear()
    heights = tuple((place, each.height) for place, each in enumerate(questions) if each.zone is _F)
    ways = _way("failed", questions), _way("errors", questions), heights
    _KNOWN[id(questions)] = questions, ways
    return ways


def _way(what: str, questions: Sequence[Question]) -> _Way:
    failed = [_even(question) for question in questions if question.zone is _F and question.what == what]
    degraded = [_even(question) for question in questions if question.zone is Zone.D and question.what == what]
    return (min(degraded, default=0), min(failed)) if failed else None


def _far(bad: int, whole: int, way: tuple[int, int]) -> int:
    """A rate's way between the two at which the sums turn against a line."""
    if whole < 1_000 * _LEAST:
        return 0
    low, high = way
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
