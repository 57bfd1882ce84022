"""`mode: fast` from an agent's single attempts to the decision: real windows of five vantages, and rules made from a document.

The world is a small one: attempts of lognormal round trips, SYNs lost and sent again after a second, and attempts that time out.
"""

from __future__ import annotations

import heapq
import math
from itertools import count
from random import Random
from statistics import median
from typing import NamedTuple

import pytest

from reachline.agent.probed import Probed
from reachline.core import words
from reachline.core.ledger import Ledger
from reachline.core.window import Columns, Window
from reachline.doors import reach
from reachline.model import Change, Failure, Gate, Health, Kind, LineId, Locality, Reading, VantageId, Version
from reachline.wire import frame
from reachline.wire.frame import Heartbeat, LinePlan, ProbePlan, Report

DOCUMENT = """
mode: fast
seed: 7
agents: {v1: {}, v2: {}, v3: {}, v4: {}, v5: {}}
clusters:
  shop:
    lines: {a: "tcp://a.example:443", b: "tcp://b.example:443"}
"""
A = LineId("shop/a")
WARM = 40.0
"""Seconds before anything happens: windows are full of healthy attempts."""


class Air(NamedTuple):
    """What an attempt meets: round trips in ms, chances of a SYN to be lost and of an attempt never to be answered."""

    usual: float = 60
    p95: float = 110
    loss: float = 0.004
    dead: float = 0.0


CLEAR = Air()
BROWN = Air(150, 350, 0.032)
BLACK = Air(dead=1.0)


class Vantage:
    """One agent's windows, one a line, with its rounds and heartbeats."""

    def __init__(self, name: str, lines: tuple[LinePlan, ...], rng: Random) -> None:
        self.name, self.rng, columns = VantageId(name), rng, Columns()
        self.probed: dict[LineId, Probed] = {}
        for line in lines:
            [plan] = line.probes
            window = Window(columns, plan.kind)
            window.slow_us, window.crawl_us = plan.slow_us, plan.crawl_us
            self.probed[LineId(line.line)] = Probed(line, plan, window, base=0)
        self.hurried = -1.0

    def attempt(self, air: Air, plan: ProbePlan) -> tuple[float, Failure | None, int | None, bool, int]:
        """Seconds it took, how it ended, its round trip, whether late, SYNs lost."""
        timeout, end = plan.timeout_ms / 1_000, (plan.timeout_ms + plan.patience_ms) / 1_000
        if self.rng.random() < air.dead:
            return end, Failure.TIMEOUT, None, True, 2
        sigma = math.log(air.p95 / air.usual) / 1.645
        rtt, lost = air.usual / 1_000 * math.exp(self.rng.gauss(0, sigma)), 0
        while self.rng.random() < air.loss:
            lost += 1
        took = rtt + 2**lost - 1
        if took > end:
            return end, Failure.TIMEOUT, None, True, lost
        return took, None, None if lost else round(rtt * 1_000_000), took > timeout, lost

    def report(self, now: float) -> list[Report]:
        found = [Report(line=line, reading=one.window.summary(now)[0]) for line, one in self.probed.items()]
        for one in self.probed.values():
            one.settle()
        return found


