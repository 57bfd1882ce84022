"""Settings searched on evidence: what is found, what it is worth, and what of it is left out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from reachline.errors import JournalError
from reachline.store.tuning import Candidate, Part, Score, halves, pruned, scored, search
from reachline.store.whatif import segments_since
from reachline.testing.past import SCOPE, UNIX, dead, record, settings

SPACE = {"a": ("1", "2", "3"), "b": ("1", "2"), "c": ("1", "2", "3", "4")}
MINUTE = 60_000


def worth(candidates: Sequence[Candidate]) -> list[Score | None]:
    """`a: 3` and `b: 2` each act sooner; `c` does nothing, and `c: 4` is no document."""
    found: list[Score | None] = []
    for one in candidates:
        gain = 20_000 * (one.get("a") == "3") + 10_000 * (one.get("b") == "2")
        found.append(None if one.get("c") == "4" else Score(faults=1, acting_ms=60_000 - gain))
    return found


def test_what_helps_by_itself_is_put_together() -> None:
    best, score, before = search(SPACE, worth, tries=30, false_trip_ms=MINUTE, rng=Random(1))

    assert (best["a"], best["b"]) == ("3", "2")
    assert (score.mttr_ms, before.mttr_ms) == (30_000, 60_000)


def test_it_needs_one_candidate_more_than_every_single_key() -> None:
    for seed in range(20):
        best, _, _ = search(SPACE, worth, tries=11, false_trip_ms=MINUTE, rng=Random(seed))

        assert best == {"a": "3", "b": "2"}


def test_no_more_candidates_are_asked_than_wanted_and_none_twice() -> None:
    asked: list[Candidate] = []

    def ask(candidates: Sequence[Candidate]) -> list[Score | None]:
        asked.extend(candidates)
        return worth(candidates)

    search(SPACE, ask, tries=12, false_trip_ms=MINUTE, rng=Random(1))
    few = len(asked)
    asked.clear()
    search(SPACE, ask, tries=10_000, false_trip_ms=MINUTE, rng=Random(1))

    keys = [frozenset(one.items()) for one in asked]
    assert few == 12
    assert len(keys) == len(set(keys)) <= 4 * 3 * 5


def test_the_same_seed_searches_the_same() -> None:
    runs = [search(SPACE, worth, tries=20, false_trip_ms=MINUTE, rng=Random(7)) for _ in range(2)]

    assert runs[0] == runs[1]


def test_where_nothing_helps_nothing_is_proposed() -> None:
    def flat(candidates: Sequence[Candidate]) -> list[Score | None]:
        return [Score(faults=1, acting_ms=5_000)] * len(candidates)

    assert search(SPACE, flat, tries=40, false_trip_ms=MINUTE, rng=Random(1))[0] == {}


@pytest.mark.parametrize(("price_ms", "wins"), [(MINUTE, {}), (1_000, {"a": "1"})])
def test_a_false_trip_has_its_price(price_ms: int, wins: Candidate) -> None:
    """`a: 1` acts 10 s sooner and trips falsely once."""

    def ask(candidates: Sequence[Candidate]) -> list[Score | None]:
        quick = [one.get("a") == "1" for one in candidates]
        return [Score(faults=1, acting_ms=30_000 - 10_000 * one, false_trips=int(one)) for one in quick]

    assert search({"a": ("1",)}, ask, tries=5, false_trip_ms=price_ms, rng=Random(1))[0] == wins


def test_keys_that_bring_nothing_are_left_out_and_the_others_say_what_they_bring() -> None:
    candidate = {"a": "3", "b": "2", "c": "1"}
    (score,) = worth([candidate])
    assert score is not None

    best, _, without = pruned(candidate, score, worth, false_trip_ms=MINUTE)

    assert best == {"a": "3", "b": "2"}
    assert {key: found.mttr_ms for key, found in without.items()} == {"a": 50_000, "b": 40_000}


def test_a_fault_that_is_never_acted_on_counts_with_its_length(tmp_path: Path) -> None:
    part = Part(segments_since(record(tmp_path, dead(10, 15)), None), SCOPE)

    acted, never = scored([part], settings()), scored([part], settings("patience: {degraded: 40, failed: 40}"))

    assert (acted.faults, acted.acting_ms, acted.missed) == (1, 30_000, 0)
    assert (never.faults, never.acting_ms, never.missed) == (1, 60_000, 1)
    assert scored([part, part], settings()).faults == 2


def test_simulated_evidence_has_its_own_lines(tmp_path: Path) -> None:
    past = settings()
    part = Part(segments_since(record(tmp_path, dead(10, 15)), None), SCOPE, None, None, past.lines, past.vantages)

    assert scored([part], past._replace(lines=past.lines[1:], vantages=frozenset())).faults == 1


def test_what_proves_comes_after_what_is_searched(tmp_path: Path) -> None:
    paths = segments_since(record(tmp_path, dead(35, 37), rounds=40, cut=20), None)

    learn, prove = halves(paths, SCOPE, None)

    assert learn.until == prove.since == pytest.approx(UNIX + 280)
    assert (learn.paths, prove.paths) == (paths, paths[1:])
    assert (scored([learn], settings()).faults, scored([prove], settings()).faults) == (0, 1)


def test_an_empty_journal_cannot_be_searched(tmp_path: Path) -> None:
    directory = record(tmp_path, dead(1, 1), rounds=0)

    with pytest.raises(JournalError):
        scored([Part(segments_since(directory, None), SCOPE, UNIX + 10.0)], settings())
