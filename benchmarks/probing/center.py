"""A center for the benchmark's agent: it gives a plan and listens. Nothing it does is counted.

python -m benchmarks.probing.center SOCKET FILE     FILE is a `Work`; a `Heard` is printed once it is ended
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from pathlib import Path
from typing import Final

import msgspec
from benchmarks.probing.asking import Heard, Work

from reachline.abc import Transport
from reachline.model import Kind, Seconds
from reachline.net import rpc
from reachline.wire.frame import Ack, Frame, Heartbeat, LinePlan, Plan, ProbePlan, Welcome, decode, encode

__all__ = ["Center", "serve"]

_EVERY_MS: Final = 1_000
_SEND: Final[Seconds] = 10.0


class Center:
    """One agent's center. Written by its stream."""

    def __init__(self, given: Work) -> None:
        self._given = given
        self._has_plan = False
        self._beats: list[tuple[Seconds, Heartbeat]] = []

    async def attached(self, transport: Transport, _: str) -> None:
        """An agent came."""
        await self._say(transport, Welcome(release="bench", epoch=1))
        async for data in transport.frames():
            frame = decode(data)
            if isinstance(frame, Heartbeat):
                self._beats.append((time.monotonic(), frame))
                await self._say(transport, Ack(sequence=frame.sequence))
            elif not self._has_plan:
                self._has_plan = True
                await self._say(transport, self._plan())

    def heard(self) -> Heard:
        """Each line is reported at least once in a heartbeat, so that this is all that ended in one."""
        newest = self._beats[-1][0] if self._beats else 0.0
        reports = [report for at, beat in self._beats if at > newest - self._given.heartbeat for report in beat.reports]
        return Heard(
            ok=sum(report.reading.fresh_ok for report in reports),
            failed=sum(report.reading.fresh_failed for report in reports),
            late_us=tuple(report.detail.lateness_us for report in reports),
        )

    async def _say(self, transport: Transport, frame: Frame) -> None:
        await transport.send(encode(frame), _SEND)

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


async def serve(address: str, given: Work) -> Heard:
    """Until SIGTERM."""
    center, stop = Center(given), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    server = await rpc.serve([f"unix:{address}"], center.attached)
    print("ready", flush=True)
    await stop.wait()
    await server.close(0)
    return center.heard()


if __name__ == "__main__":
    result = asyncio.run(serve(sys.argv[1], msgspec.json.decode(Path(sys.argv[2]).read_bytes(), type=Work)))
    print(msgspec.json.encode(result).decode())
