"""What is to be said to one agent: the newest plan, hint and mesh, the highest acknowledgement. Never a growing queue.

Two tasks: `speak` sends and waits for nothing but the agent, `acknowledge` waits for the journal and sends nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from reachline.abc import Transport
from reachline.center.roster import Agent
from reachline.model import Seconds
from reachline.wire import frame
from reachline.wire.frame import Ack, Bye, Hint, Mesh, Plan

__all__ = ["SEND", "Session"]

SEND: Final[Seconds] = 10.0
"""An agent that takes no frame for a default heartbeat is gone or stuck; its stream is better opened anew."""


class Session:
    """One agent's stream. The owner's loop writes it; `speak` empties it, for as long as `acknowledge` runs beside it."""

    def __init__(self, agent: Agent, number: int, transport: Transport) -> None:
        self.agent = agent
        self.number = number
        self.is_clean = False
        """The agent said Bye."""
        self._transport = transport
        self._lines: frozenset[str] = frozenset()
        self._plan: Plan | None = None
        self._hint = Hint()
        self._hinted: Hint | None = self._hint
        self._mesh = self._meshed = Mesh()
        """Its part in the mesh, and what of it was said."""
        self._received = 0
        self._acknowledged = 0
        """Of what was received: told to the agent, or about to be."""
        self._said = 0
        self._ended = ""
        self._wake = asyncio.Event()
        self._arrived = asyncio.Event()

    def plan(self, plan: Plan) -> None:
        """Replaces a plan that was not sent yet; the hint is said again after it."""
        self._plan = plan
        self._lines = frozenset(line.line for line in plan.lines)
        self._hinted = None
        self._wake.set()

    def hint(self, hint: Hint) -> None:
        """Which lines to look at more often and which are out, as far as this agent watches them."""
        lines = self._lines
        self._hint = Hint(
            suspects=tuple(line for line in hint.suspects if line in lines),
            open=tuple(line for line in hint.open if line in lines),
        )
        if self._hint != self._hinted:
            self._wake.set()

    def mesh(self, part: Mesh) -> None:
        """Its part in the mesh; replaces one that was not sent yet."""
        self._mesh = part
        if part != self._meshed:
            self._wake.set()

    def received(self, sequence: int) -> None:
        """To be acknowledged once the journal has all evidence of this agent until now."""
        self._received = max(self._received, sequence)
        self._arrived.set()

    def end(self, reason: str) -> None:
        """Says Bye with the first reason given, and ends the stream."""
        self._ended = self._ended or reason
        self._wake.set()

    async def acknowledge(self, durable: Callable[[int], Awaitable[bool]]) -> None:
        """Until cancelled. What the journal lost waits for the next evidence: with that the whole ledger is on disk."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            sequence = self._received
            if await durable(self.agent.record):
                self._acknowledged = sequence
                self._wake.set()

    async def speak(self) -> None:
        """Sends what is to be said until the stream is to end; ConnectionError or TimeoutError when the agent is gone."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._say()
            if self._ended:
                await self._send(Bye(reason=self._ended))
                return

    async def _say(self) -> None:
        if plan := self._plan:
            self._plan = None
            await self._send(plan)
        if self._hint != self._hinted:
            self._hinted = self._hint
            await self._send(self._hint)
        if self._mesh != self._meshed:
            self._meshed = self._mesh
            await self._send(self._mesh)
        if self._acknowledged > self._said:
            self._said = self._acknowledged
            await self._send(Ack(sequence=self._said))

    async def _send(self, message: frame.Frame) -> None:
        await self._transport.send(frame.encode(message), SEND)
