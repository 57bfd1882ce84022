"""Trust falls by differing, returns by agreeing, and a vantage that alone sees most lines fail is set aside (holes 44…46)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from reachline.core.credit import Credit, Result
from reachline.core.ledger import Ledger
from reachline.core.quorum import Ballot
from reachline.core.rules import FaultRules, Limit, Rules, with_tables
from reachline.core.trust import (
    FULL,
    LEAST,
    WHOLE,
    Score,
    Trust,
    independent,
    is_quarantined,
    learned,
    rest_is_well,
    set_aside,
    weight,
)
from reachline.model import Line, LineId, Reading, VantageId, Version, Zone
from reachline.testing import builders

TICK_MS = 10_000
FIVE = builders.vantages(5)
RULES = Rules(
    limits=(
        Limit("loss", 10, 5, 50, 30, 25),
        Limit("connect", None, None, 0, 3, 3),
        Limit("p95", 200_000, 160_000, 500_000, 400_000, 20),
    ),
    faults=with_tables(FaultRules(), decay=0.15, half_life_ms=30_000),
)


class World:
    """Some lines seen by five vantages, in `literal` mode."""

    def __init__(self, lines: tuple[Line, ...] = builders.lines(*"abc")) -> None:
        self.now_ms, self.names = 0, [line.id for line in lines]
        self.ledger = Ledger(builders.scope(), lines, RULES, vantages=frozenset(FIVE), version=Version(1, 0), now_ms=0)

    def tick(self, said: Mapping[VantageId, Mapping[str, Reading]] | None = None, *, times: int = 1) -> None:
        """All say healthy but of the lines named."""
        for _ in range(times):
            self.now_ms += TICK_MS
            for vantage in FIVE:
                own = (said or {}).get(vantage, {})
                rows = [(line, own.get(line.rpartition("/")[2], builders.healthy())) for line in self.names]
                self.ledger.report(vantage, rows, now_ms=self.now_ms - 500)
            self.ledger.close(self.now_ms)

    def trust(self, place: int = 0) -> int:
        return self.ledger.poll.credit.of(FIVE[place]).micro


def ballots(zones: str) -> dict[VantageId, Ballot]:
    return {vantage: Ballot(Zone[letter], 0) for vantage, letter in zip(FIVE, zones, strict=False)}


def test_with_one_line_a_tick_costs_a_fifth_or_brings_a_fiftieth() -> None:
    fallen = learned(WHOLE, Score(spoke=1, differed=1), 0)

    assert fallen.micro == 800_000
    assert learned(fallen, Score(spoke=1), 0).micro == 820_000


def test_trust_stays_between_its_ends() -> None:
    low = high = Trust(500_000)
    for _ in range(100):
        low, high = learned(low, Score(1, differed=1), 0), learned(high, Score(1), 0)

    assert (low.micro, high) == (LEAST, WHOLE)


def test_one_odd_line_of_ten_thousand_costs_nothing_that_the_others_do_not_bring_back() -> None:
    trust = WHOLE
    for _ in range(1_000):
        trust = learned(trust, Score(spoke=10_000, differed=1), 0)

    assert trust.micro > 990_000


def test_the_losing_side_of_a_quarrel_with_the_business_loses_half() -> None:
    assert learned(WHOLE, Score(spoke=1, lost=1), 0).micro == 500_000


def test_where_nothing_was_found_trust_stays_as_it_is() -> None:
    assert learned(Trust(500_000), Score(spoke=3, moot=3), 0) == Trust(500_000)


def test_a_vantage_set_aside_stays_so_for_a_minute_and_returns_by_agreeing() -> None:
    trust = set_aside(1_000)

    assert learned(trust, Score(spoke=9), 60_999) == trust
    back = learned(trust, Score(spoke=9), 61_000)
    assert (back.micro, back.until_ms) == (LEAST + 20_000, 0)


def test_doubt_divides_what_trust_leaves() -> None:
    assert [weight(Trust(micro), doubt) for micro, doubt in ((FULL, 0), (FULL, 3), (200_000, 1), (LEAST, 7))] == [
        1_000,
        250,
        100,
        6,
    ]


@pytest.mark.parametrize(
    ("zones", "configured", "expected"),
    [
        ("FHHHH", 5, True),
        ("FFHHH", 5, True),
        ("FFFHH", 5, False),
        ("FHHNN", 5, False),
        ("FHH", 3, True),
        ("FHN", 3, False),
        ("FH", 2, False),
    ],
)
def test_the_rest_is_a_quorum_by_itself_and_most_of_all(zones: str, configured: int, expected: bool) -> None:
    assert rest_is_well(ballots(zones), FIVE[0], configured) is expected


@pytest.mark.parametrize(
    ("groups", "sets"),
    [
        (["a", "b"], 2),
        (["a", "a"], 1),
        (["ab", "bc", "cd"], 1),
        (["ab", "cd", "bc"], 1),
        (["ab", "cd", "e"], 3),
        ([], 0),
    ],
)
def test_sets_that_share_something_are_one_risk(groups: list[str], sets: int) -> None:
    assert independent(frozenset(group) for group in groups) == sets


def test_who_differs_from_the_rest_weighs_less_and_who_agrees_again_regains_it() -> None:
    world = World()
    world.tick(times=3)
    world.tick({FIVE[0]: {"a": builders.mute()}})
    assert world.trust() == FULL - 200_000 // 3 + 20_000 * 2 // 3
    fallen = world.trust()

    world.tick()

    assert fallen < world.trust() <= FULL


def test_trust_weighs_in_the_vote() -> None:
    world = World(builders.lines("a"))
    world.tick(times=3)
    liars = {FIVE[0]: {"a": builders.mute()}, FIVE[1]: {"a": builders.mute()}}
    world.tick(liars, times=10)
    world.tick({**liars, FIVE[2]: {"a": builders.mute()}})

    assert world.ledger.rows[LineId("payments/a")].zone is Zone.H
    # With full trust three of five would have decided.
    world.ledger.poll.credit.trusts.clear()
    world.tick({**liars, FIVE[2]: {"a": builders.mute()}})
    assert world.ledger.rows[LineId("payments/a")].zone is Zone.F


def test_a_vantage_that_alone_sees_most_lines_fail_is_quarantined_within_a_tick() -> None:
    world = World()
    world.tick(times=3)
    world.tick({FIVE[0]: {name: builders.slow() for name in "ab"}})

    assert is_quarantined(world.ledger.poll.credit.of(FIVE[0]))
    assert world.trust() == LEAST
    assert all(row.zone is Zone.H for row in world.ledger.rows.values())


def test_lines_of_one_provider_are_one_risk_and_quarantine_nobody() -> None:
    world = World(tuple(replace(line, provider="p1") for line in builders.lines(*"abc")))
    world.tick(times=3)
    world.tick({FIVE[0]: {name: builders.slow() for name in "ab"}})

    assert world.trust() > LEAST


def test_half_of_its_lines_is_not_most() -> None:
    world = World(builders.lines(*"abcd"))
    world.tick(times=3)
    world.tick({FIVE[0]: {name: builders.slow() for name in "ab"}})

    assert world.trust() > LEAST


def test_without_a_quorum_of_vantages_nobody_learns_anything() -> None:
    world = World(builders.lines("a"))
    world.tick(times=3)
    world.tick({FIVE[0]: {"a": builders.mute()}})
    before = world.trust()
    world.now_ms += 60_000
    for vantage in FIVE[:2]:
        world.ledger.report(vantage, [(LineId("payments/a"), builders.healthy())], now_ms=world.now_ms - 500)
    world.ledger.close(world.now_ms)

    assert world.trust() == before


def test_never_are_so_many_set_aside_that_the_others_are_no_majority() -> None:
    credit = Credit()

    for vantage in FIVE:
        credit.put_aside(vantage, FIVE, 1_000)

    aside = [vantage for vantage in FIVE if is_quarantined(credit.of(vantage))]
    assert aside == list(FIVE[:2])


@pytest.mark.parametrize(("is_pooled", "expected"), [(False, FULL - FULL // 5), (True, FULL)])
def test_where_evidence_is_pooled_too_little_of_it_is_no_contrary_opinion(is_pooled: bool, expected: int) -> None:
    credit = Credit()
    one, line = FIVE[0], LineId("c/a")
    well = Ballot(Zone.H, 500)
    credit.cast(one, line, None, well)

    credit.learn([(Result(well=False), {one: well})], FIVE, 1_000, is_pooled=is_pooled)

    assert credit.of(one).micro == expected


def test_where_evidence_is_pooled_a_vantage_that_complains_of_a_healthy_line_still_differs() -> None:
    credit = Credit()
    one, line = FIVE[0], LineId("c/a")
    bad = Ballot(Zone.D, 500)
    credit.cast(one, line, None, bad)

    credit.learn([(Result(well=True), {one: bad})], FIVE, 1_000, is_pooled=True)

    assert credit.of(one).micro == FULL - FULL // 5
