"""Whole incidents in `fast` mode: lines of one provider, all lines at once, a busy and a quiet return, a cluster near its limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import NamedTuple

from tests.core.modes import FAST, TICK_MS

from reachline.core.ledger import Ledger
from reachline.core.rules import BreakerRules
from reachline.model import Gate, Line, LineId, Outcome, Reading, Snapshot, Version
from reachline.testing import builders

FIVE = builders.vantages(5)
RULES = replace(FAST, breaker=BreakerRules(fail_milli=10))


class True_(NamedTuple):  # noqa: N801 - what is, not what is seen
    """How a line truly behaves: shares of attempts that fail and that are slow, and of calls that fail."""

    failing: float = 0.004
    slow: float = 0.02
    calls: float = 0.004


WELL = True_()
Behaviour = Callable[[str, int], True_]
"""A line's name and a second to how it behaves then."""


def line(name: str, provider: str = "", capacity: int | None = None) -> Line:
    return replace(builders.line(name), provider=provider, capacity=capacity)


class World:
    """Lines, what is true of them, and calls that follow the published weights."""

    def __init__(self, lines: Sequence[Line], behaves: Behaviour, *, rps: int, seed: int = 1) -> None:
        self.lines, self.behaves, self.rps, self.rng = lines, behaves, rps, Random(seed)
        self.now_ms = 0
        self.ledger = Ledger(builders.scope(), lines, RULES, vantages=frozenset(FIVE), version=Version(1, 0), now_ms=0)
        self.gates: list[dict[str, Gate]] = []
        self.loads: list[dict[str, float]] = []

    def run(self, seconds: int) -> World:
        for _ in range(0, seconds * 1_000, TICK_MS):
            self.now_ms += TICK_MS
            second = self.now_ms // 1_000
            self._call(second)
            for vantage in FIVE:
                said = [(one.id, self._reading(self.behaves(one.id[-1], second))) for one in self.lines]
                self.ledger.report(vantage, said, now_ms=self.now_ms - 100)
            self.ledger.close(self.now_ms)
            self.gates.append({one.id[-1]: self.ledger.rows[one.id].breaker.gate for one in self.lines})
        return self

    def _call(self, second: int) -> None:
        shares = self.shares()
        self.loads.append({name: self.rps * share for name, share in shares.items()})
        rows = []
        for name, share in shares.items():
            window = self.ledger.rows[LineId(f"payments/{name}")].breaker.window
            calls = self._drawn(self.rps * share * TICK_MS / 1_000)
            failed = self._failing(calls, self.behaves(name, second).calls)
            rows.append(Outcome(LineId(f"payments/{name}"), window=window, ok=calls - failed, failed=failed))
        for client, rest in (("c1", 0), ("c2", 1)):
            half = [row._replace(ok=(row.ok + rest) // 2, failed=(row.failed + 1 - rest) // 2) for row in rows]
            self.ledger.outcomes(client, half, now_ms=self.now_ms - 200)

    def _drawn(self, mean: float) -> int:
        return int(mean) + (self.rng.random() < mean - int(mean))

    def _failing(self, calls: int, share: float) -> int:
        if calls > 200:
            return max(0, round(self.rng.gauss(calls * share, (calls * share * (1 - share)) ** 0.5)))
        return sum(self.rng.random() < share for _ in range(calls))

    def _reading(self, true: True_) -> Reading:
        failed = sum(self.rng.random() < true.failing for _ in range(5))
        slow = sum(self.rng.random() < true.slow for _ in range(5 - failed))
        seen = builders.reading(ok=5 - failed, late=failed)
        return seen._replace(fresh_ok=5 - failed, fresh_failed=failed, fresh_slow=slow)

    def snapshot(self) -> Snapshot:
        return self.ledger.snapshot()

    def shares(self) -> dict[str, float]:
        total = sum(one.weight for one in self.snapshot().standings)
        return {one.line[-1]: one.weight / total for one in sorted(self.snapshot().standings, key=lambda one: one.line)}

    def opened(self) -> set[str]:
        return {name for gates in self.gates for name, gate in gates.items() if gate is Gate.OPEN}


THREE = (line("a"), line("b"), line("c"))


def test_a_providers_lines_that_fail_together_are_drained_as_one_incident_and_return_one_by_one() -> None:
    lines = (line("a", "p1"), line("b", "p1"), line("c", "p2"), line("d", "p2"))
    bad = True_(0.45, 0.1, 0.3)

    def behaves(name: str, second: int) -> True_:
        return bad if (name == "a" and 60 < second <= 160) or (name == "b" and 64 < second <= 160) else WELL

    world = World(lines, behaves, rps=900).run(84)
    assert (world.shares()["a"], world.shares()["b"]) == (0, 0), "within 20 s"
    assert [one.incident for one in sorted(world.snapshot().standings, key=lambda one: one.line)] == [
        "p1",
        "p1",
        "",
        "",
    ]
    assert world.snapshot().panic == ""

    world.run(600)

    assert max(list(gates.values()).count(Gate.HALF_OPEN) for gates in world.gates) == 1
    assert set(world.gates[-1].values()) == {Gate.CLOSED}
    assert world.opened() == {"a", "b"}


def test_where_every_line_loses_nothing_opens_and_panic_is_said() -> None:
    lossy = True_(0.08, 0.3, 0.04)

    for seed in (1, 2):
        world = World(THREE, lambda _, second: lossy if second > 60 else WELL, rps=900, seed=seed).run(240)

        assert world.opened() == set()
        assert world.snapshot().panic == "panic"
        assert max(world.shares().values()) - min(world.shares().values()) < 0.05


def test_a_busy_line_returns_in_its_time_though_some_of_its_calls_always_fail() -> None:
    def behaves(name: str, second: int) -> True_:
        return True_(1.0, 0, 1.0) if name == "a" and 200 < second <= 240 else WELL

    world = World(THREE, behaves, rps=30_000).run(520)

    row = world.ledger.rows[LineId("payments/a")]
    assert (row.breaker.gate, row.breaker.reopens) == (Gate.CLOSED, 0)
    assert row.usual.calls > 1_000


def test_a_quiet_line_that_still_fails_does_not_close() -> None:
    def behaves(name: str, second: int) -> True_:
        if name != "a" or second <= 60:
            return WELL
        return True_(1.0, 0, 1.0) if second <= 120 else True_(0.1, 0.02, 0.05)

    world = World(THREE, behaves, rps=4).run(900)

    assert Gate.CLOSED not in {gates["a"] for gates in world.gates[60:]}


def test_near_its_limit_a_cluster_moves_only_as_much_as_the_others_carry() -> None:
    lines = tuple(line(name, capacity=600) for name in "abc")
    slow = True_(0.06, 0.4, 0.01)

    world = World(lines, lambda name, second: slow if name == "a" and second > 60 else WELL, rps=1_500).run(300)

    assert max(load / 600 for loads in world.loads for load in loads.values()) <= 1.0
    assert world.shares()["a"] < 0.333 - 0.01
    assert world.opened() <= {"a"}


def test_the_rest_of_a_struck_group_is_one_tick_faster() -> None:
    lines = (*(line(name, "p1") for name in "abcd"), line("e"), line("f"))
    dead = True_(1.0, 0, 1.0)

    def behaves(name: str, second: int) -> True_:
        return dead if (name in "ab" and second > 60) or (name in "ce" and second > 64) else WELL

    world = World(lines, behaves, rps=90).run(66)

    health = {one.line[-1]: one.health.name for one in world.snapshot().standings}
    assert (health["c"], health["d"], health["e"]) == ("DEGRADED", "HEALTHY", "HEALTHY")


def test_where_all_lines_look_bad_and_calls_go_well_it_is_said_and_nothing_opens() -> None:
    sick = True_(0.08, 0.3, 0.004)

    world = World(THREE, lambda _, second: sick if 60 < second <= 120 else WELL, rps=900).run(110)

    assert (world.snapshot().panic, world.opened()) == ("observers", set())
    assert world.run(60).snapshot().panic == ""
