"""Sentences carry the numbers they speak of; what comes next is what the ledger then does."""

from __future__ import annotations

import pytest

from reachline.core import telling, words
from reachline.core.explain import Explanation, explain
from reachline.core.ledger import Ledger
from reachline.core.rules import FAULT, BreakerRules, FaultRules, Limit, Patience, Rules, with_tables
from reachline.model import (
    CENSORED_US,
    Change,
    Counts,
    Gate,
    Health,
    Kind,
    LineId,
    Outcome,
    Reading,
    VantageId,
    Version,
    Vote,
    Zone,
)
from reachline.testing import builders

TICK_MS = 10_000
VANTAGES = builders.vantages(3)
RULES = Rules(
    limits=(Limit("loss", 10, 5, 50, 30, 25), Limit("connect", None, None, 0, 3, 3)),
    faults=with_tables(FaultRules(), decay=0.15, half_life_ms=30_000),
    breaker=BreakerRules(jitter_milli=0),
)
A = LineId("payments/a")
WELL = Reading(Kind.TCP, Counts(ok=200), sent=1_000, lost=4, rounds=3, rounds_ok=3)
READINGS = {"H": WELL, "D": WELL._replace(lost=32), "F": WELL._replace(counts=Counts(refused=200), rounds_ok=0)}


class World:
    """A ledger of three lines and everything it decided on line a."""

    def __init__(self, rules: Rules = RULES, lines: str = "abc") -> None:
        self.ledger = Ledger(
            builders.scope(),
            builders.lines(*lines),
            rules,
            vantages=frozenset(VANTAGES),
            version=Version(1, 0),
            now_ms=0,
        )
        self.now_ms = 0
        self.history: list[Change] = []

    def ticks(self, zones: str, *, calls: int = 0) -> World:
        """One tick a letter: every vantage says it of line a and H of all others; `-` is silence."""
        for zone in zones:
            self.now_ms += TICK_MS
            said = [(line, READINGS[zone if line == A else "H"]) for line in self.ledger.lines if zone != "-"]
            for vantage in VANTAGES:
                self.ledger.report(vantage, said, now_ms=self.now_ms - 100)
            if calls:
                window = self.ledger.rows[A].breaker.window
                self.ledger.outcomes("c", [Outcome(A, window=window, ok=calls)], now_ms=self.now_ms - 50)
            changes = self.ledger.close(self.now_ms).changes
            self.history += [change for change in changes if change.line == A]
        return self

    def told(self, *, after_ms: int = 2_000) -> Explanation:
        now_ms = self.now_ms + after_ms
        return explain(self.ledger.view(A, now_ms), self.history, rules=self.ledger.rules, now_ms=now_ms)


def text(found: Explanation) -> str:
    return telling.text(found, lambda ms: f"{ms // 1_000}s")


def test_an_untouched_line_has_nothing_to_explain() -> None:
    found = World().told()

    assert (found.rule, found.decided_ms, found.next_ms) == ("", None, None)
    assert found.because == "nothing has gone wrong"
    assert "0 of 3 vantages are fresh (2 needed): no verdict now" in text(found)


def test_an_open_line_names_the_end_of_its_cooldown_and_that_is_when_the_trial_begins() -> None:
    world = World().ticks("FFF")

    found = world.told()
    assert (found.rule, found.next_ms) == ("vote.connect.failed", 90_000)
    assert "Next   90s (in 58 s): the cooldown of 1 min ends" in text(found)

    world.ticks("HHHHH")
    assert world.ledger.rows[A].breaker.gate is Gate.OPEN
    world.ticks("H")
    assert (world.now_ms, world.ledger.rows[A].breaker.gate) == (90_000, Gate.HALF_OPEN)


def test_a_cooldown_that_is_over_says_what_it_waits_for() -> None:
    found = World().ticks("FFF" + "F" * 7).told()

    assert found.next_ms == 90_000
    assert "Next   since 90s: the cooldown is over; a trial with 5 % of its weight begins at the first tick" in text(
        found
    )
    assert "together: failed" in found.seen


