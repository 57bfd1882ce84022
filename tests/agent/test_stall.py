"""A loop that was held up longer than an interval: what is late is skipped and counted, and the rest goes on at its pace."""

from __future__ import annotations

import asyncio
import time
from random import Random

from tests.agent.peer import line, target

from reachline.agent.pace import Limits
from reachline.agent.prober import Prober
from reachline.model import Kind, Seconds
from reachline.testing.wait import until
from reachline.wire.frame import ProbePlan

EVERY: Seconds = 1.0
LINES = 200


def held_up(length: Seconds) -> None:
    """Synchronous work on the loop."""
    end = time.monotonic() + length
    while time.monotonic() < end:
        pass


def test_lines_whose_first_round_is_late_do_not_wait_for_each_other() -> None:
    """A round that was put off into the future must not keep all others from starting, or each of them does in its turn."""

    async def work() -> None:
        plan = ProbePlan(kind=Kind.TCP, interval_ms=round(1_000 * EVERY), suspect_interval_ms=round(1_000 * EVERY))
        limits = Limits(rate=10_000.0)  # more than they ask for: nothing waits for the rate
        async with target() as good, Prober(rng=Random(1), limits=limits) as prober:
            prober.adopt([line(f"l{number}", good, plan) for number in range(LINES)])
            await until(lambda: len(prober.lines) == LINES)
            held_up(2.2 * EVERY)

            probed = [each for kinds in prober.lines.values() for each in kinds]
            # One interval is enough for all of them; one at a time, half an interval each, they would take a hundred.
            await until(lambda: all(each.number for each in probed), within=20 * EVERY)

    asyncio.run(work())
