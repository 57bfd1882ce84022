"""What is usual on a long haul reaches its agents: in their plans, and anew when it moves."""

from __future__ import annotations

import pytest

from reachline.center.usual import Usual
from reachline.core.ledger import Ledger
from reachline.doors import reach
from reachline.model import Kind, LineId, Locality, Reading, Scope, VantageId, Version
from reachline.testing import builders

HOUR, MINUTE, MS = 60, 60_000, 1_000
A = LineId("shop/a")
DOCUMENT = "mode: {mode}\nclass: {class_}\nagents: {{v1: {{}}}}\nclusters: {{shop: {{lines: {{a: 'tcp://h:1'}}}}}}"


class World:
    """One long line by one vantage, a report and a tick a minute."""

    def __init__(self, *, mode: str = "fast", class_: str = "long_haul") -> None:
        self.document = reach.read(DOCUMENT.format(mode=mode, class_=class_), name="u.yaml")
        self.now_ms = 0
        scope = Scope(cluster="shop")
        self.ledger = Ledger(
            scope,
            reach.lines(self.document, "shop"),
            reach.rules(self.document, "shop"),
            vantages=frozenset({VantageId("v1")}),
            version=Version(1, 0),
            now_ms=0,
        )
        self.usual = Usual({scope: self.ledger}, lambda: self.now_ms)

    def run(self, minutes: int, p50_ms: int) -> list[bool]:
        """At each tick, whether plans may have moved."""
        moved = []
        reading: Reading = builders.reading(ok=5, p50_us=p50_ms * MS, p95_us=p50_ms * MS, ewma_us=p50_ms * MS)
        for _ in range(minutes):
            self.now_ms += MINUTE
            self.ledger.report(VantageId("v1"), [(A, reading)], now_ms=self.now_ms)
            self.ledger.close(self.now_ms)
            moved.append(self.usual.has_moved())
        return moved

    @property
    def slow(self) -> tuple[int, int]:
        plan = reach.plan(self.document, agent="v1", locality=Locality(), number=1, usual=self.usual.of)
        [probe] = plan.lines[0].probes
        return probe.slow_us, probe.crawl_us


def test_agents_of_a_long_haul_count_by_its_own_multiples_once_they_are_known() -> None:
    world = World()
    world.run(2 * HOUR, 300)
    assert world.slow == (200 * MS, 500 * MS)

    world.run(2 * HOUR, 300)

    assert world.usual.of(A) == {Kind.TCP: 300 * MS}
    assert world.slow == (750 * MS, 1_500 * MS)


def test_a_short_line_keeps_the_limits() -> None:
    world = World()
    world.run(4 * HOUR, 40)

    assert world.usual.of(A) == {Kind.TCP: 40 * MS}
    assert world.slow == (200 * MS, 500 * MS)


def test_plans_are_made_anew_as_hours_end_and_not_at_every_tick() -> None:
    world = World()
    world.run(HOUR - 1, 300)
    moved = world.run(3 * HOUR, 300)

    assert 3 <= sum(moved) <= 6
    assert any(moved[2 * HOUR : 2 * HOUR + 2]), "the third hour is known now"


@pytest.mark.parametrize(("mode", "class_"), [("literal", "long_haul"), ("fast", "rpc")])
def test_where_nobody_counts_by_what_is_usual_no_plan_moves(mode: str, class_: str) -> None:
    world = World(mode=mode, class_=class_)

    assert not any(world.run(4 * HOUR, 150))


def test_a_line_that_nobody_knows_has_nothing_usual() -> None:
    assert World().usual.of(LineId("other/x")) == {}