def test_a_trial_names_calls_missing_and_failures_left() -> None:
    world = World().ticks("FFF" + "HHHHHH")
    world.ledger.outcomes("c", [Outcome(A, window=1, ok=70, failed=1)], now_ms=world.now_ms)

    found = world.told()

    assert found.next_ms == 90_000 + RULES.breaker.trial_ms
    assert "70 of 200 calls are ok, 130 more are needed; it then gets 10 % of its weight" in found.next
    assert "1 calls failed, 2 more would open it again" in found.next
    assert "with a longer cooldown" in found.otherwise[0]


def test_a_ramp_names_its_step_and_the_last_one_full_weight() -> None:
    world = World().ticks("FFF" + "HHHHHH").ticks("HHH" * 4, calls=70)

    found = world.told()

    assert found.standing.step == 4
    assert found.rule == "breaker.window_passed"
    assert "210 calls ok (200 asked), 0 failed (3 at least would end it)" in found.because
    assert "it then gets its full weight" in found.next


def test_a_closed_breaker_after_the_ramp_says_so() -> None:
    found = World().ticks("FFF" + "HHHHHH").ticks("HHH" * 5, calls=70).told()

    assert found.rule == "breaker.window_passed.closed"
    assert found.because.endswith("that was the last step, it is closed again")


def test_a_degraded_line_names_the_clean_ticks_that_heal_it_and_they_do() -> None:
    world = World().ticks("HHHDDH")

    found = world.told()
    assert found.rule == "vote.loss.degraded"
    assert found.next == "2 more clean ticks in a row make it healthy (1 of 3 so far), 20 s at the earliest"

    world.ticks("H")
    assert world.ledger.rows[A].judgement.health is Health.DEGRADED
    world.ticks("H")
    assert world.ledger.rows[A].judgement.health is Health.HEALTHY


def test_what_would_open_it_counts_the_failed_ticks_so_far_and_they_do() -> None:
    world = World().ticks("HHHF")

    assert "3 failed ticks in a row open it (1 so far)" in world.told().otherwise
    world.ticks("FF")
    assert world.ledger.rows[A].breaker.gate is Gate.OPEN


def test_a_lone_vantage_is_told_to_need_more() -> None:
    world = World(rules=RULES)
    world.ledger.members(frozenset(VANTAGES[:1]))

    found = world.ticks("HF").told()

    assert f"{Patience().lone_failed} failed ticks in a row open it (1 so far)" in found.otherwise


def test_a_blind_line_says_that_its_state_is_held() -> None:
    found = World().ticks("HHH" + "-" * 7).told()

    assert found.rule == "quorum.blind"
    assert "its state is held, not judged" in found.because
    assert "2 fresh vantages would let it be judged again" in found.otherwise


def test_the_last_line_says_why_it_is_not_open() -> None:
    found = World(lines="a").ticks("HHHFFF").told()

    assert found.standing.gate is Gate.CLOSED
    assert found.because.endswith("it is the last closed line of its cluster and keeps the floor weight")
    assert any("another line of its cluster" in one for one in found.otherwise)


def test_small_moves_of_weight_are_told_in_one_row() -> None:
    found = World().ticks("HHHDD" + "DDDD" + "HHHHHH").told()

    rows = [row for row in text(found).splitlines() if "faults.grew" in row]
    assert len(rows) == 1
    assert rows[0].endswith("60s … 90s  faults.grew: degraded, weight 87 → 48 in 4 steps")


def test_the_document_says_the_same_numbers_in_unix_seconds() -> None:
    found = World().ticks("FFF").told()

    told = telling.document(found, lambda ms: f"{ms}", lambda ms: 1_000 + ms / 1_000)

    assert (told["next"], told["decided"], told["at"]) == (1_090.0, 1_030.0, 1_032.0)
    assert told["facts"] == {fact.name: fact.value for fact in found.facts}
    assert told["text"] == telling.text(found, lambda ms: f"{ms}")


def a_vote(metric: str, numerator: int, denominator: int, limit: int, zone: Zone = Zone.F) -> Vote:
    return Vote(VantageId("v1"), zone, metric, numerator, denominator, limit)


