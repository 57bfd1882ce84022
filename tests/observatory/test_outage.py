"""Strictly, the outage of one of three socks outbounds is told as Xray tells it: real proxies, and its ring restated beside it."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from random import Random

import pytest
from tests.passage.test_story import answering, faulty

from reachline.core.observing import ObserverRules, Told, observer
from reachline.core.observing.values import MS
from reachline.doors.outbounds import hops
from reachline.net.observing import Observing, Outlet
from reachline.testing import proxies
from reachline.testing.serving import serving
from reachline.testing.wait import until

pytestmark = pytest.mark.real

_SAMPLING = 4
_INTERVAL = 250 * MS
"""A window of a second: Xray's own are of minutes, and it counts in windows."""


def _fails(told: list[Told]) -> list[bool]:
    return [bool(each.reason) for each in told]


def test_strictly_half_is_alive_all_of_a_ring_is_death_and_one_pass_is_life(tmp_path: Path) -> None:
    async def main() -> dict[str, list[Told]]:
        told: list[Told] = []
        parts: dict[str, list[Told]] = {}

        async def during(part: str, is_over: str) -> None:
            """What is told of the third one until something like this was."""
            begin = len(told)

            def third() -> list[Told]:
                return [each for each in told[begin:] if each.tag == "s3"]

            await until(lambda: _OVER[is_over](third()), within=60, what=part)
            parts[part] = third()

        async with contextlib.AsyncExitStack() as stack:
            real = [stack.enter_context(proxies.microsocks(tmp_path)).port for _ in range(3)]
            third = await stack.enter_async_context(faulty(real[2]))
            web = await stack.enter_async_context(serving(answering))
            ports = (*real[:2], third.port)
            outlets = {f"s{n}": Outlet(hops(f"socks5h://127.0.0.1:{port}")) for n, port in enumerate(ports, 1)}
            rules = ObserverRules(
                is_burst=True, selectors=("s",), target=f"http://127.0.0.1:{web.port}/", interval=_INTERVAL,
                sampling=_SAMPLING, method="HEAD",
            )  # fmt: skip
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            running = tasks.create_task(Observing(observer(rules, Random(1)), outlets, told=told.append).run())
            await during("well", "a ring")
            third.every[0] = 2
            await during("half", "two rings")
            third.every[0] = 1
            await during("dead", "dead")
            third.every[0] = 0
            await during("back", "alive")
            running.cancel()
        parts["others"] = [each for each in told if each.tag != "s3"]
        return parts

    parts = asyncio.run(main())

    assert not any(_fails(parts["well"]))
    assert any(_fails(parts["half"]))
    assert all(each.alive for each in (*parts["well"], *parts["half"], *parts["others"]))
    # The ring still holds what passed before, until as many failed as it has slots.
    before = _fails(parts["half"] + parts["dead"])
    assert before[-_SAMPLING:] == [True] * _SAMPLING
    assert [each.alive for each in parts["dead"]] == [True] * (len(parts["dead"]) - 1) + [False]
    assert not any(all(before[at : at + _SAMPLING]) for at in range(len(before) - _SAMPLING))
    assert [each.alive for each in parts["back"]] == [not fails for fails in _fails(parts["back"])]


_OVER = {
    "a ring": lambda third: len(third) >= _SAMPLING,
    "two rings": lambda third: len(third) >= 2 * _SAMPLING,
    "dead": lambda third: third and not third[-1].alive,
    "alive": lambda third: third and third[-1].alive,
}
