"""What an agent reports is taken by a center, whatever its targets say."""

from __future__ import annotations

import asyncio
from random import Random

import msgspec
import pytest
from tests.agent.peer import line, probe

from reachline.agent.passive import Passive
from reachline.agent.prober import Prober
from reachline.agent.references import References
from reachline.agent.reports import Reporter
from reachline.agent.selfcheck import SelfCheck
from reachline.center.checks import check
from reachline.model import Failure, Kind
from reachline.testing.wait import until
from reachline.wire.frame import LinePlan, ProbePlan


def test_an_endless_error_does_not_cost_the_agent_its_stream() -> None:
    async def work() -> None:
        async with References((), gateway=lambda: "") as references, Prober(rng=Random(1)) as prober:
            passive = Passive()
            trust = SelfCheck(prober, passive, references)
            reporter = Reporter(prober, passive, trust, agent="v1", boot="b", now=0.0)
            prober.adopt((line("a", "tcp://127.0.0.1:1", probe(every=60_000)),), at_once=True)
            await until(lambda: "c/a" in prober.lines, what="the line")
            (probed,) = prober.lines["c/a"]
            probed.window.record(0.0, Failure.PROTOCOL, None, number=1)
            probed.error = "no such thing, " * 100

            beat = reporter.heartbeat(reporter.reports(["c/a"], 1.0), part=(1, 1), now=1.0)

            assert beat.reports[0].detail.error.startswith("no such thing")
            check(beat)

    asyncio.run(work())


def limited(plan: ProbePlan, slow_us: int, crawl_us: int = 500_000) -> LinePlan:
    return line("a", "tcp://127.0.0.1:1", msgspec.structs.replace(plan, slow_us=slow_us, crawl_us=crawl_us))


def test_a_plan_says_what_counts_as_slow_and_another_that_moves_it_loses_nothing() -> None:
    async def work() -> None:
        async with Prober(rng=Random(1)) as prober:
            plan = probe(every=60_000)
            prober.adopt((limited(plan, 200_000),), at_once=False)
            await until(lambda: "c/a" in prober.lines, what="the line")
            (before,) = prober.lines["c/a"]
            before.window.record(0.0, None, 250_000)
            prober.adopt((limited(plan, 300_000),), at_once=False)
            await until(lambda: before.window.slow_us == 300_000, what="the moved limit")
            before.window.record(0.0, None, 250_000)
            reading, _ = before.window.summary(0.0)

            assert prober.lines["c/a"] == (before,)
            assert (reading.fresh_ok, reading.fresh_slow, reading.fresh_crawl) == (2, 1, 0)

    asyncio.run(work())


@pytest.mark.parametrize("kept", [True, False])
def test_a_line_that_is_watched_keeps_its_window_where_only_its_limits_move(kept: bool) -> None:
    plan = ProbePlan(kind=Kind.PASSIVE, interval_ms=1_000, suspect_interval_ms=1_000)
    other = plan if kept else msgspec.structs.replace(plan, window=50)
    passive = Passive()
    passive.adopt((limited(plan, 200_000),))
    before = passive.watched["c/a"].window

    passive.adopt((limited(other, 300_000),))

    after = passive.watched["c/a"].window
    assert (after is before, after.slow_us, after.crawl_us) == (kept, 300_000, 500_000)
