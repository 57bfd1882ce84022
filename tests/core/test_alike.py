"""Lines that are alike share one row, and what becomes of it is worked out once: nobody can tell but by the time it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.modes import FAST

from reachline.core.cusum import Asked
from reachline.core.ledger import Ledger
from reachline.core.row import Row
from reachline.core.rules import FaultRules, Limit, Rules, with_tables
from reachline.core.turns import Answered, probed
from reachline.model import Change, Gate, Kind, Line, LineId, Outcome, Reading, Version
from reachline.testing import builders

LITERAL = Rules(
    limits=(
        Limit("loss", 10, 5, 50, 30, 25),
        Limit("timeout", 10, 5, 50, 30, 25),
        Limit("connect", None, None, 0, 3, 3),
    ),
    faults=with_tables(FaultRules(), decay=0.15, half_life_ms=30_000),
)
MODES = {"literal": LITERAL, "fast": FAST}
VANTAGES = builders.vantages(3)
LINES = (
    *builders.lines(*"abcd"),
    builders.line("e", vantages=VANTAGES[:2]),
    builders.line("f", vantages=VANTAGES[1:]),
    builders.line("g", base=10),
)
SAID: Mapping[str, Reading] = {
    "well": builders.reading(),
    "slow": builders.reading(p50_us=180_000, p95_us=700_000, ewma_us=190_000)._replace(fresh_slow=9, fresh_crawl=4),
    "lossy": builders.reading(ok=190, late=10, lost=60),
    "dead": builders.reading(ok=0, late=200, rounds_ok=0, p50_us=None, p95_us=None, ewma_us=None),
}
WORDS = (*SAID, "partly")
"""What is said of a line; `partly`: it is well, say all but the first vantage."""
WEATHER = st.one_of(
    st.sampled_from(WORDS).map(lambda one: (one,) * len(LINES)), st.tuples(*[st.sampled_from(WORDS)] * len(LINES))
)
ROUND = st.tuples(WEATHER, st.sampled_from((10, 10, 10, LITERAL.quorum.blind_ms)))
"""One tick's words, and by how many ms those on half of the lines come later, with the tick."""


def opened(rules: Rules, lines: Sequence[Line] = LINES) -> Ledger:
    return Ledger(builders.scope(), lines, rules, vantages=frozenset(VANTAGES), version=Version(1, 0), now_ms=0)


def apart(ledger: Ledger) -> None:
    """Give each line a row of its own, equal to the one it has."""
    ledger.rows = {line: Row._make(row) for line, row in ledger.rows.items()}
    ledger.answered.clear()


def told(ledger: Ledger, said: Sequence[str], now_ms: int, late_ms: int = 0) -> tuple[bytes, Sequence[Change], bytes]:
    """One tick in which the vantages say this of the lines, of every second one when it ends."""
    words = list(zip(ledger.lines, said, strict=True))
    for half, at_ms in enumerate((now_ms - late_ms, now_ms)):
        for vantage in VANTAGES:
            heard = [
                (line, SAID.get(one, SAID["well"]))
                for line, one in words[half::2]
                if one != "partly" or vantage is not VANTAGES[0]
            ]
            ledger.report(vantage, heard, now_ms=at_ms)
    closed = ledger.close(now_ms)
    return closed.digest, closed.changes, ledger.freeze()


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=25)
@given(rounds=st.lists(ROUND, min_size=1, max_size=10), called=st.integers(0, 2))
def test_decisions_are_the_same_where_each_line_has_a_row_of_its_own(
    mode: str, rounds: list[tuple[tuple[str, ...], int]], called: int
) -> None:
    rules = MODES[mode]
    together, alone, now_ms = opened(rules), opened(rules), 0

    for number, (said, late_ms) in enumerate(rounds):
        now_ms += rules.tick_ms + late_ms
        if number < called:
            for ledger in (together, alone):
                ledger.outcomes("sdk", [Outcome(LINES[0].id, ok=400, failed=40)], now_ms=now_ms)
        apart(alone)
        assert told(together, said, now_ms, late_ms) == told(alone, said, now_ms, late_ms)


@pytest.mark.parametrize("mode", MODES)
def test_lines_that_fail_alike_are_one_row_until_chance_tells_them_apart(mode: str) -> None:
    rules = MODES[mode]
    ledger = opened(rules, builders.lines(*"abcd"))

    for number, one in enumerate(("well", "well", "well", "dead"), 1):
        told(ledger, [one] * 4, number * rules.tick_ms)
        assert len(set(map(id, ledger.rows.values()))) == 1
    for number in range(5, 9):
        told(ledger, ["dead"] * 4, number * rules.tick_ms)

    held = [row for row in ledger.rows.values() if row.held]
    assert len(held) == 2
    assert held[0] is held[1]
    untils = {row.breaker.until_ms for row in ledger.rows.values() if row.breaker.gate is Gate.OPEN}
    assert len(untils) == 2


def test_lines_that_turn_alike_are_each_told_by_their_own_votes() -> None:
    lines = builders.lines(*"ab")
    ledger = opened(LITERAL, lines)
    said = {lines[0].id: builders.reading(ok=200, lost=6), lines[1].id: builders.reading(ok=194, late=6)}
    rules: dict[LineId, set[str]] = {line: set() for line in said}

    for number in range(1, 1 + LITERAL.patience.degraded):
        now_ms = number * LITERAL.tick_ms
        for vantage in VANTAGES:
            ledger.report(vantage, said.items(), now_ms=now_ms)
        for change in ledger.close(now_ms).changes:
            rules[change.line].add(change.rule)

    assert rules[lines[0].id] & {"vote.loss.degraded"}
    assert rules[lines[1].id] & {"vote.timeout.degraded"}
    first, second = ledger.rows.values()
    assert first.judgement is second.judgement
    assert first.reason != second.reason


def test_lines_that_are_heard_alike_add_up_each_from_its_own_sums() -> None:
    first, second = (line.id for line in builders.lines(*"ab"))
    ledger = opened(FAST, builders.lines(*"ab"))
    told(ledger, ["well"] * 2, FAST.tick_ms)
    half = tuple(question.height // 2 for question in FAST.questions)
    ledger.rows[first] = ledger.rows[first]._replace(asked=Asked(half))

    told(ledger, ["lossy"] * 2, 2 * FAST.tick_ms)

    assert max(ledger.rows[first].asked.sums) > max(ledger.rows[second].asked.sums) > 0


def test_of_lines_that_nobody_speaks_of_now_only_those_unheard_for_long_are_blind() -> None:
    first, second = (line.id for line in builders.lines(*"ab"))
    ledger, quorum = opened(LITERAL, builders.lines(*"ab")), LITERAL.quorum
    for line, at_ms in ((first, 0), (second, quorum.blind_ms - quorum.fresh_ms - 1)):
        for vantage in VANTAGES:
            ledger.report(vantage, [(line, SAID["well"]._replace(fresh_ok=0))], now_ms=at_ms)

    ledger.close(quorum.blind_ms)

    assert [ledger.rows[line].blind for line in (first, second)] == [True, False]


def test_a_success_is_noted_with_its_own_moment_and_makes_one_row_of_one() -> None:
    row, known, kinds = Row(), Answered(), (SAID["well"]._replace(fresh_ok=5),)

    def noted(now_ms: int) -> Row:
        return probed(row, kinds, frozenset({Kind.TCP}), now_ms, LITERAL, known=known)

    first, same, later = noted(1_000), noted(1_000), noted(2_000)

    assert first is same
    assert (first.ok_ms, later.ok_ms) == (1_000, 2_000)
