"""A whole agent at work: the real role in a process of its own, attached to `center`. Ours is the agent's process alone.

python -m benchmarks.probing.role WORDS     prints a `Worked`
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final

import msgspec
from benchmarks.probing.asking import Asked, Worked
from benchmarks.probing.longrun import rss
from benchmarks.probing.ours import spanned
from benchmarks.probing.results import Agent

from reachline.agent.run import run
from reachline.agent.settings import checked
from reachline.model import Seconds

__all__ = ["work"]

_SETTLE: Final[Seconds] = 2.0
"""After the plan came: every line has its route and its first round by then."""


async def work(asked: Asked) -> Worked:
    """Runs the role until one heartbeat of all lines has gone, then for `seconds` that count."""
    lines, seconds = asked.amount, asked.seconds
    free = float(2 * lines)  # more than asked for: what is measured is the work, not the limits
    settings = checked(
        id="bench", centers=(f"unix:{asked.directory}",), seed=1, rate=free, network_rate=free, source_rate=free
    )
    stop = asyncio.Event()
    running = asyncio.create_task(run(settings, stop=stop))
    before = rss()
    await asyncio.sleep(_SETTLE + seconds)
    grown = (rss() - before) / lines
    span = await spanned(seconds, is_profiled=asked.is_profiled)
    stop.set()
    await running
    return Worked(Agent(lines=lines, core=span.cpu / span.wall, line_bytes=grown), span.profile)


if __name__ == "__main__":
    print(msgspec.json.encode(asyncio.run(work(msgspec.json.decode(sys.argv[1], type=Asked)))).decode())