@pytest.mark.parametrize(
    ("cast", "sentence"),
    [
        (a_vote("tcp.loss", 3, 250, 10, Zone.D), "TCP packet loss: 3 of 250 (1.2 %), limit 1 %"),
        (a_vote("grpc.errors", 3, 10, 100, Zone.F), "gRPC errors: 3 of 10 (30 %), limit 10 %"),
        (a_vote("redis.loss", 1, 250, 0, Zone.H), "Redis packet loss: 1 of 250 (0.4 %)"),
        (a_vote("tcp.loss", 1, 250, 10, Zone.H), "TCP packet loss: 1 of 250 (0.4 %), degraded from 1 %"),
        (a_vote("tcp.loss", 1, 250, 0, Zone.H), "TCP packet loss: 1 of 250 (0.4 %)"),
        (a_vote("http.errors", 3, 5, 100), "HTTP errors: 3 of 5 (60 %), limit 10 %"),
        (a_vote("icmp.p95", 270_499, 40, 200_000, Zone.D), "ICMP P95 latency: 270 ms over 40 answers, limit 200 ms"),
        (
            a_vote("tcp.p95", CENSORED_US, 40, 500_000),
            "TCP P95 latency: the slowest 5 % got no answer (40 attempts did), limit 500 ms",
        ),
        (a_vote("tcp.connect", 0, 3, 0), "TCP connecting: 0 of the last 3 rounds ok (fails at 0)"),
        (
            a_vote("tcp.connect+icmp", 0, 3, 0),
            "TCP connecting, seconded by ICMP: 0 of the last 3 rounds ok (fails at 0)",
        ),
    ],
)
def test_a_vote_carries_numerator_denominator_and_limit(cast: Vote, sentence: str) -> None:
    assert words.vote(cast) == sentence


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        (0, "0 s"),
        (1_499, "1 s"),
        (59_499, "59 s"),
        (60_000, "1 min"),
        (312_000, "5 min 12 s"),
        (7_380_000, "2 h 3 min"),
    ],
)
def test_a_duration_is_said_to_the_second(ms: int, said: str) -> None:
    assert words.duration(ms) == said


@pytest.mark.parametrize(
    ("part", "whole", "said"), [(0, 5, "0 %"), (1, 1, "100 %"), (17, 40, "43 %"), (4, 1_000, "0.4 %"), (1, 0, "0 %")]
)
def test_a_share_is_said_with_a_decimal_only_where_it_says_something(part: int, whole: int, said: str) -> None:
    assert words.percent(part, whole) == said


@pytest.mark.parametrize(("faults", "said"), [(FAULT, "1"), (FAULT * 7 // 2, "3.5"), (FAULT // 14, "0.07"), (0, "0")])
def test_faults_are_said_with_two_decimals_at_most(faults: int, said: str) -> None:
    assert words.amount(faults) == said


def test_a_rule_without_words_keeps_its_name_and_missing_facts_never_fail() -> None:
    assert words.rule("rule.of_tomorrow", {}) == "rule.of_tomorrow"
    assert words.rule("breaker.trial_failed", {}).startswith("calls failed in the trial: ? (? at least end it)")


@pytest.mark.parametrize("guard", ["guard.last_line", "guard.blast", "guard.panic"])
def test_a_held_line_says_which_rule_holds_it_and_what_lets_go(guard: str) -> None:
    ledger = Ledger(builders.scope(), builders.lines("a", "b"), Rules(), version=Version(1, 0), now_ms=0)
    row = ledger.rows[LineId("payments/a")]
    ledger.rows[LineId("payments/a")] = row._replace(held=True, guard=guard)

    found = explain(ledger.view(LineId("payments/a"), 1_000), (), rules=ledger.rules, now_ms=1_000)

    assert words.rule(guard, {}) in found.because
    assert any(one.startswith("it opens ") for one in found.otherwise)


def test_a_line_that_waits_for_its_group_says_so() -> None:
    ledger = Ledger(builders.scope(), builders.lines("a", "b"), Rules(), version=Version(1, 0), now_ms=0)
    row = ledger.rows[LineId("payments/a")]
    waiting = row.breaker._replace(gate=Gate.OPEN, until_ms=500, waits=True)
    ledger.rows[LineId("payments/a")] = row._replace(breaker=waiting)

    found = explain(ledger.view(LineId("payments/a"), 1_000), (), rules=ledger.rules, now_ms=1_000)

    assert "waits for the trial of another line of its shared-risk group" in found.next
