"""What a process holds before and after, and a good line that must not notice what happens beside it."""

from __future__ import annotations

import asyncio
import gc
import resource
import sys
from pathlib import Path
from typing import Final, NamedTuple

from tests.net.conftest import Ended

from reachline.model import Clock

__all__ = ["GROWTH", "Held", "held", "settled", "undisturbed"]

GROWTH: Final = 8 << 20
"""Bytes that resident memory may move by itself (arenas, fragments). Each scenario makes hundreds of attempts: one buffer of
64 KiB kept by each were 10 MiB at least."""


class Held(NamedTuple):
    """Descriptors by number, blocks of the interpreter, bytes of resident memory."""

    files: frozenset[int]
    blocks: int
    memory: int


def held() -> Held:
    """What this process holds now, garbage left out."""
    gc.collect()
    files = frozenset(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Held(files, sys.getallocatedblocks(), pages * resource.getpagesize())


async def settled(before: Held) -> Held:
    """What is held once the servers of this process have noticed that everybody left."""
    after = held()
    for _ in range(200):
        if after.files <= before.files:
            break
        await asyncio.sleep(0.01)
        after = held()
    return after


def undisturbed(results: list[Ended], count: int) -> None:
    """Every attempt on the good line ended well, with the kernel's own round trip."""
    assert len(results) == count
    assert [result for result in results if result.failure is not None or result.late or result.lost] == []
    assert {result.clock for result in results} == {Clock.TCP_INFO}
    assert all(0 < result.rtt_us < 500_000 for result in results if result.rtt_us is not None)
