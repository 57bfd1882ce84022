"""What a line costs in memory, and whether a process that probes for long grows."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.probing.asking import Target
from benchmarks.probing.ours import Kept, job, nested
from benchmarks.probing.results import Drift, Memory

from reachline.core.window import NEWEST, Columns, Window
from reachline.model import Clock, Kind, Seconds
from reachline.net.engine import Job

__all__ = ["drift", "memory", "rss"]

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_KINDS: Final = ("tcp", "http", "dns", "icmp", "tls")
_EACH: Final = 8
"""Lines of each kind: their windows are full within the first quarter."""
_STEP: Final[Seconds] = 0.5
"""Between two attempts: a window of 200 holds 100 seconds, and none is too old."""
_LEAST_US, _SPAN_US, _STRIDE = 1_000, 9_000, 37
"""Round trips of a near region, another for every line and attempt: a number that two lines share would cost half."""
_READ_EVERY: Final[Seconds] = 0.2


def rss() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


def memory(lines: int) -> Memory:
    """Bytes a window: the growth of this process by the second `lines` of them. The first take what the imports left free."""
    first = _filled(lines)
    gc.collect()
    before = rss()
    second = _filled(lines)
    gc.collect()
    window = (rss() - before) / lines
    assert len(first) == len(second) == lines
    return Memory(lines=lines, window=window)


def _filled(lines: int) -> list[Window]:
    columns = Columns()
    windows = [Window(columns, Kind.TCP) for _ in range(lines)]
    for number in range(NEWEST):
        now = number * _STEP
        for place, window in enumerate(windows):
            rtt = _LEAST_US + (number * _STRIDE + place) % _SPAN_US
            window.record(now, None, rtt, clock=Clock.TCP_INFO, sent=1, number=number, burst=1)
    return windows


class Look(NamedTuple):
    """The process at one moment."""

    rss_kb: int
    files: int


def _look() -> Look:
    return Look(rss() >> 10, len(list(Path("/proc/self/fd").iterdir())))


async def drift(seconds: Seconds, target: Target) -> Drift:
    """All kinds at once for so long, and beside them lines that refuse and lines that never answer."""
    looks: list[Look] = []
    with _silent() as dead:
        made = _mixed(target, dead)
        kept = Kept("tcp", len(made), lambda token: engine.start(made[token], at=0.0))
        async with nested(kept.take) as engine:
            for start in made:
                engine.start(start, at=0.0)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                await asyncio.sleep(_READ_EVERY)
                kept.read()
                del kept.late[:]
                looks.append(_look())
    quarter = len(looks) // 4
    early, late = looks[quarter : 2 * quarter], looks[-quarter:]
    return Drift(
        seconds=seconds,
        probes=kept.ended,
        early_kb=round(statistics.median(look.rss_kb for look in early)),
        late_kb=round(statistics.median(look.rss_kb for look in late)),
        files_early=max(look.files for look in early),
        files_late=max(look.files for look in late),
    )


def _mixed(target: Target, dead: tuple[int, int]) -> list[Job]:
    """Lines of all kinds that answer, and of some that do not."""
    kinds = [kind for kind in _KINDS if any(target.ports(kind))]
    made = [
        job(kind, 0, target.address, target.ports(kind)[number % len(target.ports(kind))])
        for kind in kinds
        for number in range(_EACH)
    ]
    refusing, silent = dead
    made += [job("tcp", 0, target.address, refusing), job("http", 0, target.address, refusing)]
    made += [job("dns", 0, target.address, silent)] * _EACH
    return [_hasty(each, token) for token, each in enumerate(made)]


def _hasty(each: Job, token: int) -> Job:
    """Given up early, so that a short run sees many that are."""
    return replace(each, token=token, timeout=0.1, patience=0.1)


@contextlib.contextmanager
def _silent() -> Iterator[tuple[int, int]]:
    """(a port that refuses, a port that never answers) for as long as the block lasts."""
    with socket.socket() as bound, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unread:
        bound.bind(("127.0.0.1", 0))  # bound but not listening: nobody else can take it, and it refuses
        unread.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1], unread.getsockname()[1]
