"""What was seen of a line since the last tick, as counts that add up, and whose word it is. Values only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

__all__ = ["NOTHING", "TRUST", "Evidence", "Said", "pooled", "together"]

TRUST: Final = 1_000
"""Full trust, in 1/1000."""
_new: Final = tuple.__new__
"""What a named tuple's own constructor calls, without the call."""


class Evidence(NamedTuple):
    """What one vantage, or all clients, saw of a line since the last tick; each column is of `attempts`."""

    attempts: int = 0
    failed: int = 0
    slow: int = 0
    crawl: int = 0
    errors: int = 0
    timed: int | None = None
    """Of how many `slow` and `crawl` are; None: of all attempts."""

    def of(self, what: str) -> tuple[int, int]:
        """What a question asks for, and of how many."""
        match what:
            case "failed":
                return self.failed, self.attempts
            case "errors":
                return self.errors, self.attempts
            case _:
                whole = self.attempts if self.timed is None else self.timed
                return self.slow if what == "slow" else self.crawl, whole

    @property
    def is_any(self) -> bool:
        """Whether there is anything to judge by."""
        return bool(self.attempts or self.timed)

    def plus(self, other: Evidence) -> Evidence:
        """Both together."""
        found = together((self, other))
        return found._replace(timed=None) if self.timed is None and other.timed is None else found


NOTHING: Final = Evidence()


class Said(NamedTuple):
    """One vantage's word: how much it counts (1/1000), what it saw, and how much it complained before this tick."""

    trust: int
    seen: Evidence
    suspicion: int = 0


def together(seen: Sequence[Evidence]) -> Evidence:
    """The sum of all."""
    attempts = failed = slow = crawl = errors = timed = 0
    for one in seen:
        if one is NOTHING:
            continue
        own, bad, late, later, wrong, of = one
        attempts, failed, slow, crawl, errors = attempts + own, failed + bad, slow + late, crawl + later, errors + wrong
        timed += own if of is None else of
    return Evidence(attempts, failed, slow, crawl, errors, timed)


def pooled(told: Sequence[Said]) -> tuple[Evidence, list[Said]]:
    """What all who are trusted fully saw, and the words of the others."""
    attempts = failed = slow = crawl = errors = timed = 0
    doubted = []
    for said in told:
        trust, seen, _ = said
        if trust != TRUST:
            doubted.append(said)
        elif seen is not NOTHING:
            own, bad, late, later, wrong, of = seen
            attempts += own
            failed += bad
            slow += late
            crawl += later
            errors += wrong
            timed += own if of is None else of
    return _new(Evidence, (attempts, failed, slow, crawl, errors, timed)), doubted
