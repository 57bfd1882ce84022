"""Settings searched on recorded evidence: sooner to act on what hindsight calls a fault, against trips that it calls false.

A candidate is a few keys of a document with other values; what it is worth, the evidence says. Knows no document and no
process: whoever asks turns candidates into rules, and may score many of them at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from reachline.core.hindsight import Fault
from reachline.core.whatif import Course, acted_ms, is_false, trips
from reachline.errors import JournalError
from reachline.model import Health, Line, LineId, Scope, Seconds, VantageId
from reachline.store.segment import Segment
from reachline.store.whatif import Judged, Proposed, judged

__all__ = ["Candidate", "Part", "Score", "halves", "pruned", "scored", "search"]

Candidate = Mapping[str, str]
"""Values by dotted key, as they would stand in a document."""
Ask = Callable[[Sequence[Candidate]], Sequence["Score | None"]]
"""What each is worth; None where it is no document."""

_LEARNT: Final = 0.7
"""Of the evidence's time is searched on; the rest is shown to the winner only."""
_CUT: Final = 10
"""False degradations that are as bad as a false trip."""


class Part(NamedTuple):
    """Evidence of one cluster: segments, from and until which Unix time they count. Simulated evidence has its own lines."""

    paths: tuple[Path, ...]
    scope: Scope
    since: Seconds | None = None
    until: Seconds | None = None
    lines: tuple[Line, ...] = ()
    vantages: frozenset[VantageId] = frozenset()


class Score(NamedTuple):
    """What settings came to on some evidence. A fault that was never acted on counts with all of its length."""

    faults: int = 0
    acting_ms: int = 0
    """Sum over the faults."""
    missed: int = 0
    false_trips: int = 0
    false_degrades: int = 0
    line_ms: int = 0

    @property
    def mttr_ms(self) -> int:
        """Mean time until a faulty line had at most half of its weight."""
        return self.acting_ms // self.faults if self.faults else 0

    def cost(self, false_trip_ms: int) -> int:
        """What is to be small: `false_trip_ms` is how much later one would act on each fault to avoid one false trip."""
        return _CUT * self.mttr_ms + false_trip_ms * (_CUT * self.false_trips + self.false_degrades)

    def plus(self, other: Score) -> Score:
        """Both together."""
        return Score(*(mine + its for mine, its in zip(self, other, strict=True)))


def halves(paths: Sequence[Path], scope: Scope, since: Seconds | None) -> tuple[Part, Part]:
    """Evidence to search on, and later evidence to prove it on; JournalError where there is none."""
    with Segment(paths[0]) as first, Segment(paths[-1]) as newest:
        last = newest.last()
        if last is None:
            raise JournalError("the journal's newest segment is empty: wait for evidence")
        begin = max(first.meta.unix(first.meta.opened_ms), since or 0.0)
        end = newest.meta.unix(last.at_ms)
    middle = begin + _LEARNT * (end - begin)
    later = 0
    for index, path in enumerate(paths):
        with Segment(path) as segment:
            if segment.meta.unix(segment.meta.opened_ms) <= middle:
                later = index
    known = tuple(paths)
    return Part(known[: later + 1], scope, since, middle), Part(known[later:], scope, middle, None)


def scored(parts: Iterable[Part], proposed: Proposed) -> Score:
    """What the proposal is worth on all of this."""
    total = Score()
    for part in parts:
        wanted = proposed._replace(lines=part.lines, vantages=part.vantages) if part.lines else proposed
        total = total.plus(_of(judged(part.paths, {part.scope: wanted}, since=part.since, until=part.until)))
    return total


def _of(found: Judged) -> Score:
    total = Score()
    for side in found.clusters.values():
        course, faults = side.proposed, side.faults
        acted = [(acted_ms(course, fault), fault.until_ms - fault.from_ms) for fault in faults]
        total = total.plus(
            Score(
                faults=len(faults),
                acting_ms=sum(length if after is None else after for after, length in acted),
                missed=sum(after is None for after, _ in acted),
                false_trips=sum(is_false(line, at_ms, faults) for at_ms, line, _ in trips(course)),
                false_degrades=_false_degrades(course, faults),
                line_ms=len(course.points) * (side.until_ms - course.from_ms),
            )
        )
    return total


