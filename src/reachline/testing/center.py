"""A real center in a test's own process: real sockets, a real journal, and agents that speak frames over gRPC.

The test decides what such an agent reports, so no line need exist.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx2

from reachline.center.reloading import Source
from reachline.center.run import Options, Started, run
from reachline.doors import reach
from reachline.errors import RemoteProtocolError
from reachline.model import Counts, Kind, Reading
from reachline.net import rpc
from reachline.testing.wait import until
from reachline.wire import frame
from reachline.wire.frame import Ack, Bye, Heartbeat, Hello, Hint, Plan, Report, Welcome, features_of

__all__ = ["ADDRESSES", "DOCUMENT", "FrameAgent", "RunningCenter", "dead", "good", "running_center"]

DOCUMENT: Final = """
preset: quick_recovery
judge: {tick: 500ms, heartbeat: 500ms}
patience: {lone_failed: 2}
circuit_breaker: {cooldown_seconds: 60}
clusters:
  payments:
    lines: {a: "tcp://10.0.0.1:443", b: "tcp://10.0.0.2:443", c: {to: "tcp://10.0.0.3:443", weight: 50}}
"""
"""Half-second ticks, so that a test sees several."""


ADDRESSES: Final = "center: {grpc: '127.0.0.1:0', http: '127.0.0.1:0', journal: JOURNAL}"
"""Free ports; JOURNAL stands for the test's own directory."""


def good(fresh_ok: int = 0) -> Reading:
    """A window of a line that is well."""
    counts = Counts(ok=50)
    return Reading(
        Kind.TCP, counts, sent=50, rounds=3, rounds_ok=3, answered=50, ewma_us=60_000, p50_us=60_000, p95_us=110_000,
        jitter_us=50_000, fresh_ok=fresh_ok,
    )  # fmt: skip


def dead() -> Reading:
    """A window of a line that answers nothing."""
    return Reading(Kind.TCP, Counts(late=50), sent=50, lost=50, rounds=3, rounds_ok=0)


class FrameAgent:
    """An agent as far as a center can tell: it speaks frames over a real stream and keeps what it is told."""

    def __init__(self, id_: str, attached: rpc.Attached, hello: Hello) -> None:
        self.id = id_
        self.hello = hello
        self.told: list[frame.Frame] = []
        self.ended = ""
        self.sequence = 0
        self._attached = attached

    async def listen(self) -> None:
        try:
            async for data in self._attached.frames():
                self.told.append(frame.decode(data))
        except (ConnectionError, RemoteProtocolError) as error:
            self.ended = str(error) or "lost"
        self.ended = self.ended or "over"

    async def send(self, message: frame.Frame | bytes) -> None:
        await self._attached.send(message if isinstance(message, bytes) else frame.encode(message), 5)

    async def report(self, readings: Mapping[str, Reading], **more: Any) -> int:
        """One heartbeat, all in one part; its sequence."""
        self.sequence += 1
        reports = tuple(Report(line=line, reading=reading) for line, reading in readings.items())
        message: dict[str, Any] = {
            "agent": self.id,
            "boot": self.hello.boot,
            "sequence": self.sequence,
            "reports": reports,
        } | more
        await self.send(Heartbeat(**message))
        return self.sequence

    async def reported(self, readings: Mapping[str, Reading], **more: Any) -> None:
        """One heartbeat, acknowledged."""
        sequence = await self.report(readings, **more)
        await until(lambda: self.acknowledged >= sequence, what=f"ack of {sequence}")

    @property
    def acknowledged(self) -> int:
        return max((one.sequence for one in self.of(Ack)), default=0)

    def of(self, kind: type) -> list[Any]:
        """All frames of one kind, in the order they came."""
        return [one for one in self.told if isinstance(one, kind)]

    @property
    def plan(self) -> Plan:
        plan: Plan = self.of(Plan)[-1]
        return plan

    @property
    def hint(self) -> tuple[str, ...]:
        hint: Hint = self.of(Hint)[-1]
        return hint.suspects

    @property
    def refused(self) -> str:
        welcome: Welcome = self.of(Welcome)[0]
        return welcome.refused

    @property
    def bye(self) -> str:
        bye: Bye = self.of(Bye)[-1]
        return bye.reason


class RunningCenter:
    """A center that answers, and what a test asks of it."""

    def __init__(self, started: Started, client: httpx2.AsyncClient, stop: asyncio.Event) -> None:
        self.http, self.grpc = started
        self.client = client
        self.stop = stop

    @asynccontextmanager
    async def agent(self, id_: str = "one", *, at: int = 0, **hello: Any) -> AsyncIterator[FrameAgent]:
        """An attached agent; it goes without a word unless the test says Bye."""
        attached = await rpc.attach(self.grpc[at], timeout=30)
        agent = FrameAgent(
            id_,
            attached,
            Hello(**{"release": "test", "agent": id_, "boot": "b1", "features": features_of(Kind)} | hello),
        )
        async with asyncio.TaskGroup() as tasks:
            listening = tasks.create_task(agent.listen())
            try:
                await agent.send(agent.hello)
                await until(lambda: agent.told, what="a welcome")
                yield agent
            finally:
                listening.cancel()
                await attached.close()

    async def get(self, path: str, **more: Any) -> httpx2.Response:
        return await self.client.get(path, **more)

    async def json(self, path: str) -> Any:
        answer = await self.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path: str, document: object) -> httpx2.Response:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        return await self.client.post(path, content=body)

    async def line(self, id_: str) -> Any:
        rows = (await self.json("/api/v1/lines"))["lines"]
        return next(row for row in rows if row["line"] == id_)

    async def metric(self, sample: str) -> float:
        text = (await self.get("/metrics")).text
        return next(float(row.rpartition(" ")[2]) for row in text.splitlines() if row.rpartition(" ")[0] == sample)


@asynccontextmanager
async def running_center(
    directory: Path, text: str = DOCUMENT, *, watch: bool = False, **more: Any
) -> AsyncIterator[RunningCenter]:
    """A center on free ports for the length of the block; its document is a file in `directory`, followed if `watch`."""
    text = (text if "\ncenter:" in text else f"{text}\n{ADDRESSES}\n").replace("JOURNAL", str(directory / "journal"))
    file = directory / "reachline.yaml"
    file.write_text(text)
    document = reach.read(text, name=str(file), environ={})
    options = Options(source=Source(file, text) if watch else None, **more)
    stop = asyncio.Event()
    ready: asyncio.Future[Started] = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(run(document, options, stop=stop, ready=ready.set_result))
        at = await ready
        async with httpx2.AsyncClient(base_url=at.http, timeout=30, trust_env=False) as client:
            try:
                yield RunningCenter(at, client, stop)
            finally:
                stop.set()
