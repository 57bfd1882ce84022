"""`--rate` holds whatever the lines are like: what counts is the interval that applies now, and rounds wait their turn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

import pytest
from tests.agent.peer import line, probe, target

from reachline.agent.pace import Limits
from reachline.agent.probed import Probed
from reachline.agent.prober import Attempt, Prober
from reachline.testing.wait import until
from reachline.wire.frame import LinePlan

USUAL, SUSPECT = 10.0, 20.0
"""Attempts a second of one line of `probe()`: every 100 ms, and every 50 ms while suspect."""


def names(lines: Sequence[LinePlan]) -> tuple[str, ...]:
    return tuple(each.line for each in lines)


def test_intervals_stretch_by_what_each_line_asks_for_now() -> None:
    async def work() -> None:
        async with target() as good, Prober(rng=Random(1), limits=Limits(rate=100.0)) as prober:
            lines = [line(f"l{number}", good) for number in range(10)]

            prober.adopt(lines)
            assert prober.factor == pytest.approx(10 * SUSPECT / 100), "nobody is known to be well yet"
            await until(lambda: all(each.window.rounds.last_ok for (each,) in prober.lines.values()))
            assert prober.factor == pytest.approx(10 * USUAL / 100)
            prober.suspect(names(lines[:5]))
            assert prober.factor == pytest.approx((5 * SUSPECT + 5 * USUAL) / 100)
            prober.suspect(names(lines))
            assert prober.factor == pytest.approx(10 * SUSPECT / 100)
            prober.adopt(lines[:3])
            assert prober.factor == 1.0

    asyncio.run(work())


def test_no_more_attempts_start_than_the_rate_allows_also_while_every_line_fails() -> None:
    async def work() -> None:
        rate, wanted, began, ended = 200.0, 300, 0.0, [0.0]

        def over(_: Probed, attempt: Attempt) -> None:
            ended.append(asyncio.get_running_loop().time())

        async with Prober(rng=Random(1), ended=over, limits=Limits(rate=rate)) as prober:
            began = asyncio.get_running_loop().time()
            prober.adopt(
                [line(f"l{number}", "tcp://127.0.0.1:1", probe(burst=5)) for number in range(40)], at_once=True
            )
            await until(lambda: len(ended) > wanted)

        # 40 lines with 5 attempts each 50 ms ask for twenty times the rate; a tenth of a second and one round come at once.
        least = (wanted - 5) / rate - 0.1
        assert ended[wanted] - began >= least

    asyncio.run(work())


def test_without_a_rate_nothing_is_stretched() -> None:
    async def work() -> None:
        async with target() as good, Prober(rng=Random(1)) as prober:
            prober.adopt([line(f"l{number}", good, probe(burst=5)) for number in range(100)])

            assert prober.factor == 1.0

    asyncio.run(work())
