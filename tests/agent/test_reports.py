"""What an agent reports is taken by a center, whatever its targets say."""

from __future__ import annotations

import asyncio
from random import Random

from tests.agent.peer import line, probe

from reachline.agent.passive import Passive
from reachline.agent.prober import Prober
from reachline.agent.references import References
from reachline.agent.reports import Reporter
from reachline.agent.selfcheck import SelfCheck
from reachline.center.checks import check
from reachline.model import Failure
from reachline.testing.wait import until


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
