"""Where the envoy door differs from Envoy 1.40 on purpose: the one list. A test that shows a difference names it by `shows`.

The page `docs/reference/envoy-differences.md` holds the same rows; `tests/differential/test_wanted.py` holds all three together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

__all__ = ["WANTED", "Difference", "shows"]

T = TypeVar("T", bound=Callable[..., object])


class Difference(NamedTuple):
    """What is told of one, in the page's words."""

    envoy: str
    here: str
    why: str


WANTED: Final[dict[str, Difference]] = {
    "once a sweep": Difference(
        "an endpoint that violates success rate and failure percentage in one sweep is ejected twice: the gauge counts 2, the wait grows twice, and one return leaves a 1 behind for ever",
        "once a sweep; both are counted as detected, the second is no line of the log",
        "the leak eats `max_ejection_percent` until real outliers overflow",
    ),
    "worst first": Difference(
        "where the cap has no room for all that a sweep found, the order of a hash map decides who goes",
        "the worst goes first",
        "the order was never promised, and this one helps",
    ),
    "one exact count": Difference(
        "each worker picks for itself and tells the main thread what it saw; rates and thresholds are compared in floating point",
        "one picker and one count for the process, compared exactly, in whole numbers",
        "no failures beyond the threshold pass before they are seen, and the answer is the same on every machine",
    ),
    "merge window": Difference(
        "an ejection or a verdict of checks inside `update_merge_window` waits for a whole window of its own",
        "for the rest of the one that the last change began",
        "as few new pickers, and each sooner",
    ),
    "slow start": Difference(
        "slow start weighs an endpoint at each pick, for round robin and least request",
        "fifty times a window, for every policy that reads weights",
        "a picker never changes while it is used",
    ),
    "user agent": Difference(
        "checks say `user-agent: Envoy/HC`",
        "`reachline-check`",
        "who reads the log of a target knows who asked",
    ),
    "stricter": Difference(
        "takes what cannot work or can only be a slip: port 0, a threshold of 0, an interval below a millisecond, a path without `/`, an empty ring, a bias below zero, a health without a name, weights of a priority above 32 bits, a field in both spellings, a manager without a router, a replacement that names a group which is not there, two listeners of one name, a second YAML document, tags",
        "refused when read, by place; so is what is not supported",
        "it fails later and elsewhere",
    ),
    "laxer": Difference(
        "refuses an expression whose RE2 program has more than 100 instructions, and `yes`, `no`, `on` or `off` without quotes where a text is wanted",
        "expressions of up to 1 024 characters; a text where a text is wanted",
        "RE2's program is not made here; YAML 1.2, as everywhere here",
    ),
}  # fmt: skip


def shows(name: str) -> Callable[[T], T]:
    """The decorated test shows this difference; KeyError while tests are collected if the list does not have it."""
    WANTED[name]

    def mark(test: T) -> T:
        return test

    return mark
