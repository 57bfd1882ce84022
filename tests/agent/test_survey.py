"""A dead path among equal ones, behind a router that hashes ports: found by an agent and told to its center.

Shorter times than by default, so that it takes seconds; the hash by port is the one that connects of the kernel's own choice see
only half of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from tests.agent.peer import Center, agent, line, plan_of, settings

from reachline.agent.prober import Attempt, Prober
from reachline.model import Kind
from reachline.testing.far import serving
from reachline.testing.impair import Box, By, Profile, impaired
from reachline.testing.wait import until
from reachline.wire.frame import Ports, ProbePlan

pytestmark = [pytest.mark.real, pytest.mark.e2e]

DEAD, WHOLE, LOSSY = 1, 2, 3
PORT = 7
BUCKET = Profile(delay=0.002, buckets=8, bad=(5,), by=By.PORT)
CALM = Profile(delay=0.002)


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    profiles = {DEAD: BUCKET, WHOLE: CALM, LOSSY: Profile(delay=0.002, loss=0.03)}
    with impaired(profiles) as made, serving(made.inside, f"accept:{PORT}", directory=tmp_path):
        yield made


def test_one_of_eight_dead_paths_is_named_with_its_bucket(center: Center, box: Box) -> None:
    quick = ProbePlan(
        kind=Kind.TCP, interval_ms=500, suspect_interval_ms=200, timeout_ms=400, patience_ms=200, burst=5, window=200
    )
    center.plan = plan_of(
        *(line(f"l{number}", f"tcp://{box.address(number)}:{PORT}", quick) for number in (DEAD, WHOLE, LOSSY))
    )

    def newest(number: int) -> Ports | None:
        ports: Ports | None = center.reports(f"c/l{number}")[-1].detail.ports
        return ports

    def named() -> Ports | None:
        found = newest(DEAD)
        return found if found and found.parts else None

    async def work() -> None:
        async with center, agent(settings(center)):
            await until(lambda: center.reports(f"c/l{DEAD}"))
            ports = await until(named, within=30, what="its name")
            assert (ports.parts, ports.bucket, ports.shift) == (8, 5, 0)
            assert 0 < ports.dead < ports.tried
            assert not newest(WHOLE)
            other = newest(LOSSY)
            assert not other or not other.parts, "what is lost at random is no path"
            reading = center.reports(f"c/l{DEAD}")[-1].reading
            assert reading.rounds_ok == reading.rounds, "every round got through: only single ports did not"

    asyncio.run(work())


def test_tries_of_a_survey_are_no_evidence(box: Box) -> None:
    seldom = ProbePlan(
        kind=Kind.TCP, interval_ms=400, suspect_interval_ms=400, timeout_ms=400, patience_ms=200, burst=8, window=200
    )
    heard: list[Attempt] = []

    async def work() -> None:
        async with Prober(rng=Random(1), ended=lambda _, attempt: heard.append(attempt)) as prober:
            prober.adopt([line("l", f"tcp://{box.address(DEAD)}:{PORT}", seldom)], at_once=True)
            (probed,) = prober.lines["c/l"]
            await until(lambda: probed.paths and probed.paths.finding and probed.paths.finding.tried > 20, within=30)
            reading, _ = probed.window.summary(asyncio.get_running_loop().time())
            assert reading.counts.attempts == len(heard) <= 8 * probed.number
            assert box.counted(DEAD).forward.syns > reading.sent + 20

    asyncio.run(work())
