"""A TCP proxy whose faults are knobs, turned live: the demo's broken lines and the tests' bad weather.

Each chunk a client sends counts as one request: requests here are far below one segment. Faults act on the way there;
answers pass untouched. The proxy knows no protocol above TCP and nothing of lines, agents or centers.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from dataclasses import dataclass, fields
from enum import Enum
from random import Random
from typing import Final, NamedTuple

from reachline.model import Ratio, Seconds
from reachline.net.hush import hush

__all__ = ["CALM", "Fate", "FaultProxy", "Knobs", "Verdict", "fate"]

_CHUNK: Final = 64 * 1024
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
"""SO_LINGER on with 0 s: close sends RST instead of FIN."""
_CONNECT_TIMEOUT: Final[Seconds] = 2.0
"""To reach the service behind: it is on the same machine, so this only bounds a service that is gone."""

_CLOSE_TIMEOUT: Final[Seconds] = 1.0
"""For connections that were just reset to be gone; what holds out ends with the loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """What is wrong with a line now. All zero: nothing."""

    delay: Seconds = 0.0
    """Added to every request."""
    jitter: Seconds = 0.0
    """Up to this much more, evenly spread."""
    unanswered: Ratio = 0.0
    """Share of requests that vanish; their connection stays open and says nothing."""
    reset: Ratio = 0.0
    """Share of requests answered by a reset of their connection."""
    refuse: bool = False
    """Nobody listens: new connections are refused, old ones are reset."""

    def __post_init__(self) -> None:
        for name in ("delay", "jitter"):
            if not 0 <= getattr(self, name) <= 60:
                raise ValueError(f"{name} must be 0…60 s, not {getattr(self, name)}")
        for name in ("unanswered", "reset"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be a share, 0…1, not {getattr(self, name)}")

    def __str__(self) -> str:
        turned = ((field.name, getattr(self, field.name)) for field in fields(self))
        return ", ".join(f"{name} {value}" for name, value in turned if value) or "no fault"


CALM: Final = Knobs()


class Verdict(Enum):
    """What becomes of one request."""

    THROUGH = "through"
    VANISH = "vanish"
    RESET = "reset"


class Fate(NamedTuple):
    """One request's verdict, and how long it is held before it."""

    verdict: Verdict
    held: Seconds


def fate(knobs: Knobs, rng: Random) -> Fate:
    """Decide one request. Always draws two numbers, so that a knob turned does not shift the luck of later requests."""
    luck, spread = rng.random(), rng.random()
    held = knobs.delay + knobs.jitter * spread
    if luck < knobs.reset:
        return Fate(Verdict.RESET, held)
    if luck < knobs.reset + knobs.unanswered:
        return Fate(Verdict.VANISH, held)
    return Fate(Verdict.THROUGH, held)


class FaultProxy:
    """Forwards `host:port` to `target`, as the knobs allow. One writer of the knobs, on the proxy's own loop."""

    def __init__(self, target: tuple[str, int], *, host: str = "127.0.0.1", port: int = 0, rng: Random) -> None:
        self._target = target
        self._host, self._port = host, port
        self._rng = rng
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._knobs = CALM
        self._turning = asyncio.Lock()  # guards _server: one turn ends before the next begins

    @property
    def knobs(self) -> Knobs:
        return self._knobs

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens; the same port for life, also while it refuses."""
        return self._host, self._port

    async def start(self) -> None:
        """Listen. OSError when the port is taken."""
        await self._listen()

    async def turn(self, knobs: Knobs) -> None:
        """Set all knobs at once; requests on their way keep the fate they have. Idempotent."""
        async with self._turning:
            self._knobs = knobs
            if knobs.refuse:
                await self._stop_listening()
            elif self._server is None:
                await self._listen()

    async def stop(self) -> None:
        """Close everything; nothing listens afterwards."""
        async with self._turning:
            await self._stop_listening()
        if self._serving:
            await asyncio.wait(self._serving, timeout=_CLOSE_TIMEOUT)

    async def _listen(self) -> None:
        # Backlog of 512: a storm of test clients must meet our faults, not the kernel's.
        self._server = await asyncio.start_server(self._accept, self._host, self._port, backlog=512, reuse_address=True)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _stop_listening(self) -> None:
        if self._server is None:
            return
        await hush(self._server)
        self._server = None
        for client in tuple(self._clients):
            _reset(client)

    def _accept(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, client))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        self._clients.add(client)

    async def _serve(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        try:
            await self._carry(reader, client)
        finally:
            self._clients.discard(client)
            await _close(client)

    async def _carry(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        """Join one client to the service behind, until either is done."""
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT):
                back_reader, back = await asyncio.open_connection(*self._target)
        except (OSError, TimeoutError):
            _reset(client)
            return
        try:
            async with asyncio.TaskGroup() as both:
                answers = both.create_task(_pump(back_reader, client))
                await self._requests(reader, client, back)
                answers.cancel()
        except* OSError:
            _reset(client)
        finally:
            await _close(back)

    async def _requests(
        self, reader: asyncio.StreamReader, client: asyncio.StreamWriter, back: asyncio.StreamWriter
    ) -> None:
        """Carry requests until the client is done or a reset ends it."""
        while chunk := await reader.read(_CHUNK):
            verdict, held = fate(self._knobs, self._rng)
            if held:
                await asyncio.sleep(held)  # not a poll: this is the delay that was asked for
            match verdict:
                case Verdict.THROUGH:
                    back.write(chunk)
                    await back.drain()
                case Verdict.RESET:
                    _reset(client)
                    return
                case Verdict.VANISH:
                    continue


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry answers until the service is done, then end the client's connection."""
    while chunk := await reader.read(_CHUNK):
        writer.write(chunk)
        await writer.drain()
    writer.close()


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def _reset(writer: asyncio.StreamWriter) -> None:
    """End a connection by RST, at once."""
    plain = writer.get_extra_info("socket")
    if plain is not None:
        with contextlib.suppress(OSError):
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    transport = writer.transport
    if isinstance(transport, asyncio.WriteTransport):
        transport.abort()
