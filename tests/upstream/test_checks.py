"""The runner under virtual time: when endpoints are asked, what is made of it, and that nothing is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from tests.upstream.virtual import run

from reachline.core.checking import After, Fault, Turn, Verdict
from reachline.core.checking_rules import CheckRules
from reachline.errors import ConfigError
from reachline.model import Health
from reachline.talk.checked import HttpCheck
from reachline.upstream.checks import Checks, Target

RULES = CheckRules(timeout_ms=500, interval_ms=1_000, unhealthy_threshold=2, healthy_threshold=2)
PASS, BAD = Verdict(), Verdict(Fault.ACTIVE, status=503)


class Peer:
    """An endpoint that answers what it is told to: a verdict after some time, None (our own fault), or never."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()
        self.answer: Verdict | None = PASS
        self.takes: float | None = 0.0
        self.asked: list[float] = []
        self.closed = 0

    async def ask(self) -> Verdict | None:
        loop = asyncio.get_running_loop()
        self.asked.append(round(loop.time(), 3))
        if self.takes is None:
            await loop.create_future()
        elif self.takes:
            await asyncio.sleep(self.takes)
        return self.answer

    def close(self) -> None:
        self.closed += 1


class World:
    """Checks of endpoints a, b, …, each with its peer, and all that was told."""

    def __init__(self, rules: CheckRules, has_traffic: Callable[[], bool]) -> None:
        self.peers: dict[str, Peer] = {}
        self.told: list[tuple[float, str, Health, Turn]] = []
        self.checks = Checks(
            "c", HttpCheck(), rules, seed=1, told=self._tell, has_traffic=has_traffic, questions=self._peer
        )

    def target(self, *keys: str) -> None:
        for key in keys:
            self.peers.setdefault(key, Peer())
        self.checks.replace([Target(key, "10.0.0.1", 80) for key in keys])

    def health(self, key: str) -> Health | None:
        check = self.checks.of(key)
        return None if check is None else check.health

    def _peer(self, target: Target) -> Peer:
        return self.peers[target.key]

    def _tell(self, key: str, after: After, verdict: Verdict, /) -> None:
        del verdict
        self.told.append((round(asyncio.get_running_loop().time(), 3), key, after.check.health, after.turn))


@asynccontextmanager
async def checking(
    rules: CheckRules = RULES, *keys: str, has_traffic: Callable[[], bool] = lambda: True
) -> AsyncIterator[World]:
    world = World(rules, has_traffic)
    world.target(*keys)
    task = asyncio.create_task(world.checks.run())
    try:
        yield world
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert asyncio.all_tasks() == {asyncio.current_task()}


async def until(second: float) -> None:
    loop = asyncio.get_running_loop()
    await asyncio.sleep(second - loop.time())


def test_the_first_check_is_at_once_and_the_period_is_the_interval_and_the_answers_time() -> None:
    async def main() -> None:
        async with checking(RULES, "a") as world:
            world.peers["a"].takes = 0.25
            await until(4)

            assert world.peers["a"].asked == [0.0, 1.25, 2.5, 3.75]
            assert world.told[0] == (0.25, "a", Health.HEALTHY, Turn.CHANGED)

    run(main())


def test_silence_ends_with_the_timeout_and_the_wait_begins_there() -> None:
    async def main() -> None:
        async with checking(RULES, "a") as world:
            await until(0.5)
            world.peers["a"].takes = None
            await until(3.6)

            assert world.peers["a"].asked == [0.0, 1.0, 2.5]
            assert world.told[1:] == [
                (1.5, "a", Health.HEALTHY, Turn.PENDING),
                (3.0, "a", Health.TIMEOUT, Turn.CHANGED),
            ]

    run(main())


def test_every_interval_is_waited_for_as_the_state_machine_says() -> None:
    rules = RULES._replace(
        unhealthy_threshold=3, healthy_threshold=3, unhealthy_interval_ms=400, unhealthy_edge_interval_ms=200,
        healthy_edge_interval_ms=600,
    )  # fmt: skip

    async def main() -> None:
        async with checking(rules, "a") as world:
            peer = world.peers["a"]
            await until(0.5)
            peer.answer = Verdict(Fault.NETWORK)
            await until(1.5)
            peer.answer = PASS
            await until(6)

            assert peer.asked == [0.0, 1.0, 1.2, 1.4, 1.8, 2.4, 3.0, 4.0, 5.0]

    run(main())


def test_until_somebody_calls_the_cluster_checks_are_rare() -> None:
    called: list[bool] = []

    async def main() -> None:
        async with checking(RULES, "a", has_traffic=lambda: bool(called)) as world:
            await until(100)
            called.append(True)
            await until(122.5)

            assert world.peers["a"].asked == [0.0, 60.0, 120.0, 121.0, 122.0]

    run(main())


