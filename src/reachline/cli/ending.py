"""How a command that runs until it is told to stop is told so: by signals, once, and with no harm by a second one."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["stopped_by_signals"]

_IMPATIENT: Final = (signal.SIGINT, signal.SIGHUP)
"""What a terminal sends. SIGTERM works again in the end, so that an interpreter that hangs there can be ended."""


@contextmanager
def stopped_by_signals(*numbers: signal.Signals) -> Iterator[asyncio.Event]:
    """Inside the block the signals set the event, however many come. After it a second Ctrl-C changes nothing any more.

    To be the last block of a process: between the loop's end and the interpreter's own, Python would die of the signal,
    with its exit code in place of ours.
    """
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in numbers:
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
            if number in _IMPATIENT:
                signal.signal(number, signal.SIG_IGN)
