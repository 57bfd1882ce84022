"""The business's own calls against the vantages: volume, scope, quarrel and override, in both modes (hole 47)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core import modes
from tests.core.modes import FAULTS

from reachline.core import telling
from reachline.core.explain import explain
from reachline.core.ledger import Closed, Ledger
from reachline.core.rules import Limit, Rules
from reachline.core.trust import FULL
from reachline.model import Gate, Health, LineId, Outcome, Reading, VantageId, Version, Zone
from reachline.testing import builders

LIMITS = (
    Limit("loss", 10, 5, 50, 30, 25),
    Limit("connect", None, None, 0, 3, 3),
    Limit("p95", 200_000, 160_000, 500_000, 400_000, 20),
)
LITERAL = Rules(limits=LIMITS, faults=FAULTS)
FAST = replace(modes.FAST, limits=LIMITS)
FIVE = builders.vantages(5)
A, B, C = (LineId(f"payments/{name}") for name in "abc")
WELL = builders.reading(ok=5)
DEAD = builders.mute()._replace(fresh_failed=5, fresh_ok=0)
SICK = builders.reading(ok=3, late=2)._replace(fresh_slow=3, sent=40, lost=12)
"""Of a vantage that is sick itself: two of five never answered, the others slowly."""
NONE: Mapping[str, str] = MappingProxyType({})

Calls = Mapping[str, tuple[int, int]]
"""By line: ok calls and bad ones of each client in a tick."""


class World:
    """Three lines, five vantages, clients that call each line as said in every tick."""

    def __init__(self, rules: Rules, *, vantages: Sequence[VantageId] = FIVE, clients: int = 4) -> None:
        self.rules, self.vantages, self.now_ms = rules, vantages, 0
        self.clients = [f"c{number}" for number in range(clients)]
        self.ledger = Ledger(
            builders.scope(),
            builders.lines(*"abc"),
            rules,
            vantages=frozenset(vantages),
            version=Version(1, 0),
            now_ms=0,
        )
        self.seen: list[Closed] = []

    def tick(
        self,
        *,
        said: Mapping[VantageId, Mapping[str, Reading]] | None = None,
        calls: Calls | None = None,
        how: str = "late",
        service: str = "pay",
        only: str = "",
        times: int = 1,
        quiet: bool = False,
    ) -> None:
        """Vantages say what is named, else healthy; clients call well but as named; bad calls end `how`, of `only` client."""
        for _ in range(times):
            self.now_ms += self.rules.tick_ms
            for vantage in () if quiet else self.vantages:
                own = (said or {}).get(vantage, {})
                rows = [(line, own.get(line[-1], WELL)) for line in (A, B, C)]
                self.ledger.report(vantage, rows, now_ms=self.now_ms - 100)
            for client in self.clients if calls is not None else ():
                named = (calls or {}) if not only or client == only else {}
                made = [self._row(line, *named.get(line[-1], (100, 0)), how, service) for line in (A, B, C)]
                self.ledger.outcomes(client, made, now_ms=self.now_ms - 50)
            self.seen.append(self.ledger.close(self.now_ms))

    @staticmethod
    def _row(line: LineId, ok: int, bad: int, how: str, service: str) -> Outcome:
        row = Outcome(line, service, ok=ok, timed=ok)
        match how:
            case "late":
                return row._replace(late=bad)
            case "errors":
                return row._replace(errors=bad)
            case _:
                return row._replace(failed=bad)

    def state(self, line: LineId = A) -> tuple[Health, Gate]:
        row = self.ledger.rows[line]
        return row.judgement.health, row.breaker.gate

    def rule(self) -> str:
        """Of the newest change of line A."""
        return next(one.rule for closed in reversed(self.seen) for one in closed.changes if one.line == A)

    def trust(self, place: int) -> int:
        return self.ledger.poll.credit.of(FIVE[place]).micro

    def word(self, line: LineId = A) -> Zone:
        return self.ledger.view(line, self.now_ms).word.zone


OPEN = (Health.UNHEALTHY, Gate.OPEN)
FINE = (Health.HEALTHY, Gate.CLOSED)
ALL: Calls = {}
BAD: Calls = {"a": (80, 20)}


def healthy(rules: Rules, **world: int) -> World:
    made = World(rules, **world)  # type: ignore[arg-type]
    made.tick(calls=ALL, times=5)
    assert made.state() == FINE
    return made


# -- what makes a verdict of calls ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ok", "bad", "how", "zone"),
    [
        (97, 3, "late", Zone.D),
        (90, 10, "late", Zone.F),
        (97, 3, "errors", Zone.D),
        (92, 8, "errors", Zone.D),
        (80, 20, "errors", Zone.F),
        (80, 20, "failed", Zone.F),
        (99, 1, "late", Zone.H),
    ],
)
def test_calls_are_held_against_the_limits(ok: int, bad: int, how: str, zone: Zone) -> None:
    world = World(LITERAL)
    world.tick(calls={"a": (ok, bad)}, how=how)

    assert world.word() is zone


@pytest.mark.parametrize(("calls", "clients", "known"), [(12, 4, False), (13, 4, True), (60, 1, True)])
def test_calls_say_nothing_below_fifty(calls: int, clients: int, known: bool) -> None:
    world = World(LITERAL, clients=clients)
    world.tick(calls={"a": (calls, 0)})

    assert (world.word() is not Zone.N) is known


def test_one_process_of_several_says_nothing() -> None:
    world = World(LITERAL, clients=2)
    world.tick(calls=ALL)
    world.now_ms += 10_000
    world.ledger.outcomes("c0", [Outcome(A, ok=100)], now_ms=world.now_ms)
    world.ledger.outcomes("c1", [Outcome(B, ok=100)], now_ms=world.now_ms)
    world.ledger.close(world.now_ms)

    assert (world.word(A), world.word(C)) == (Zone.N, Zone.N)


def test_calls_count_for_ten_seconds() -> None:
    world = World(FAST)
    world.tick(calls=ALL)
    world.tick(times=4)
    assert world.word() is Zone.H

    world.tick()

    assert world.word() is Zone.N


def test_slow_calls_count_by_the_share_above_a_limit() -> None:
    world = World(LITERAL)
    world.tick(calls=ALL)
    world.now_ms += 10_000
    for client in world.clients:
        world.ledger.outcomes(client, [Outcome(A, ok=100, timed=100, slow=30, crawl=20)], now_ms=world.now_ms)
        world.ledger.outcomes(client, [Outcome(B, ok=100, timed=100)], now_ms=world.now_ms)
    world.ledger.close(world.now_ms)

    assert (world.word(A), world.word(B)) == (Zone.F, Zone.H)


# -- the quarrel, `literal` -------------------------------------------------------------------------------------------


def test_three_ticks_of_conflict_and_the_business_opens_the_breaker() -> None:
    world = healthy(LITERAL)
    seen = []
    for _ in range(3):
        world.tick(calls=BAD)
        seen.append(world.state())

    assert seen == [FINE, FINE, OPEN]
    assert world.rule() == "business.timeout.failed"
    facts = dict(next(one.facts for one in world.seen[-1].changes if one.line == A))
    assert (facts["business_bad"], facts["business_of"], facts["conflict_ticks"]) == (80, 400, 3)


def test_two_ticks_of_conflict_move_nothing() -> None:
    world = healthy(LITERAL)
    for _ in range(5):
        world.tick(calls=BAD, times=2)
        world.tick(calls=ALL)

        assert world.state() == FINE
        assert world.trust(0) == FULL


def test_at_the_third_failed_tick_the_business_side_wins() -> None:
    world = healthy(LITERAL)
    world.tick(said={vantage: {"a": DEAD} for vantage in FIVE}, calls=ALL, times=6)

    assert world.state()[1] is Gate.CLOSED
    assert world.ledger.rows[A].judgement.down == 0


def test_without_the_business_three_failed_ticks_open() -> None:
    world = healthy(LITERAL)
    world.tick(said={vantage: {"a": DEAD} for vantage in FIVE}, times=3)

    assert world.state() == OPEN


def test_the_business_is_believed_until_a_minute_after_the_last_conflict() -> None:
    world = healthy(LITERAL)
    dead = {vantage: {"a": DEAD} for vantage in FIVE}
    world.tick(said=dead, calls=ALL, times=3)
    last_ms = world.now_ms
    world.tick(calls=ALL, times=6)
    assert world.now_ms == last_ms + 60_000
    assert world.ledger.hearing.matters[A].overrides

    world.tick(calls=ALL)

    assert A not in world.ledger.hearing.matters


def test_who_lost_the_quarrel_loses_trust_and_who_was_right_does_not() -> None:
    world = healthy(LITERAL)
    wrong = {vantage: dict.fromkeys("abc", DEAD) for vantage in FIVE[:3]}
    for _ in range(3):
        before = [world.trust(place) for place in range(5)]
        world.tick(said=wrong, calls=ALL)

    assert [world.trust(place) for place in range(3)] == [before[place] // 2 for place in range(3)]
    assert [world.trust(place) >= before[place] for place in (3, 4)] == [True, True]


def test_a_shadowed_business_is_heard_and_not_obeyed() -> None:
    world = healthy(replace(LITERAL, shadowed=("business",)))
    world.tick(calls=BAD, times=6)

    assert world.word() is Zone.F
    assert world.state() == FINE
    assert world.trust(0) == FULL


def test_a_blind_line_is_judged_by_the_business_alone() -> None:
    world = healthy(LITERAL)
    world.tick(calls=ALL, times=7, quiet=True)
    assert world.ledger.rows[A].blind

    world.tick(calls=BAD, times=3, quiet=True)

    assert world.state() == OPEN
    assert world.rule() == "business.timeout.failed"


def test_without_a_quorum_a_line_that_is_not_blind_is_not_judged() -> None:
    world = healthy(LITERAL)
    world.tick(calls=BAD, times=4, quiet=True)

    assert world.state() == FINE


@pytest.mark.parametrize(("calls", "ticks"), [(None, 6), (BAD, 3)])
def test_a_lone_vantage_needs_six_failed_ticks_or_the_business(calls: Calls | None, ticks: int) -> None:
    world = World(LITERAL, vantages=FIVE[:1])
    world.tick(calls=ALL, times=5)
    world.tick(times=2)
    count = 0
    while world.state()[1] is Gate.CLOSED:
        world.tick(said={FIVE[0]: {"a": DEAD}}, calls=calls)
        count += 1

    assert count == ticks


# -- the scope test ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rules", [LITERAL, FAST], ids=["literal", "fast"])
@pytest.mark.parametrize("bad", [4, 10, 30])
def test_a_service_that_fails_on_every_line_moves_none_and_is_named(rules: Rules, bad: int) -> None:
    world, rng = healthy(rules, clients=1), Random(bad)
    for _ in range(60):
        drawn = {name: sum(rng.random() < bad / 100 for _ in range(100)) for name in "abc"}
        world.tick(calls={name: (100 - count, count) for name, count in drawn.items()}, how="errors")

        assert [world.state(line) for line in (A, B, C)] == [FINE] * 3
    named = {cause.name for cause in world.ledger.view(A, world.now_ms).word.causes}
    assert named == {"pay"}


@pytest.mark.parametrize("rules", [LITERAL, FAST], ids=["literal", "fast"])
def test_one_caller_alone_moves_no_line_and_is_named(rules: Rules) -> None:
    world = healthy(rules)
    world.tick(calls={"a": (20, 80)}, how="failed", only="c2", times=10)

    assert world.state() == FINE
    assert [cause[:2] for cause in world.ledger.view(A, world.now_ms).word.causes] == [("client", "c2")]


def test_a_line_that_is_worse_than_its_service_everywhere_is_the_lines_fault() -> None:
    world = healthy(FAST)
    world.tick(calls={"a": (40, 60), "b": (90, 10), "c": (90, 10)}, how="errors", times=4)

    assert [world.state(line) for line in (A, B, C)] == [OPEN, FINE, FINE]


# -- `fast` -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bad", "how"), [(30, "errors"), (15, "late")])
def test_what_only_the_business_sees_is_found_and_taken_out_in_seconds(bad: int, how: str) -> None:
    world = healthy(FAST)
    began = world.now_ms
    world.tick(calls={"a": (100 - bad, bad)}, how=how, times=2)
    assert world.state() == (Health.DEGRADED, Gate.CLOSED)

    world.tick(calls={"a": (100 - bad, bad)}, how=how)

    assert world.state() == OPEN
    assert world.now_ms - began <= 10_000
    assert world.rule().startswith("business.")


@pytest.mark.parametrize(("bad", "worst"), [(1, Health.HEALTHY), (6, Health.DEGRADED), (20, Health.UNHEALTHY)])
def test_server_errors_degrade_from_two_percent_and_fail_from_ten(bad: int, worst: Health) -> None:
    world, rng = healthy(FAST), Random(1)
    found = set()
    for _ in range(40):
        drawn = sum(rng.random() < bad / 100 for _ in range(100))
        world.tick(calls={"a": (100 - drawn, drawn)}, how="errors")
        found.add(world.state()[0])

    assert worst in found
    assert (Health.UNHEALTHY in found) is (worst is Health.UNHEALTHY)
    assert (Health.DEGRADED in found) is (worst is not Health.HEALTHY)


def test_vantages_that_missed_what_the_business_saw_lose_trust() -> None:
    world = healthy(FAST)
    world.tick(calls={"a": (85, 15)}, times=3)

    # On one of its three lines each lost the quarrel, on two it agreed.
    assert {world.trust(place) for place in range(5)} == {FULL - 500_000 // 3 + 20_000 * 2 // 3}


@pytest.mark.parametrize("rules", [LITERAL, FAST], ids=["literal", "fast"])
def test_three_of_five_sick_vantages_open_nothing_while_business_is_clean(rules: Rules) -> None:
    world = healthy(rules)
    sick = {vantage: dict.fromkeys("abc", SICK) for vantage in FIVE[:3]}
    for _ in range(300_000 // rules.tick_ms):
        world.tick(said=sick, calls=ALL)

        assert all(world.state(line)[1] is Gate.CLOSED for line in (A, B, C))
    assert all(world.trust(place) < world.trust(3) for place in range(3))


@pytest.mark.parametrize("rules", [LITERAL, FAST], ids=["literal", "fast"])
def test_all_lines_bad_at_once_with_clean_business_are_the_observers_own_plane(rules: Rules) -> None:
    world = healthy(rules)
    dead = {vantage: dict.fromkeys("abc", DEAD) for vantage in FIVE}
    few: Calls = dict.fromkeys("abc", (14, 0))
    for _ in range(3):
        world.tick(said=dead, calls=few)
        if world.ledger.hearing.plane_ms is not None:
            break

    assert world.ledger.view(A, world.now_ms).plane_ms == world.now_ms
    world.tick(said=dead, calls=few)
    assert [world.state(line) for line in (A, B, C)] == [FINE] * 3
    world.tick(calls=few, times=30)
    assert world.ledger.hearing.plane_ms is None


def test_lines_that_turned_bad_one_after_the_other_are_no_plane() -> None:
    world = healthy(LITERAL)
    few: Calls = dict.fromkeys("abc", (14, 0))
    for names in ("a", "a", "ab", "ab", "abc"):
        world.tick(said={vantage: dict.fromkeys(names, DEAD) for vantage in FIVE}, calls=few)

    assert world.ledger.hearing.plane_ms is None


def test_all_lines_bad_at_once_are_no_plane_where_calls_fail_on_one_of_them() -> None:
    world = healthy(LITERAL)
    world.tick(said={vantage: dict.fromkeys("abc", DEAD) for vantage in FIVE}, calls=BAD, times=3)

    assert world.ledger.hearing.plane_ms is None
    assert world.state() == OPEN


def test_few_calls_blame_nobody() -> None:
    world = World(LITERAL, clients=2)
    world.tick(calls=dict.fromkeys("abc", (14, 10)))

    assert world.ledger.view(A, world.now_ms).word.causes == ()


def test_all_lines_bad_at_once_without_business_are_bad() -> None:
    world = healthy(LITERAL)
    world.tick(said={vantage: dict.fromkeys("abc", DEAD) for vantage in FIVE}, times=3)

    assert world.ledger.hearing.plane_ms is None
    assert OPEN in {world.state(line) for line in (A, B, C)}


def test_one_sick_vantage_is_quarantined_within_half_a_minute_and_moves_no_line() -> None:
    world = healthy(FAST)
    sick = {FIVE[2]: dict.fromkeys("abc", SICK)}
    for _ in range(300):
        world.tick(said=sick, calls=ALL)

        assert [world.state(line) for line in (A, B, C)] == [FINE] * 3
        if world.now_ms >= 10_000 + 30_000:
            assert world.trust(2) <= 100_000
    assert world.trust(0) == FULL


def test_a_center_that_sees_two_of_five_does_nothing() -> None:
    world = healthy(FAST)
    world.vantages = FIVE[:2]
    world.tick(said={vantage: dict.fromkeys("abc", DEAD) for vantage in FIVE[:2]}, times=60)

    assert all(world.state(line) == FINE for line in (A, B, C))


# -- replay -----------------------------------------------------------------------------------------------------------

Said = tuple[int, int, int]
spoken = st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 2))
called = st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 30))
script = st.lists(st.tuples(st.lists(spoken, max_size=12), st.lists(called, max_size=8)), min_size=1, max_size=8)
Script = list[tuple[list[Said], list[Said]]]
LINES = (A, B, C)
READINGS = (WELL, SICK, DEAD)


def play(ledger: Ledger, script: Script, *, backwards: bool = False, start: int = 0) -> list[bytes]:
    """The digests; a vantage says one thing of a line in a tick, in this order or the reverse."""
    seals = []
    for number, (said, calls) in enumerate(script, start + 1):
        now_ms = number * ledger.rules.tick_ms
        told = list({(vantage, line): zone for vantage, line, zone in said}.items())
        for (vantage, line), zone in reversed(told) if backwards else told:
            ledger.report(FIVE[vantage], [(LINES[line], READINGS[zone])], now_ms=now_ms - 100)
        for client, line, bad in reversed(calls) if backwards else calls:
            row = Outcome(LINES[line], "pay", ok=40, late=bad)
            ledger.outcomes(f"c{client}", [row], now_ms=now_ms - 50)
        seals.append(ledger.close(now_ms).digest)
    return seals


@pytest.mark.parametrize("rules", [LITERAL, FAST], ids=["literal", "fast"])
@settings(max_examples=40)
@given(script=script)
def test_the_order_of_heartbeats_and_outcomes_in_a_tick_does_not_matter(rules: Rules, script: Script) -> None:
    one, other = World(rules).ledger, World(rules).ledger

    assert play(one, script) == play(other, script, backwards=True)
    assert (one.poll.credit.trusts, one.hearing.matters) == (other.poll.credit.trusts, other.hearing.matters)
    assert (one.rows, one.poll.beats) == (other.rows, other.poll.beats)


@pytest.mark.parametrize("rules", [LITERAL, FAST], ids=["literal", "fast"])
@settings(max_examples=30)
@given(script=script, cut=st.integers(0, 8))
def test_a_checkpoint_keeps_trust_and_business(rules: Rules, script: Script, cut: int) -> None:
    one, other = World(rules).ledger, World(rules).ledger
    play(one, script[:cut])
    play(other, script[:cut])
    other = Ledger.thaw(other.freeze())

    assert play(one, script[cut:], start=cut) == play(other, script[cut:], start=cut)
    assert one.freeze() == other.freeze()


def test_a_checkpoint_keeps_what_was_called_since_the_last_tick() -> None:
    one, other = healthy(FAST), healthy(FAST)
    for world in (one, other):
        world.ledger.outcomes("c0", [Outcome(A, "pay", ok=50, errors=50)], now_ms=world.now_ms + 10)
    other.ledger = Ledger.thaw(other.ledger.freeze())
    for world in (one, other):
        world.tick(calls={"a": (70, 30)}, how="errors", times=3)

    assert other.ledger.freeze() == one.ledger.freeze()


@pytest.mark.parametrize("lines", [(A, B), (B, A), (A, A)], ids=["in order", "against it", "the same line"])
def test_a_checkpoint_keeps_calls_of_two_ticks_of_one_ms_once(lines: tuple[LineId, LineId]) -> None:
    one = healthy(FAST).ledger
    now_ms = 10_000_000
    for line in lines:
        one.outcomes("c0", [Outcome(line, "pay", ok=50, errors=5)], now_ms=now_ms)
        one.close(now_ms)
    other = Ledger.thaw(one.freeze())

    assert other.freeze() == one.freeze()
    for line in (A, B):
        known = [each.hearing.business.word(line, (), FAST).calls for each in (one, other)]
        assert known[0] == known[1] == 55 * lines.count(line)


def test_a_line_that_is_renamed_keeps_its_quarrel() -> None:
    world = healthy(LITERAL)
    world.tick(calls=BAD, times=2)
    matter = world.ledger.hearing.matters[A]
    renamed = [replace(line, id=LineId(f"payments/x{line.id[-1]}")) for line in builders.lines(*"abc")]
    world.ledger.reconfigure(renamed, LITERAL, frozenset(FIVE), now_ms=world.now_ms)

    assert world.ledger.hearing.matters == {LineId("payments/xa"): matter}
    assert set(world.ledger.hearing.business.newest.rows) == {LineId(f"payments/x{name}") for name in "abc"}


# -- what people are told ---------------------------------------------------------------------------------------------


def told(world: World) -> str:
    changes = [one for closed in world.seen for one in closed.changes if one.line == A]
    view = world.ledger.view(A, world.now_ms)
    return telling.text(explain(view, changes, rules=world.rules, now_ms=world.now_ms), lambda ms: f"{ms // 1_000} s")


def test_an_explanation_quotes_business_trust_and_quarrel() -> None:
    world = healthy(LITERAL)
    world.tick(calls=BAD, times=3)
    text = told(world)

    assert "business.timeout.failed" in text
    assert "80 of 400 calls of 4 processes were late" in text
    assert "v1 is trusted 84 of 100" in text
    assert "it contradicted the vantages for 3 ticks in a row: it is believed instead of them, for 1 min more" in text


def test_an_explanation_names_the_service_or_the_caller_at_fault() -> None:
    service, client = healthy(FAST), healthy(FAST)
    service.tick(calls=dict.fromkeys("abc", (70, 30)), how="errors", times=3)
    client.tick(calls={"a": (20, 80)}, how="failed", only="c2", times=3)

    assert "a service fault: the failing of service pay is as bad on the other lines" in told(service)
    assert "a client fault: the failing is that of c2 alone" in told(client)


def test_an_explanation_names_a_broken_plane_and_who_is_in_quarantine() -> None:
    world = healthy(LITERAL)
    world.tick(said={vantage: dict.fromkeys("abc", DEAD) for vantage in FIVE}, calls=ALL)
    assert "all lines have been bad at once though calls go well" in told(world)

    other = healthy(LITERAL)
    other.tick(said={FIVE[0]: dict.fromkeys("abc", DEAD)}, calls=ALL)
    assert "v1 is trusted 5 of 100, in quarantine" in told(other)


def test_a_line_that_all_evidence_calls_degraded_fails_by_what_calls_alone_say_for_two_spans() -> None:
    """Few calls at 6 % fill no sum for a minute, and probes that see lost packets only speak against them."""
    marred = {vantage: {"a": builders.reading(ok=20)._replace(fresh_ok=20, fresh_marred=1)} for vantage in FIVE}
    world = healthy(FAST)

    world.tick(said=marred, calls={"a": (15, 1)}, times=6)
    assert world.word() is Zone.F
    assert world.state()[0] is Health.DEGRADED
    world.tick(said=marred, calls={"a": (15, 1)}, times=6)

    assert world.state() == OPEN
    assert world.rule() == "business.timeout.failed"


def test_an_explanation_names_who_told_of_the_calls_it_rests_on() -> None:
    world = healthy(LITERAL)
    for name in ("als:envoy-1", "web-1", "web-2", "web-3", "web-4", "web-5"):
        world.ledger.outcomes(name, [Outcome(A, ok=20)], now_ms=world.now_ms + 10)
    world.tick()

    assert "told by als:envoy-1, web-1, web-2, web-3 and 2 more" in told(world)