def _false_degrades(course: Course, faults: Sequence[Fault]) -> int:
    entered: list[tuple[LineId, int]] = [
        (line, after.at_ms)
        for line, points in course.points.items()
        for before, after in pairwise(points)
        if after.health is Health.DEGRADED and before.health is Health.HEALTHY
    ]
    return sum(is_false(line, at_ms, faults) for line, at_ms in entered)


def search(
    space: Mapping[str, Sequence[str]], ask: Ask, *, tries: int, false_trip_ms: int, rng: Random
) -> tuple[Candidate, Score, Score]:
    """The best of so many candidates, its score, and that of changing nothing.

    First every key by itself, then what helped together, then at random around the best.
    """
    known: dict[frozenset[tuple[str, str]], tuple[Candidate, Score]] = {}

    def asked(candidates: Iterable[Candidate]) -> None:
        new = {frozenset(one.items()): one for one in candidates}
        fresh = [one for key, one in new.items() if key not in known][: max(0, tries - len(known))]
        for one, found in zip(fresh, ask(fresh), strict=True):
            known[frozenset(one.items())] = (one, found or _WORST)

    def best() -> Candidate:
        return min(known.values(), key=lambda item: (item[1].cost(false_trip_ms), len(item[0])))[0]

    asked([{}])
    unchanged = next(iter(known.values()))[1]
    singles: list[Candidate] = [{key: value} for key, values in space.items() for value in values]
    rng.shuffle(singles)
    asked(singles)
    asked(_together(known.values(), unchanged, false_trip_ms))
    quiet = 0
    while len(known) < tries and quiet < _GIVE_UP:
        before = len(known)
        asked(_around(best(), space, rng) for _ in range(_BATCH))
        quiet = quiet + 1 if len(known) == before else 0
    winner = best()
    return winner, known[frozenset(winner.items())][1], unchanged


_WORST: Final = Score(faults=1, acting_ms=10**12, missed=1)
_BATCH: Final = 8
_GIVE_UP: Final = 20
"""Batches in a row that bring nothing new: the space is used up."""


def _together(known: Iterable[tuple[Candidate, Score]], unchanged: Score, false_trip_ms: int) -> list[Candidate]:
    """What helped by itself, best first, one more at a time."""
    helped = sorted(
        (found.cost(false_trip_ms), sorted(one.items()))
        for one, found in known
        if len(one) == 1 and found.cost(false_trip_ms) < unchanged.cost(false_trip_ms)
    )
    found: list[Candidate] = []
    so_far: dict[str, str] = {}
    for _, items in helped:
        so_far = {**dict(items), **so_far}
        found.append(so_far)
    return found


def _around(best: Candidate, space: Mapping[str, Sequence[str]], rng: Random) -> Candidate:
    """The best with one or two keys otherwise, or as they were."""
    changed = dict(best)
    for key in rng.sample(sorted(space), k=min(len(space), rng.choice((1, 1, 2)))):
        value = rng.choice((*space[key], ""))
        if value:
            changed[key] = value
        else:
            changed.pop(key, None)
    return changed


def pruned(
    best: Candidate, score: Score, ask: Ask, *, false_trip_ms: int
) -> tuple[Candidate, Score, Mapping[str, Score]]:
    """The candidate without keys that bring nothing, and what each of the others is worth: the score without it."""
    while True:
        keys = sorted(best)
        without = [{other: best[other] for other in keys if other != key} for key in keys]
        found = dict(zip(keys, (one or _WORST for one in ask(without)), strict=True))
        idle = [key for key in keys if found[key].cost(false_trip_ms) <= score.cost(false_trip_ms)]
        if not idle:
            return best, score, found
        least = min(idle, key=lambda key: found[key].cost(false_trip_ms))
        best, score = {key: best[key] for key in keys if key != least}, found[least]
