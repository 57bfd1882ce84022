from __future__ import annotations

import pytest

from reachline.core.quorum import Ballot, needed, tally
from reachline.core.rules import QuorumRules
from reachline.model import VantageId, Zone

RULES = QuorumRules()
NOW_MS = 100_000


def poll(zones: str, *, age_ms: int = 0, doubt: dict[int, int] | None = None) -> list[tuple[VantageId, Ballot]]:
    return [
        (VantageId(f"v{place}"), Ballot(Zone[letter], NOW_MS - age_ms, (doubt or {}).get(place, 0)))
        for place, letter in enumerate(zones)
    ]


@pytest.mark.parametrize(("configured", "quorum"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4)])
def test_quorum_is_a_majority_of_those_configured_and_at_least_two(configured: int, quorum: int) -> None:
    assert needed(configured) == quorum


@pytest.mark.parametrize(
    ("zones", "expected"),
    [
        ("HHHHH", Zone.H),
        ("FHHHH", Zone.H),
        ("FFHHH", Zone.H),
        ("FFFHH", Zone.F),
        ("DDFHH", Zone.D),
        ("DDHHN", Zone.H),
        ("FFHH", Zone.H),
        ("FD", Zone.D),
        ("FF", Zone.F),
        ("FH", Zone.H),
    ],
)
def test_the_bad_zone_needs_strictly_more_than_half(zones: str, expected: Zone) -> None:
    assert tally(poll(zones), len(zones), NOW_MS, RULES).zone is expected


def test_quorum_counts_those_configured_not_those_still_heard() -> None:
    assert tally(poll("FF"), 5, NOW_MS, RULES).zone is Zone.N


def test_a_vote_older_than_two_and_a_half_heartbeats_does_not_count() -> None:
    assert tally(poll("FFF", age_ms=25_000), 3, NOW_MS, RULES).zone is Zone.F
    assert tally(poll("FFF", age_ms=25_001), 3, NOW_MS, RULES).zone is Zone.N


def test_a_vantage_that_doubts_itself_weighs_less() -> None:
    assert tally(poll("FFFHH", doubt={0: 3, 1: 3, 2: 3}), 5, NOW_MS, RULES).zone is Zone.H


def test_one_configured_vantage_may_speak_and_is_called_lone() -> None:
    found = tally(poll("F"), 1, NOW_MS, RULES)

    assert found.zone is Zone.F
    assert found.is_lone
