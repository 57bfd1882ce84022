"""One cell in a process of its own: `python -m benchmarks.probing.cell NAME WORDS`; its figure is printed as JSON.

Whoever starts it has pinned it.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec
from benchmarks.probing import exporter, lab, longrun, ours, peers
from benchmarks.probing.asking import Asked, Paced, Sampled
from benchmarks.probing.bare import bare

__all__ = ["main"]


def sampled(asked: Asked) -> Sampled:
    """As many probes as a core does, by one side."""
    kind, target, seconds = asked.kind, asked.target, asked.seconds
    match asked.side:
        case "engine":
            return Sampled(*asyncio.run(ours.saturated(kind, target, seconds, is_profiled=asked.is_profiled)))
        case "c":
            return Sampled(peers.c_loop(kind, Path(asked.directory), target, seconds))
        case "fping":
            return Sampled(peers.fping(seconds))
        case "blackbox":
            process, port = asked.process, asked.port
            return Sampled(exporter.asked(kind, target, seconds, process=process, port=port, warm_up=ours.WARM_UP))
        case _:
            return Sampled(bare(kind, target, seconds))


def main(name: str, words: str) -> object:
    """The figure of one cell."""
    if name == "lab":
        return asyncio.run(lab.probed(msgspec.json.decode(words, type=lab.Wanted)))
    asked = msgspec.json.decode(words, type=Asked)
    match name:
        case "paced":
            run = ours.paced(asked.amount, asked.target, asked.seconds, is_profiled=asked.is_profiled)
            return Paced(*asyncio.run(run))
        case "memory":
            return longrun.memory(asked.amount)
        case "drift":
            return asyncio.run(longrun.drift(asked.seconds, asked.target))
        case _:
            return sampled(asked)


if __name__ == "__main__":
    print(msgspec.json.encode(main(*sys.argv[1:])).decode())
