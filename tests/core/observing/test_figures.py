"""Worked examples: a ring's figures, weights, tolerance, baselines."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from reachline.core.observing import Cost, LeastLoad, Ping, Status
from reachline.core.observing.load import Node, node_of, qualifies, ranked, take, weight_of
from reachline.core.observing.ring import Results
from reachline.core.observing.rules import float32
from reachline.core.observing.selecting import selected
from reachline.core.observing.values import MS, SECOND


def _ring(*rtts: int | None, capacity: int = 10) -> Results:
    ring = Results(capacity, 20 * SECOND)
    for second, rtt in enumerate(rtts):
        ring.put(second * SECOND, rtt)
    return ring


@pytest.mark.parametrize(
    ("rtts", "ping"),
    [
        ((), Ping()),
        ((None, None), Ping(all=2, fail=2)),
        ((60 * MS,), Ping(all=1, fail=0, deviation=30 * MS, average=60 * MS, max=60 * MS, min=60 * MS)),
        ((7,), Ping(1, 0, 3, 7, 7, 7)),
        ((None, 61, None), Ping(3, 2, 30, 61, 61, 61)),
        ((60 * MS, 140 * MS), Ping(2, 0, 40 * MS, 100 * MS, 140 * MS, 60 * MS)),
        ((1, 2), Ping(2, 0, 0, 1, 2, 1)),
        ((10, 20, 31), Ping(3, 0, 8, 20, 31, 10)),
    ],
)
def test_figures_of_a_ring(rtts: tuple[int | None, ...], ping: Ping) -> None:
    assert _ring(*rtts).ping(10 * SECOND) == ping


def test_a_full_ring_forgets_the_oldest_and_keeps_its_slots() -> None:
    ring = _ring(1, 2, 3, None, capacity=3)

    assert ring.slots() == (None, 2, 3)


def test_a_result_counts_up_to_its_validity_and_not_a_nanosecond_longer() -> None:
    ring = _ring(5)

    assert ring.ping(20 * SECOND).all == 1
    assert ring.ping(20 * SECOND + 1).all == 0
    assert (ring.expires(0), ring.expires(20 * SECOND + 1)) == (20 * SECOND + 1, None)


@pytest.mark.parametrize(
    ("tags", "selectors", "found"),
    [
        (["b10", "b2", "b1"], ["b"], ("b1", "b10", "b2")),
        (["b1", "a1", "b1"], ["b", "a", "b1"], ("a1", "b1")),
        (["B1", "b1"], ["b"], ("b1",)),
        (["a", ""], [""], ("a",)),
        (["a"], [], ()),
        (["\U0001f600", "\uff21"], [""], ("\uff21", "\U0001f600")),
    ],
)
def test_a_selector_is_the_beginning_of_a_tag(tags: list[str], selectors: list[str], found: tuple[str, ...]) -> None:
    assert selected(tags, selectors) == found


@pytest.mark.parametrize(
    ("costs", "weight"),
    [
        ((), 1.0),
        ((Cost("de", 4.0),), 4.0),
        ((Cost("de", 0.1),), float32(0.1)),
        ((Cost("x", 4.0),), 1.0),
        ((Cost("node-3", 0.0),), 3.0),
        ((Cost("node", 0.0),), 1.0),
        ((Cost(r"\d\.\d", 0.0, is_pattern=True),), 2.5),
        ((Cost("(", 9.0, is_pattern=True), Cost("de", 2.0)), 2.0),
        ((Cost("z*", 9.0, is_pattern=True), Cost("de", 2.0)), 2.0),
        ((Cost("de", -1.0), Cost("de", 2.0)), 1.0),
        ((Cost("", 9.0),), 1.0),
    ],
)
def test_the_weight_of_a_tag_is_that_of_the_first_rule_that_matches(costs: tuple[Cost, ...], weight: float) -> None:
    assert weight_of("node-3-de-2.5", costs) == weight


def _failing(fail: int, number: int) -> Status:
    return Status("a", alive=True, delay=50, ping=Ping(number, fail, 1, 50 * MS, 1, 1))


@pytest.mark.parametrize(
    ("tolerance", "fail", "number", "is_in"),
    [
        (0.7, 7, 10, False), (0.9, 9, 10, False), (0.01, 1, 100, False),
        (0.1, 1, 10, True), (0.2, 2, 10, True), (0.3, 3, 10, True), (0.4, 4, 10, True), (0.6, 6, 10, True), (0.8, 8, 10, True),
        (0.2, 3, 10, False), (0.0, 9, 10, True),
    ],
)  # fmt: skip
def test_tolerance_is_a_single_compared_with_a_double_and_zero_is_off(
    tolerance: float, fail: int, number: int, is_in: bool
) -> None:
    assert qualifies(_failing(fail, number), {"a"}, LeastLoad(tolerance=tolerance)) is is_in


@pytest.mark.parametrize(("delay", "is_in"), [(999, True), (1_000, False), (1_001, False)])
def test_a_delay_equal_to_the_limit_is_out(delay: int, is_in: bool) -> None:
    load = LeastLoad(max_rtt=SECOND + 999_999)

    assert qualifies(Status("a", alive=True, delay=delay), {"a"}, load) is is_in


@pytest.mark.parametrize(
    ("costs", "load", "number"),
    [
        ((100, 200, 250, 300, 310), LeastLoad(baselines=(200, 300, 400), expected=3), 3),
        ((10, 20, 30, 90), LeastLoad(baselines=(50, 100), expected=1), 3),
        ((100, 200, 300), LeastLoad(baselines=(200, 400, 600), expected=0), 1),
        ((800, 1_000), LeastLoad(baselines=(500, 600), expected=0), 0),
        ((500, 600, 700, 800, 900), LeastLoad(baselines=(100,), expected=3), 3),
        ((1, 2), LeastLoad(expected=3), 2),
        ((1, 2, 3), LeastLoad(), 1),
        ((1, 2, 3), LeastLoad(expected=2), 2),
        ((), LeastLoad(expected=2), 0),
    ],
)
def test_how_many_are_taken(costs: Sequence[int], load: LeastLoad, number: int) -> None:
    nodes = [Node(cost, 1, 0, -1, str(cost)) for cost in costs]

    assert take(nodes, load) == tuple(map(str, costs[:number]))


def test_the_steadier_one_wins_until_its_weight_is_against_it() -> None:
    a = Status("a", alive=True, delay=100, ping=Ping(2, 0, 40 * MS, 100 * MS, 140 * MS, 60 * MS))
    b = Status("b", alive=True, delay=100, ping=Ping(2, 0, 60 * MS, 100 * MS, 160 * MS, 40 * MS))
    heavy = LeastLoad(costs=(Cost("a", 9.0),))

    assert take(ranked([b, a], {"a", "b"}, LeastLoad()), LeastLoad()) == ("a",)
    assert take(ranked([b, a], {"a", "b"}, heavy), heavy) == ("b",)
    assert node_of(a, heavy.costs).cost == 120 * MS


def test_without_statistics_the_delay_is_average_and_deviation() -> None:
    assert node_of(Status("a", alive=True, delay=3), (Cost("a", 4.0),)) == Node(6 * MS, 3 * MS, 1, -1, "a")


def test_equal_costs_are_parted_by_average_failures_number_and_tag() -> None:
    def status(tag: str, average: int, fail: int, number: int) -> Status:
        return Status(tag, alive=True, ping=Ping(number, fail, 5, average, 1, 1))

    given = [
        status("e", 1, 0, 3),
        status("d", 1, 0, 3),
        status("c", 1, 0, 4),
        status("b", 1, 1, 9),
        status("a", 2, 0, 9),
    ]

    assert [node.tag for node in ranked(given, "abcde", LeastLoad())] == ["c", "d", "e", "b", "a"]
