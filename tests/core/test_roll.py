"""A tick counts votes by columns of words; what it finds is what the ballots say."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reachline.core.counting import Count
from reachline.core.cusum import QUESTIONS, Evidence, Said
from reachline.core.poll import Poll
from reachline.core.quorum import TRUST, Ballot, tally
from reachline.core.rules import Rules
from reachline.core.trust import Trust
from reachline.model import LineId, VantageId, Vote, Zone
from reachline.testing import builders

NOW_MS = 100_000
RULES = {"literal": Rules(), "fast": Rules(mode="fast", questions=QUESTIONS)}
VANTAGES = builders.vantages(5)
LINES = {
    line.id: line
    for line in (
        *(builders.line(name) for name in "abcdefgh"),
        builders.line("i", vantages=VANTAGES[:2]),  # names those who count
    )
}


@st.composite
def ballots(draw: st.DrawFn) -> Ballot:
    zone = draw(st.sampled_from(Zone))
    received_ms = NOW_MS - draw(st.sampled_from([0, 25_000, 25_001]))
    vote = Vote(VANTAGES[0], zone, "tcp.loss", 1, 2, 0)
    return Ballot(zone, received_ms, draw(st.sampled_from([0, 0, 1, 7])), vote, before=draw(st.integers(0, 3)))


said = st.dictionaries(
    st.sampled_from(sorted(LINES)), st.dictionaries(st.sampled_from(VANTAGES), ballots(), min_size=1), max_size=9
)


@pytest.mark.parametrize("mode", RULES)
@pytest.mark.parametrize("asked", [sorted(LINES), [min(LINES)], []], ids=["all lines", "one line", "none"])
@given(
    said=said,
    trusts=st.dictionaries(st.sampled_from(VANTAGES), st.just(Trust(500_000)), max_size=2),
    saw=st.sets(st.tuples(st.sampled_from(VANTAGES), st.sampled_from(sorted(LINES)))),
)
@settings(max_examples=25, deadline=None)
def test_columns_and_ballots_come_to_the_same(
    mode: str,
    asked: list[LineId],
    said: dict[LineId, dict[VantageId, Ballot]],
    trusts: dict[VantageId, Trust],
    saw: set[tuple[VantageId, LineId]],
) -> None:
    rules = RULES[mode]
    poll = Poll(LINES, frozenset(VANTAGES), rules, 0)
    poll.restore({line: said.get(line, {}) for line in LINES})
    poll.credit.trusts = trusts
    for vantage, line in saw:
        if vantage in said.get(line, {}):
            poll.recall(vantage, line, Evidence(5, 1))
    count = Count(poll, NOW_MS, rules)

    found = count.every(asked)

    for line, polled in zip(asked, found, strict=True):
        alone = count.one(line)
        counting = {name: one for name, one in said.get(line, {}).items() if name in poll.configured(line)}
        weights = {name: poll.credit.weight(name, ballot.doubt) for name, ballot in counting.items()}
        whole = tally(counting.items(), len(poll.configured(line)), NOW_MS, rules.quorum, weights)
        assert polled.found == alone.found == whole
        assert polled.voters.votes(poll.ballots[line]) == tuple(
            ballot.vote
            for _, ballot in sorted(counting.items())
            if NOW_MS - ballot.received_ms <= rules.quorum.fresh_ms and ballot.vote is not None
        )
        if mode == "fast":
            assert [*polled.said] == [*alone.said]


def test_what_a_vantage_saw_comes_with_what_it_complained_of_before() -> None:
    rules = RULES["fast"]
    poll = Poll(LINES, frozenset(VANTAGES), rules, 0)
    for number, failed in enumerate((5, 5)):
        reading = builders.reading(ok=5 - failed, late=failed)._replace(fresh_ok=0, fresh_failed=failed)
        poll.cast(VANTAGES[0], LINES[LineId("payments/a")], (reading,), now_ms=NOW_MS + number, doubt=0, rules=rules)
        if not number:
            poll.pending = {}

    (polled,) = Count(poll, NOW_MS + 1, rules).every([LineId("payments/a")])

    assert [*polled.said] == [Said(TRUST, Evidence(5, 5), poll.ballots[LineId("payments/a")][VANTAGES[0]].before)]
    assert polled.said[0].suspicion > 0


def test_lines_that_name_their_vantages_are_counted_by_them_alone() -> None:
    poll = Poll(
        {LineId("i"): replace(LINES[max(LINES)], vantages=frozenset(VANTAGES[:1]))},
        frozenset(VANTAGES),
        RULES["literal"],
        0,
    )
    name = LineId("i")
    poll.restore({name: {VANTAGES[0]: Ballot(Zone.F, NOW_MS), VANTAGES[1]: Ballot(Zone.H, NOW_MS)}})

    (polled,) = Count(poll, NOW_MS, RULES["literal"]).every([name])

    assert (polled.found.zone, polled.found.fresh) == (Zone.F, 1)