class World:
    """Five vantages and a center. `now` is in seconds."""

    def __init__(self, seed: int, text: str = DOCUMENT) -> None:
        document, rng = reach.read(text, name="story.yaml"), Random(seed)
        plans = {name: reach.plan(document, agent=name, locality=Locality(), number=1) for name in document.agents}
        self.vantages = [Vantage(name, plan.lines, Random(rng.random())) for name, plan in plans.items()]
        self.beat = next(iter(plans.values())).heartbeat_ms / 1_000
        self.ledger = Ledger(
            reach.lines(document, "shop")[0].scope,
            reach.lines(document, "shop"),
            reach.rules(document, "shop"),
            vantages=reach.vantages(document, "shop"),
            version=Version(1, 0),
            now_ms=0,
        )
        self.now, self.changes = 0.0, list[Change]()
        self.air: dict[tuple[VantageId, LineId] | LineId, Air] = {}
        self.left: dict[tuple[int, LineId], int] = {}
        self.appointed: dict[tuple[int, LineId], float] = {}
        self._events: list[tuple[float, int, object]] = []
        self._order = count()
        for place, vantage in enumerate(self.vantages):
            self._at(rng.uniform(0, self.beat), ("beat", place))
            for line in vantage.probed:
                vantage.probed[line].last = rng.uniform(-5, 0)
                self._appoint(place, line)
        self._at(self.ledger.rules.tick_ms / 1_000, ("tick",))
        self.until(WARM + rng.uniform(0, 2))
        assert self.state == (Health.HEALTHY, Gate.CLOSED)

    @property
    def state(self) -> tuple[Health, Gate]:
        row = self.ledger.rows[A]
        return row.judgement.health, row.breaker.gate

    def until(self, end: float) -> None:
        while self._events and self._events[0][0] <= end:
            self.now, _, event = heapq.heappop(self._events)
            self._do(event)  # type: ignore[arg-type]
        self.now = end

    def wait_for(self, gate: Gate | None = None, health: Health | None = None, *, most: float) -> float | None:
        """Seconds until A is so; None: it never was in that time."""
        began = self.now
        while self.now < began + most:
            self.until(self.now + 0.5)
            if self.state[1] is gate or self.state[0] is health:
                return self.now - began
        return None

    def _at(self, at: float, event: object) -> None:
        heapq.heappush(self._events, (at, next(self._order), event))

    def _do(self, event: tuple) -> None:  # type: ignore[type-arg]
        match event:
            case ("tick",):
                closed = self.ledger.close(round(1_000 * self.now))
                self.changes += closed.changes
                self._hint()
                self._at(self.now + self.ledger.rules.tick_ms / 1_000, event)
            case ("beat", place):
                self._beat(self.vantages[place])
                self._at(self.now + self.beat, event)
            case ("round", place, line, at) if at == self.appointed[place, line]:
                self._round(self.vantages[place], place, line)
            case ("hurry", place):
                self._beat(self.vantages[place])
            case ("end", place, line, number, (failure, rtt_us, late, lost)):
                self._ended(place, line, number, failure, rtt_us=rtt_us, late=late, lost=lost)

            case _:
                """An appointment that another one replaced."""

    def _ended(
        self,
        place: int,
        line: LineId,
        number: int,
        failure: Failure | None,
        *,
        rtt_us: int | None,
        late: bool,
        lost: int,
    ) -> None:
        """As the prober takes it: into the window, and told at once where it makes the line doubtful."""
        vantage, one = self.vantages[place], self.vantages[place].probed[line]
        was = one.window.rounds.last_ok, one.doubted
        one.window.record(
            self.now, failure, rtt_us, late=late, sent=1 + lost, lost=lost, number=number, burst=one.plan.burst
        )
        one.learn(self.now, answered=failure is None, lost=lost > 0)
        is_news = one.window.rounds.last_ok is not was[0] or was[1] < self.now < one.doubted
        if is_news:
            self._appoint(place, line)
        self.left[place, line] -= 1
        if not self.left[place, line] and one.window.is_telling and self.now - vantage.hurried >= 1:
            vantage.hurried = self.now
            self._at(self.now + 0.05, ("hurry", place))

    def _beat(self, vantage: Vantage) -> None:
        """As bytes, as it would travel."""
        beat = Heartbeat(agent=vantage.name, boot="b", sequence=1, reports=tuple(vantage.report(self.now)))
        got = frame.decode(frame.encode(beat))
        assert isinstance(got, Heartbeat)
        rows: list[tuple[LineId, Reading]] = [(LineId(one.line), one.reading) for one in got.reports]
        self.ledger.report(vantage.name, rows, now_ms=round(1_000 * self.now))

    def _round(self, vantage: Vantage, place: int, line: LineId) -> None:
        one, air = vantage.probed[line], self.air.get((vantage.name, line)) or self.air.get(line, CLEAR)
        one.number, one.last = one.number + 1, self.now
        self.left[place, line] = one.plan.burst
        for at in range(one.plan.burst):
            took, *rest = vantage.attempt(air, one.plan)
            self._at(self.now + 0.1 * at + took, ("end", place, line, one.number, tuple(rest)))
        self._appoint(place, line)

    def _hint(self) -> None:
        """As the center does after each tick."""
        for line, row in self.ledger.rows.items():
            suspect = row.judgement.health is not Health.HEALTHY
            for place, vantage in enumerate(self.vantages):
                if vantage.probed[line].hinted is not suspect:
                    vantage.probed[line].hinted = suspect
                    self._appoint(place, line)

    def _appoint(self, place: int, line: LineId) -> None:
        """The next round, one interval as it is now after the last."""
        vantage = self.vantages[place]
        one = vantage.probed[line]
        pause = one.every(1.0, self.now) * vantage.rng.uniform(0.9, 1.1)
        at = self.appointed[place, line] = max(self.now, (one.last or 0.0) + pause)
        self._at(at, ("round", place, line, at))


