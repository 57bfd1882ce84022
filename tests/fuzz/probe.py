"""One input given to one parser, and what must hold: only declared errors, bounded time, bounded memory."""

from __future__ import annotations

import gc
import sys
import time
import tracemalloc
from typing import Final

from tests.fuzz.targets import Target

__all__ = ["BrokenError", "growth", "peak", "tried"]

SLOWEST: Final = 0.5
"""Seconds of our own CPU for one input of 4 KiB at most; the slowest of all takes a hundredth of it."""
ROOM: Final = 4 << 20
"""Bytes one input may have allocated at once…"""
ROOM_A_BYTE: Final = 512
"""…and as many for each of its bytes: a dict of short texts takes about 200."""


class BrokenError(AssertionError):
    """A parser did what it must not; the input is in the message as it is to be kept."""

    def __init__(self, target: Target, data: bytes, what: str) -> None:
        super().__init__(f"{target.name}: {what}\n  input: {data!r}")
        self.data = data


def tried(target: Target, data: bytes, *, slowest: float = SLOWEST) -> bool:
    """Whether the parser took the input; BrokenError where it raised what it does not declare, or took too long.

    Too long is so three times: a hypervisor may count what it took from us as ours. What took no longer by the clock did not
    by the processor, whose time is five times as dear to ask for.
    """
    begin = time.perf_counter()
    took = _took(target, data)
    if time.perf_counter() - begin > slowest:
        spent = min(_spent(target, data) for _ in range(3))
        if spent > slowest:
            raise BrokenError(target, data, f"{spent:.2f} s of CPU, at most {slowest} are bounded")
    return took


def _took(target: Target, data: bytes) -> bool:
    try:
        target.run(data)
    except target.errors:
        return False
    except Exception as error:
        raise BrokenError(target, data, f"{type(error).__name__}: {error}") from error
    return True


def _spent(target: Target, data: bytes) -> float:
    begin = time.thread_time()
    _took(target, data)
    return time.thread_time() - begin


def peak(target: Target, data: bytes) -> None:
    """BrokenError where the parser allocates more at once than its input is worth. Tracing makes it slow."""
    tracemalloc.start()
    try:
        tried(target, data)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    if most > ROOM + ROOM_A_BYTE * len(data):
        raise BrokenError(target, data, f"{most} bytes at once for {len(data)}")


def growth() -> int:
    """Blocks the interpreter holds now, garbage left out: a state that grows shows as their difference.

    What was there before may be set aside by `gc.freeze`, else each call looks at all that a whole run has imported.
    """
    gc.collect()
    return sys.getallocatedblocks()
