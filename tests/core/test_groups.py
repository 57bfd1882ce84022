"""Lines that share a provider: one incident, an early warning, one trial at a time. In literal mode, one zone a tick and line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from reachline.core.groups import members
from reachline.core.ledger import Closed, Ledger
from reachline.core.rules import BreakerRules, FaultRules, Limit, Rules, with_tables
from reachline.model import Counts, Gate, Health, Kind, Line, LineId, Outcome, Reading, Version
from reachline.testing import builders

TICK_MS = 10_000
VANTAGES = builders.vantages(3)
RULES = Rules(
    limits=(Limit("loss", 10, 5, 50, 30, 25), Limit("connect", None, None, 0, 3, 3)),
    faults=with_tables(FaultRules(), decay=0.15, half_life_ms=30_000),
    breaker=BreakerRules(jitter_milli=0),
)
WELL = Reading(Kind.TCP, Counts(ok=200), sent=1_000, lost=4, rounds=3, rounds_ok=3)
READINGS = {"H": WELL, "D": WELL._replace(lost=32), "F": WELL._replace(counts=Counts(refused=200), rounds_ok=0)}


def line(name: str, provider: str = "", groups: Sequence[str] = (), *, drained: bool = False) -> Line:
    return replace(builders.line(name, drained=drained), provider=provider, groups=tuple(groups))


def of(name: str) -> LineId:
    return LineId(f"payments/{name}")


FOUR = (line("a", "p1"), line("b", "p1"), line("c", "p2"), line("d", "p2"))
SIX = (*(line(name, "p1") for name in "abcd"), line("e", "p2"), line("f"))


class World:
    """Some lines, each told of by one letter a tick."""

    def __init__(self, lines: Sequence[Line] = FOUR, rules: Rules = RULES) -> None:
        self.names = [one.id for one in lines]
        self.now_ms = 0
        self.ledger = Ledger(
            builders.scope(), lines, rules, vantages=frozenset(VANTAGES), version=Version(1, 0), now_ms=0
        )
        self.closed: list[Closed] = []

    def tick(self, zones: str, *, calls: int = 0) -> Closed:
        self.now_ms += TICK_MS
        said = [(name, READINGS[zone]) for name, zone in zip(self.names, zones, strict=True)]
        for vantage in VANTAGES:
            self.ledger.report(vantage, said, now_ms=self.now_ms - 100)
        windows = {name: row.breaker.window for name, row in self.ledger.rows.items()}
        outcomes = [Outcome(name, window=window, ok=calls) for name, window in windows.items() if calls]
        self.ledger.outcomes("app", outcomes, now_ms=self.now_ms - 50)
        self.closed.append(self.ledger.close(self.now_ms))
        return self.closed[-1]

    def ticks(self, *zones: str) -> World:
        for one in zones:
            self.tick(one)
        return self

    def gates(self) -> str:
        letters = {Gate.CLOSED: "C", Gate.OPEN: "O", Gate.HALF_OPEN: "T", Gate.RAMP: "R"}
        return "".join(letters[self.ledger.rows[name].breaker.gate] for name in self.names)

    def incidents(self) -> list[str]:
        return [self.ledger.board.standings[name].incident for name in self.names]

    def health(self, name: str) -> Health:
        return self.ledger.rows[of(name)].judgement.health


def test_a_provider_is_a_group_and_neither_one_line_nor_the_whole_cluster_is() -> None:
    lines = (line("a", "p1", ["fibre"]), line("b", "p1", ["all"]), line("c", "p2", ["all", "fibre"]))

    assert members(lines) == {"p1": (of("a"), of("b")), "fibre": (of("a"), of("c")), "all": (of("b"), of("c"))}
    assert members([line("a", "p1"), line("b", "p1")]) == {}


def test_drained_lines_do_not_count_as_members() -> None:
    lines = (line("a", "p1"), line("b", "p1", drained=True), line("c"), line("d"))

    assert members(lines) == {}


def test_half_a_group_sick_within_the_time_is_one_incident_by_name() -> None:
    world = World().ticks("HHHH", "DHHH", "DDHH")
    assert world.incidents() == ["", "", "", ""]

    closed = world.tick("DDHH")

    assert world.incidents() == ["p1", "p1", "", ""]
    assert {(one.line, one.rule, one.after.incident) for one in closed.changes if one.after.incident} == {
        (of("a"), "group.incident", "p1"),
        (of("b"), "vote.loss.degraded", "p1"),
    }


@pytest.mark.parametrize(
    ("zones", "found"),
    [
        (("DHHH", "DHHH", "DHHH", "DHHH", "DDHH", "DDHH"), False),
        (("DHHH", "DHHH", "DDHH", "DDHH"), True),
        (("DHDH", "DHDH", "DHDH"), False),
    ],
    ids=["too far apart", "in time", "of two groups"],
)
def test_only_what_turns_bad_together_is_an_incident(zones: tuple[str, ...], found: bool) -> None:
    assert ("p1" in World().ticks("HHHH", *zones).incidents()) is found


def test_two_of_five_lines_are_no_incident_of_their_group() -> None:
    lines = (*(line(name, "p1") for name in "abcde"), line("f"))

    assert set(World(lines).ticks("HHHHHH", "DDHHHH", "DDHHHH").incidents()) == {""}
    assert World(lines).ticks("HHHHHH", "DDDHHH", "DDDHHH").incidents() == ["p1"] * 3 + [""] * 3


def test_the_rest_of_a_struck_group_is_one_tick_faster_and_joins_the_incident() -> None:
    world = World(SIX).ticks("HHHHHH", "DDHHHH", "DDHHHH")

    world.tick("DDDHDH")

    assert (world.health("c"), world.health("e")) == (Health.DEGRADED, Health.HEALTHY)
    assert world.incidents() == ["p1", "p1", "p1", "", "", ""]


def test_an_incident_of_a_line_is_over_once_it_is_well() -> None:
    world = World().ticks("HHHH", "DDHH", "DDHH", "HDHH", "HDHH")
    assert world.incidents() == ["p1", "p1", "", ""]

    closed = world.tick("HDHH")

    assert world.incidents() == ["", "p1", "", ""]
    assert [one.rule for one in closed.changes if one.line == of("a")] == ["judge.recovered"]


def open_both() -> World:
    world = World().ticks("HHHH", "FFHH", "FFHH", "FFHH")
    assert world.gates() == "OOCC"
    return world


def test_one_line_of_a_group_is_on_trial_at_a_time_and_the_other_waits_without_doubling() -> None:
    world = open_both()
    for _ in range(6):
        world.tick("HHHH")
    assert world.gates() == "TOCC"
    assert world.ledger.rows[of("b")].breaker.reopens == 0
    seen = {world.gates()}

    for _ in range(30):
        world.tick("HHHH", calls=200)
        seen.add(world.gates())

    assert all(gates.count("T") <= 1 for gates in seen)
    assert world.gates() == "CCCC"
    assert world.ledger.rows[of("b")].breaker.reopens == 0


def test_a_line_that_waits_is_due_the_moment_the_other_trial_is_over() -> None:
    world = open_both()
    for _ in range(6):
        world.tick("HHHH")
    until_ms = world.ledger.rows[of("b")].breaker.until_ms
    assert world.ledger.deadline() not in (until_ms, world.now_ms)

    world.tick("FHHH")
    due = world.ledger.deadline()
    assert due is not None
    world.ledger.close(max(due, world.now_ms + 1))

    assert world.gates() == "OTCC"


def test_a_dead_line_whose_turn_it_were_keeps_nobody_waiting() -> None:
    world = open_both()

    for _ in range(6):
        world.tick("FHHH")

    assert world.gates() == "OTCC"


def test_lines_of_different_groups_try_at_once() -> None:
    world = World((line("a", "p1"), line("b", "p2"), line("c", "p1"), line("d", "p2"), line("e")))
    world.ticks("HHHHH", "FFHHH", "FFHHH", "FFHHH")

    for _ in range(6):
        world.tick("HHHHH")

    assert world.gates() == "TTCCC"


def test_a_checkpoint_keeps_who_waits_and_whose_incident_it_is() -> None:
    straight, thawed = open_both(), open_both()
    for _ in range(6):
        straight.tick("HHHH")
        thawed.tick("HHHH")
    thawed.ledger = Ledger.thaw(thawed.ledger.freeze())
    for zones in ("HHHH", "FHHH", "FHHH", "FHHH", "DDDH"):
        left, right = straight.tick(zones, calls=50), thawed.tick(zones, calls=50)
        assert left == right

    assert straight.ledger.freeze() == thawed.ledger.freeze()


def test_where_groups_do_not_act_incidents_are_named_and_nothing_else() -> None:
    rules = replace(RULES, shadowed=("groups",))
    world = World(SIX, rules).ticks("HHHHHH", "DDHHHH", "DDHHHH")

    world.tick("DDDHHH")

    assert world.incidents() == ["p1", "p1", "", "", "", ""]
    assert world.health("c") is Health.HEALTHY
