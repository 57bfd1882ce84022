"""Waiting with a limit: an event that is set counts, whatever the limit; a cancellation passes through."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from reachline.net.waiting import aside, within


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


def test_work_aside_is_done_in_another_thread_and_waited_for() -> None:
    seen: list[threading.Thread] = []

    asyncio.run(aside(lambda: seen.append(threading.current_thread()), name="aside"))

    assert [(each.name, each.daemon) for each in seen] == [("aside", True)]


def test_what_work_aside_raises_is_raised() -> None:
    def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(aside(work, name="aside"))


def test_work_aside_that_nobody_waits_for_any_more_ends_unheard() -> None:
    begun, free, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        free.wait(30)
        ended.set()

    async def main() -> None:
        waiting = asyncio.ensure_future(aside(work, name="aside"))
        while not begun.is_set():
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])

    asyncio.run(main())
    free.set()

    assert ended.wait(30)


AFTER_MAIN = """
import asyncio, threading
from reachline.net.waiting import aside

def serve():
    threading.main_thread().join()
    asyncio.run(aside(lambda: print("well"), name="aside"))

threading.Thread(target=serve).start()
"""


def test_work_aside_goes_on_after_the_main_thread_has_ended() -> None:
    done = subprocess.run([sys.executable, "-c", AFTER_MAIN], capture_output=True, text=True, timeout=60, check=False)

    assert (done.stdout, done.stderr) == ("well\n", "")
