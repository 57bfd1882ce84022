"""What balancers of a running document choose by: what was seen at the last look; strictly, everything at once."""

from __future__ import annotations

import asyncio
import json
from random import Random

from reachline.core.observing import Result
from reachline.doors.observatory import Machines, machines, read
from reachline.observatory.running import Running

_MS = 1_000_000
_DOCUMENT = json.dumps({
    "outbounds": [{"tag": tag, "protocol": "freedom"} for tag in ("s-a", "s-b")],
    "observatory": {"subjectSelector": ["s-"], "probeURL": "http://127.0.0.1:9/", "enableConcurrency": True},
    "routing": {"balancers": [{"tag": "b", "selector": ["s-"], "strategy": {"type": "leastPing"}}]},
})  # fmt: skip


def _asked(*, strict: bool) -> Machines:
    """`s-a` answered in 90 ms, `s-b` in 20."""
    made = machines(read(_DOCUMENT, strict=strict), now=0, rng=Random(1), holds=True)
    assert made.observer is not None
    for ask in made.observer.due(1):
        rtt = 90 * _MS if ask.tag == "s-a" else 20 * _MS
        made.observer.ended(ask.serial, Result(ok=True, rtt=rtt, status=204), 100 * _MS)
    return made


def test_a_result_counts_from_the_next_look() -> None:
    made = _asked(strict=False)
    assert made.held is not None
    assert made.balancers["b"].targets(101 * _MS) == ("s-a", "s-b"), "nobody is known to be well"

    made.held.look(101 * _MS)

    assert made.balancers["b"].targets(102 * _MS) == ("s-b",)


def test_strictly_a_result_counts_at_once() -> None:
    made = _asked(strict=True)

    assert made.held is None
    assert made.balancers["b"].targets(101 * _MS) == ("s-b",)


def test_an_outbound_is_kept_while_its_balancer_may_choose_it() -> None:
    async def main() -> None:
        running = Running(read(_DOCUMENT), Random(1))

        assert running.keeps("b", "s-a")
        assert not running.keeps("b", "other")
        assert not running.keeps("nobody", "s-a")
        running.override("b", "s-b")
        assert not running.keeps("b", "s-a")
        assert running.keeps("b", "s-b")

    asyncio.run(main())
