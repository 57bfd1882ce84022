"""A simulated network whose router hashes ports over equal paths, some of them dead: what is found, and how soon."""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reachline.core.paths import FAILS, SURVEY, End, Paths
from reachline.core.shares import Pattern

PORTS = range(32_768, 61_000)
GAP = 0.04
WAIT = 1.0
RTT = 0.02


def crc(parts: int, *bad: int) -> Callable[[int], bool]:
    return lambda port: zlib.crc32(port.to_bytes(2)) % parts in bad


def modulo(parts: int, *bad: int) -> Callable[[int], bool]:
    return lambda port: port % parts in bad


def whole(port: int) -> bool:
    return False


class World:
    """One line, five connects from ports of the kernel's own choice each `every`, and the tries that `Paths` asks for."""

    def __init__(
        self,
        dead: Callable[[int], bool],
        *,
        loss: float = 0.0,
        seed: int = 1,
        every: float = 2.0,
        in_use: Callable[[int], bool] = whole,
    ) -> None:
        self.dead, self.loss, self.every, self.in_use = dead, loss, every, in_use
        self.rng, self.paths, self.now = Random(seed), Paths(PORTS), 0.0
        self.tries = 0
        self.passed = -1.0
        self._next_round = 0.0
        self._ends: list[tuple[float, int, float | None, int, bool]] = []

    def run(self, until: float, *, named: bool = False) -> float:
        """Until then, or until the share has a name; when that was."""
        while self.now < until and not (named and self.paths.finding and self.paths.finding.parts):
            if self.now >= self._next_round:
                self._next_round += self.every
                for number in range(5):
                    self._connect(self._choice(is_odd=number % 2), None)
            if (port := self.paths.draw(self.now, self.rng)) is not None:
                assert port in PORTS
                self.tries += 1
                if self.in_use(port):
                    self.paths.ended(port, End.UNUSABLE, self.now)
                else:
                    self._connect(port, self.now)
            self._end()
            self.now += GAP
        return self.now

    def _choice(self, *, is_odd: int) -> int:
        """A port as the kernel chooses it."""
        while self.in_use(port := 2 * self.rng.randrange(PORTS.start // 2, PORTS.stop // 2 - 1) + is_odd):
            pass
        return port

    def _connect(self, port: int, began: float | None) -> None:
        # A regular connect sends three SYNs in its four seconds, a try one.
        lost = all(self.rng.random() < self.loss for _ in range(3 if began is None else 1))
        ok = not (lost or self.dead(port))
        took = RTT if ok else WAIT if began is not None else 4 * WAIT
        heapq.heappush(self._ends, (self.now + took, self.rng.getrandbits(30), began, port, ok))

    def _end(self) -> None:
        while self._ends and self._ends[0][0] <= self.now:
            at, _, began, port, ok = heapq.heappop(self._ends)
            if ok:
                self.passed = at
            if began is not None:
                end = End.ANSWERED if ok else End.VOID if self.passed < began else End.SILENT
                self.paths.ended(port, end, self.now)
            elif not ok and self.passed > self.now - 2 * self.every:
                self.paths.suspect(port, self.now)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("dead", "parts"),
    [
        (crc(8, 3), 8),
        (crc(4, 1), 4),
        (crc(2, 0), 2),
        (crc(8, 3, 5), 4),
        (modulo(8, 6), 8),
        (modulo(8, 5), 8),
    ],
    ids=["crc8", "crc4", "crc2", "crc8-two", "modulo8-even", "modulo8-odd"],
)
def test_one_dead_path_of_n_is_named_within_a_minute(dead: Callable[[int], bool], parts: int, seed: int) -> None:
    world = World(dead, seed=seed)

    took = world.run(60, named=True)

    assert took < 60
    assert world.paths.finding is not None
    assert world.paths.finding.parts == parts


@pytest.mark.parametrize("seed", range(6))
def test_one_of_sixteen_takes_a_little_longer_to_be_sure(seed: int) -> None:
    world = World(crc(16, 5), seed=seed)

    world.run(100)

    assert world.paths.finding is not None
    assert world.paths.finding.parts == 16


def test_a_dead_residue_is_named_as_a_bucket_sooner_than_by_its_share() -> None:
    plain, hashed = World(modulo(8, 6)), World(crc(8, 3))

    assert plain.run(60, named=True) < hashed.run(60, named=True)

    assert plain.paths.finding is not None
    assert plain.paths.finding.pattern == Pattern(8, 6)
    assert hashed.paths.finding is not None
    assert hashed.paths.finding.pattern is None


@pytest.mark.parametrize("bad", range(8))
def test_ports_in_use_do_not_bend_the_share(bad: int) -> None:
    """Nine even ports of ten belong to somebody else."""
    world = World(modulo(8, bad), in_use=lambda port: port % 2 == 0 and not crc(10, 3)(port))

    world.run(60, named=True)

    found = world.paths.finding
    assert found is not None
    assert found.parts == 8
    assert found.dead / found.tried == pytest.approx(1 / 8, abs=0.08)


@settings(max_examples=15)
@given(seed=st.integers(0, 10_000), loss=st.sampled_from([0.01, 0.05, 0.1, 0.2, 0.3]))
def test_ordinary_loss_is_never_named_a_dead_path(seed: int, loss: float) -> None:
    world = World(whole, loss=loss, seed=seed)

    took = world.run(120, named=True)

    assert took >= 120
    assert world.tries < 2 * SURVEY, "after a survey that found nothing there is peace"


@pytest.mark.parametrize("seed", range(3))
def test_a_dead_path_is_named_through_ordinary_loss(seed: int) -> None:
    world = World(crc(8, 3), loss=0.05, seed=seed)

    world.run(60, named=True)

    assert world.paths.finding is not None
    assert world.paths.finding.parts == 8


def test_a_line_without_a_dead_path_costs_no_try() -> None:
    world = World(whole)

    world.run(60)

    assert world.tries == 0
    assert world.paths.is_idle
    assert world.paths.due(world.now) is None


def test_a_single_lost_connect_costs_a_handful_of_tries() -> None:
    world = World(whole)
    world.run(1)

    world.paths.suspect(40_001, world.now)
    world.run(10)

    assert 1 <= world.tries <= 8
    assert world.paths.finding is None
    assert world.paths.is_idle


def test_a_repair_is_seen_within_half_a_minute_and_forgotten() -> None:
    world = World(crc(8, 3))
    named = world.run(60, named=True)

    world.dead = whole
    world.run(named + 30)

    assert world.paths.finding is None
    assert world.paths.is_idle


def test_a_finding_stays_while_the_path_stays_dead_at_little_cost() -> None:
    world = World(crc(8, 3))
    named = world.run(60, named=True)
    before = world.tries

    world.run(named + 120)

    assert world.paths.finding is not None
    assert world.paths.finding.parts == 8
    assert (world.tries - before) / 120 < 8, "a few known ports and their controls every twenty seconds"


def test_after_ten_minutes_all_is_asked_anew_and_the_old_answer_stays_until_then() -> None:
    world = World(crc(8, 3))
    named = world.run(60, named=True)
    world.dead = crc(8, 3, 5)

    world.run(named + 590)
    assert world.paths.finding is not None
    assert world.paths.finding.parts == 8
    while world.now < named + 700:
        world.run(world.now + 5)
        assert world.paths.finding is not None
        assert world.paths.finding.parts in (8, 4)

    assert world.paths.finding.parts == 4


def test_a_line_that_fails_as_a_whole_has_no_dead_path() -> None:
    world = World(whole)
    world.run(10)

    world.dead = crc(1, 0)
    world.run(120)

    assert world.paths.finding is None
    assert world.tries < 60


def test_a_port_that_we_cannot_use_is_not_asked_about_again() -> None:
    paths = Paths(PORTS)
    paths.suspect(40_000, 0.0)

    assert paths.draw(0.0, Random(1)) == 40_000
    paths.ended(40_000, End.UNUSABLE, 1.0)

    assert paths.finding is None
    assert paths.due(1.0) is None


def test_a_port_is_dead_only_after_it_failed_each_time() -> None:
    paths = Paths(PORTS)
    paths.suspect(40_000, 0.0)

    for number in range(FAILS - 1):
        assert paths.finding is None
        assert 40_000 in [paths.draw(0.0, Random(1)) for _ in range(6)]
        paths.ended(40_000, End.SILENT, 1.0 + number)

    assert paths.finding is not None