def test_initial_jitter_spreads_the_first_checks() -> None:
    async def main() -> None:
        keys = [f"e{number}" for number in range(40)]
        async with checking(RULES._replace(initial_jitter_ms=800), *keys) as world:
            await until(0.9)

            first = [world.peers[key].asked[0] for key in keys]
            assert len(set(first)) > 30
            assert 0.0 < min(first) < 0.2
            assert 0.6 < max(first) < 0.8

    run(main())


def test_who_leaves_is_let_go_of_at_once_and_who_stays_keeps_its_state_and_its_time() -> None:
    async def main() -> None:
        async with checking(RULES, "a", "b") as world:
            world.peers["b"].takes = None
            await until(0.3)
            world.target("a", "c")
            await until(0.4)

            assert (world.peers["b"].closed, world.health("b")) == (1, None)
            assert (world.peers["a"].closed, world.health("a")) == (0, Health.HEALTHY)
            await until(1.4)
            assert (world.peers["a"].asked, world.peers["c"].asked) == ([0.0, 1.0], [0.3, 1.3])
            assert {key for _, key, _, _ in world.told} == {"a", "c"}

    run(main())


def test_one_that_left_unanswered_keeps_nobody_waiting() -> None:
    """Envoy 17836: a host removed before its first check left the cluster warming for ever."""

    async def main() -> None:
        async with checking(RULES, "a", "b") as world:
            world.peers["b"].takes = None
            await until(0.3)
            assert not world.checks.is_settled
            world.target("a")

            assert world.checks.is_settled

    run(main())


def test_an_endpoint_whose_checks_go_elsewhere_is_checked_anew() -> None:
    async def main() -> None:
        async with checking(RULES, "a") as world:
            await until(0.5)
            world.checks.replace([Target("a", "10.0.0.1", 8080)])

            assert world.health("a") is Health.UNKNOWN
            await until(0.6)
            assert (world.peers["a"].closed, world.health("a")) == (1, Health.HEALTHY)

    run(main())


def test_a_check_that_fails_for_a_fault_of_our_own_proves_nothing_and_is_made_again() -> None:
    async def main() -> None:
        async with checking(RULES, "a") as world:
            await until(0.5)
            world.peers["a"].answer = None
            await until(5.5)

            assert (world.health("a"), world.checks.voids) == (Health.HEALTHY, 5)
            assert len(world.told) == 1

    run(main())


def test_a_kept_connection_that_is_lost_fails_a_check_then_and_the_next_one_is_an_interval_later() -> None:
    async def main() -> None:
        async with checking(RULES, "a") as world:
            await until(0.4)
            world.peers["a"].lost.set()
            await until(2.6)

            assert world.told[1] == (0.4, "a", Health.HEALTHY, Turn.PENDING)
            assert world.peers["a"].asked == [0.0, 1.4, 2.4]

    run(main())


def test_an_immediate_failure_on_a_call_fails_at_once_and_the_next_check_is_when_it_was_due() -> None:
    async def main() -> None:
        async with checking(RULES, "a") as world:
            await until(0.4)
            world.checks.failed_by_call("a")
            world.checks.failed_by_call("gone")
            assert world.told[1] == (0.4, "a", Health.UNHEALTHY, Turn.CHANGED)
            await until(2.4)

            assert world.peers["a"].asked == [0.0, 1.0, 2.0]
            assert world.told[-1] == (2.0, "a", Health.HEALTHY, Turn.CHANGED)

    run(main())


def test_cancelling_closes_every_connection_and_leaves_no_task() -> None:
    async def main() -> dict[str, Peer]:
        async with checking(RULES, "a", "b", "c") as world:
            world.peers["b"].takes = None
            await until(0.2)
        return world.peers

    assert [peer.closed for peer in run(main()).values()] == [1, 1, 1]


def test_pending_ones_are_left_out_of_sums_until_their_first_result() -> None:
    async def main() -> None:
        async with checking(RULES) as world:
            world.peers["a"] = Peer()
            world.peers["a"].answer = BAD
            world.checks.replace([Target("a", "10.0.0.1", 80)], pending=True)
            check = world.checks.of("a")
            assert check is not None
            assert check.pending
            await until(0.1)

            assert world.told == [(0.0, "a", Health.UNHEALTHY, Turn.CHANGED)]

    run(main())


def test_rules_that_cannot_be_are_refused_with_their_place() -> None:
    with pytest.raises(ConfigError, match=r"clusters\.c\.health_check: interval_ms: must be a whole number from 1"):
        World(RULES._replace(interval_ms=0), lambda: True)
