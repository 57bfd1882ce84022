"""`reachline agent` as a process: how it starts, how it ends, and what it says when it may not."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path

import pytest
from tests.agent.peer import Center, line, plan_of, target

from reachline.testing.wait import until

COMMAND = (sys.executable, "-m", "reachline", "agent")


@pytest.fixture
def center(tmp_path: Path) -> Center:
    return Center(f"unix:{tmp_path}/center.sock")


def go(work: Coroutine[None, None, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await work

    asyncio.run(bounded())


async def start(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *COMMAND, *arguments, "--log", "json", stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "REACHLINE_AGENT_TOKEN": "s3cret"},
    )  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_bye_and_code_zero_within_two_seconds(center: Center, number: signal.Signals) -> None:
    async def work() -> None:
        async with target() as good, center:
            center.plan = plan_of(line("good", good))
            process = await start("--id", "v1", "--center", center.address, "--zone", "az1")
            await until(lambda: center.reports("c/good"), within=20)
            loop = asyncio.get_running_loop()
            asked = loop.time()

            process.send_signal(number)

            _, said = await process.communicate()
            assert loop.time() - asked < 2
            assert process.returncode == 0
            assert center.byes
            events = [json.loads(each) for each in said.splitlines()]
            assert [each["event"] for each in events][-1] == "agent_stopped"
            assert b"s3cret" not in said

    go(work())

    assert (center.hellos[0].token, center.hellos[0].locality) == ("s3cret", ("", "az1", ""))


def test_a_final_refusal_is_said_once_and_ends_it_with_code_two(center: Center) -> None:
    center.refusal = "agent 'v1' is not in the document's agents"

    async def work() -> None:
        async with center:
            process = await start("--id", "v1", "--center", center.address)
            _, said = await process.communicate()
        told = [text for text in said.decode().splitlines() if not text.startswith("{")]
        assert process.returncode == 2
        assert told == [
            f"reachline: --center {center.address}: the center refuses this agent: agent 'v1' is not in the document's agents"
        ]

    go(work())


def test_a_center_that_is_away_is_waited_for(center: Center) -> None:
    async def work() -> None:
        process = await start("--id", "v1", "--center", center.address)
        assert process.stderr is not None
        while b"center_not_reached" not in await process.stderr.readline():
            pass
        async with center:
            await until(lambda: center.hellos, within=20)
            process.send_signal(signal.SIGTERM)
            await process.communicate()
        assert process.returncode == 0

    go(work())


def test_wrong_options_are_one_line_each_and_code_two() -> None:
    done = subprocess.run(
        [*COMMAND, "--id", "a b", "--center", "x", "--source", "eth0"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 2
    assert [text.split(":")[1].strip() for text in done.stderr.splitlines()] == ["--id", "--center", "--source"]
