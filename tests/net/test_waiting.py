"""Waiting with a limit: an event that is set counts, whatever the limit; a cancellation passes through."""

from __future__ import annotations

import asyncio

import pytest

from reachline.net.waiting import within


@pytest.mark.parametrize("limit", [-1.0, 0.0, 30.0])
def test_an_event_that_is_set_counts_whatever_the_limit(limit: float) -> None:
    event = asyncio.Event()
    event.set()

    assert asyncio.run(within(event, limit)) is True


@pytest.mark.parametrize("limit", [-1.0, 0.0, 0.01])
def test_the_limit_passes_where_nothing_happens(limit: float) -> None:
    assert asyncio.run(within(asyncio.Event(), limit)) is False


def test_the_wait_ends_with_the_event() -> None:
    async def work() -> bool:
        event = asyncio.Event()
        waiting = asyncio.ensure_future(within(event, 30.0))
        asyncio.get_running_loop().call_soon(event.set)
        return await waiting

    assert asyncio.run(work()) is True


def test_a_cancellation_passes_through() -> None:
    async def work() -> None:
        waiting = asyncio.ensure_future(within(asyncio.Event(), 30.0))
        asyncio.get_running_loop().call_soon(waiting.cancel)
        await waiting

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(work())
