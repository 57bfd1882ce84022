"""Nobody is well, or nothing is known: whatever the strategy, the document's first outbound gets nothing that nobody gave it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from random import Random

import pytest

from reachline.doors.observatory import read
from reachline.observatory.running import Running
from reachline.testing.parts import free_port
from reachline.testing.wait import until

_STRATEGIES = ("random", "roundRobin", "leastPing", "leastLoad")
_POLICIES = ("lastGood", "ordered", "spread", "block")


def _running(*, is_burst: bool, policies: bool = True, fallback: str = "") -> Running:
    """A balancer for each strategy and policy, over two proxies that are not there; one more over nobody at all."""
    proxies = [
        {"tag": tag, "protocol": "socks", "settings": {"servers": [{"address": "127.0.0.1", "port": free_port()}]}}
        for tag in ("s-a", "s-b")
    ]
    names = {f"{strategy}-{policy}": strategy for strategy in _STRATEGIES for policy in _POLICIES}
    more = {"fallbackTag": fallback} if fallback else {}
    balancers = [
        {"tag": name, "selector": ["s-"], "strategy": {"type": strategy}, **more} for name, strategy in names.items()
    ]
    balancers.append({"tag": "nobody", "selector": ["z-"], "strategy": {"type": "random"}})
    url = f"http://127.0.0.1:{free_port()}/"
    observatory = (
        {"burstObservatory": {"subjectSelector": ["s-"], "pingConfig": {"destination": url, "interval": "10s"}}}
        if is_burst
        else {"observatory": {"subjectSelector": ["s-"], "probeURL": url, "enableConcurrency": True}}
    )
    own = {name: {"allUnhealthy": name.partition("-")[2]} for name in names} if policies else {}
    document = {
        "outbounds": [{"tag": "first", "protocol": "freedom"}, *proxies, {"tag": "last", "protocol": "freedom"}],
        "routing": {"balancers": balancers},
        **observatory,
        "reachline": {"balancers": own},
    }
    return Running(read(json.dumps(document)), Random(1))


def _picked(running: Running) -> Mapping[str, set[str | None]]:
    return {tag: {running.pick(tag, frozenset()) for _ in range(20)} for tag in running.balancers()}


@pytest.mark.parametrize("is_burst", [False, True])
def test_before_anything_is_known_only_candidates_are_picked(is_burst: bool) -> None:
    async def main() -> None:
        found = dict(_picked(_running(is_burst=is_burst)))

        assert found.pop("nobody") == {None}
        assert all(picked <= {"s-a", "s-b"} for picked in found.values())

    asyncio.run(main())


@pytest.mark.parametrize("is_burst", [False, True])
@pytest.mark.parametrize("fallback", ["", "last"])
def test_when_all_are_dead_only_the_fallback_or_what_the_policy_says_is_picked(is_burst: bool, fallback: str) -> None:
    async def main() -> None:
        running = _running(is_burst=is_burst, fallback=fallback)
        task = asyncio.create_task(running.run())
        try:
            await until(
                lambda: [each.alive for each in running.shown() or ()] == [False, False], within=60, what="all dead"
            )

            found = dict(_picked(running))
        finally:
            task.cancel()
            await asyncio.wait((task,))

        assert found.pop("nobody") == {None}
        for tag, picked in found.items():
            policy = tag.partition("-")[2]
            wanted = (
                {"last"}
                if fallback
                else {"s-a", "s-b"}
                if policy == "spread"
                else {"s-a"}
                if policy == "ordered"
                else {None}
            )
            assert picked <= wanted, tag

    asyncio.run(main())