def test_a_black_hole_is_out_after_about_eight_seconds() -> None:
    seen = []
    for seed in range(10):
        world = World(seed)
        world.air[A] = BLACK
        seen.append(world.wait_for(Gate.OPEN, most=30))

    times = sorted(time for time in seen if time is not None)
    assert len(times) == 10
    assert (median(times) <= 8, times[-1] <= 10) == (True, True), times


def test_the_documents_brownout_degrades_after_about_ten_seconds_and_opens_nothing() -> None:
    seen, gates = [], set()
    for seed in range(8):
        world = World(seed)
        world.air[A] = BROWN
        seen.append(world.wait_for(health=Health.DEGRADED, most=60))
        world.until(WARM + 40)
        gates.add(world.state[1])

    times = sorted(time for time in seen if time is not None)
    assert len(times) == 8
    assert (median(times) <= 11, times[-1] <= 20) == (True, True), times
    assert gates == {Gate.CLOSED}


def test_its_reason_is_slow_answers() -> None:
    world = World(3)
    world.air[A] = BROWN._replace(loss=0.0)
    world.wait_for(health=Health.DEGRADED, most=60)

    [change] = [change for change in world.changes if change.after.health is Health.DEGRADED]
    assert change.rule == "vote.slow.degraded"
    facts = {fact.name: fact.value for fact in change.facts}
    assert facts["sum.slow"] == 1_000
    told = words.rule(change.rule, facts)
    assert told == "answers above the degraded limit added up over vantages and calls until the line counts as degraded"


@pytest.mark.parametrize("air", [BLACK, Air(loss=0.25, usual=460, p95=520), Air(loss=0.1)])
@pytest.mark.parametrize("seed", range(2))
def test_one_sick_vantage_of_five_moves_no_line(air: Air, seed: int) -> None:
    world = World(seed)
    world.air[VantageId("v3"), A] = air
    before = len(world.changes)
    world.until(WARM + 150)

    assert world.changes[before:] == []


def test_ten_minutes_of_health_moves_nothing() -> None:
    world = World(11)
    before = len(world.changes)
    world.until(WARM + 600)

    assert world.changes[before:] == []


def test_a_line_that_is_back_gets_its_traffic_back_in_steps_only() -> None:
    world = World(5)
    world.air[A] = BLACK
    world.wait_for(Gate.OPEN, most=30)
    world.air[A] = CLEAR

    assert world.wait_for(Gate.HALF_OPEN, most=80) is not None
    assert world.wait_for(Gate.CLOSED, most=30) is None, "without a call nothing closes"


def test_the_same_evidence_gives_the_same_bytes() -> None:
    worlds = World(2), World(2)
    for world in worlds:
        world.air[A] = BROWN
        world.until(WARM + 30)

    assert worlds[0].ledger.freeze() == worlds[1].ledger.freeze()
    assert {Kind.TCP} == {one.kind for one in worlds[0].vantages[0].probed.values()}
