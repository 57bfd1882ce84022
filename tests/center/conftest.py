"""Tests of the center run a real one: real sockets, a real journal in the test's directory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from reachline.testing.center import running_center

DEADLINE = 100.0


@pytest.fixture
def center(tmp_path: Path) -> Callable[..., object]:
    """`async with center(text, **options) as running:` starts one on free ports; it ends with the block."""
    return partial(running_center, tmp_path)


@pytest.fixture
def sync() -> Callable[[Awaitable[None]], None]:
    """Runs one test's coroutine to its end, bounded, and holds that it leaves no task behind."""

    def run_it(work: Awaitable[None]) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(DEADLINE):
                await work
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, f"tasks left: {left}"

        asyncio.run(bounded())

    return run_it
