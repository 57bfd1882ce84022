"""A whole agent at work: the real role, attached to a center that gives it a plan and listens. Ours is the agent's process alone.

The center is a few lines of frames: what a real one does with what it hears is not the agent's cost.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Final

import msgspec
from benchmarks.probing.longrun import rss
from benchmarks.probing.ours import quantile, spanned
from benchmarks.probing.results import Agent, Profile
from benchmarks.probing.target import Target

from reachline.abc import Transport
from reachline.agent.run import run
from reachline.agent.settings import checked
from reachline.model import Kind, Seconds
from reachline.net import rpc
from reachline.wire.frame import Ack, Frame, Heartbeat, LinePlan, Plan, ProbePlan, Welcome, decode, encode

__all__ = ["Heard", "Work", "work"]

_EVERY_MS: Final = 1_000
_SEND: Final[Seconds] = 10.0
_SETTLE: Final[Seconds] = 2.0
"""After the plan came: every line has its route and its first round by then."""


class Work(msgspec.Struct, frozen=True):
    """What the center tells its agent to do, once a second each line."""

    lines: int
    heartbeat: Seconds
    target: Target


class Heard(msgspec.Struct, frozen=True):
    """What the agent told: of every line but its first report, which is of no whole heartbeat."""

    ok: int
    failed: int
    reports: int
    late_us: tuple[int, ...]
    """Of each report, the latest start since the one before."""


# -- the agent's process --------------------------------------------------------------------------------------------------


async def work(lines: int, center: str, seconds: Seconds, *, is_profiled: bool) -> tuple[Agent, Profile | None]:
    """Runs the role until one heartbeat of all lines has gone, then for `seconds` that count."""
    settings = checked(id="bench", centers=(f"unix:{center}",), rate=float(2 * lines), seed=1)
    stop = asyncio.Event()
    running = asyncio.create_task(run(settings, stop=stop))
    before = rss()
    await asyncio.sleep(_SETTLE + seconds)
    grown = (rss() - before) / lines
    span = await spanned(seconds, is_profiled=is_profiled)
    stop.set()
    await running
    return Agent(lines=lines, core=span.cpu / span.wall, line_bytes=grown), span.profile


# -- the center's process -------------------------------------------------------------------------------------------------


class _Center:
    """One agent's center. Written by its stream."""

    def __init__(self, given: Work) -> None:
        self._given = given
        self._known: set[str] = set()
        self._ok = self._failed = 0
        self._late: list[int] = []

    async def attached(self, transport: Transport, _: str) -> None:
        """An agent came."""
        await self._say(transport, Welcome(release="bench", epoch=1))
        async for data in transport.frames():
            frame = decode(data)
            if isinstance(frame, Heartbeat):
                self._hear(frame)
                await self._say(transport, Ack(sequence=frame.sequence))
            elif not self._known:
                await self._say(transport, self._plan())

    def heard(self) -> Heard:
        """All of it."""
        return Heard(ok=self._ok, failed=self._failed, reports=len(self._late), late_us=tuple(self._late))

    async def _say(self, transport: Transport, frame: Frame) -> None:
        await transport.send(encode(frame), _SEND)

    def _hear(self, beat: Heartbeat) -> None:
        for report in beat.reports:
            if report.line in self._known:
                self._ok += report.reading.fresh_ok
                self._failed += report.reading.fresh_failed
                self._late.append(report.detail.lateness_us)
            self._known.add(report.line)

    def _plan(self) -> Plan:
        given = self._given
        probe = ProbePlan(kind=Kind.TCP, interval_ms=_EVERY_MS, suspect_interval_ms=_EVERY_MS)
        ports = given.target.ports("tcp")
        lines = tuple(
            LinePlan(
                line=f"bench/n{number}",
                target=f"tcp://{given.target.address}:{ports[number % len(ports)]}",
                probes=(probe,),
            )
            for number in range(given.lines)
        )
        return Plan(number=1, heartbeat_ms=round(1_000 * given.heartbeat), lines=lines)


async def _serve(address: str, given: Work) -> Heard:
    """Until SIGTERM."""
    center, stop = _Center(given), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    server = await rpc.serve([f"unix:{address}"], center.attached)
    print("ready", flush=True)
    await stop.wait()
    await server.close(0)
    return center.heard()


def share_late(heard: Heard, share: float) -> float:
    """A quantile of lateness over reports, in microseconds."""
    return quantile(sorted(heard.late_us), share)


if __name__ == "__main__":
    result = asyncio.run(_serve(sys.argv[1], msgspec.json.decode(Path(sys.argv[2]).read_bytes(), type=Work)))
    print(msgspec.json.encode(result).decode())
