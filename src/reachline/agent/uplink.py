"""The agent's side of its center: one stream at a time to the first address that takes us, heartbeats up, plans down.

Losing a center is ordinary: it is logged once, and tried again for as long as the agent runs. So is a refusal, unless the
center says that no waiting can mend it: that ends the agent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Final

from reachline.agent.outbox import Outbox
from reachline.agent.settings import AgentRun
from reachline.errors import ConfigError, Problem, RemoteProtocolError
from reachline.model import Seconds
from reachline.net.rpc import Attached, Credentials, attach, client_credentials
from reachline.net.waiting import within
from reachline.wire.frame import PROTOCOL, Ack, Bye, Frame, Hello, Hint, Mesh, Plan, Welcome, decode, encode

__all__ = ["Uplink", "credentials", "pause"]

log = logging.getLogger("reachline.agent")

_FIRST: Final[Seconds] = 0.2
"""A center that restarts is back in a second or two: the first tries are quick…"""
_LONGEST: Final[Seconds] = 10.0
"""…and one that stays away costs a try every ten seconds."""
_GOOD: Final[Seconds] = 60.0
"""A stream that held this long was no accident: the next loss begins with quick tries again."""
_FAREWELL: Final[Seconds] = 1.0
"""For the last words; with the rest of the end it stays below two seconds."""

_LOST: Final = (ConnectionError, TimeoutError, RemoteProtocolError)


def pause(failures: int, rng: Random) -> Seconds:
    """How long to wait after the n-th failure in a row: doubling from 0.2 s to 10 s, the upper half of it by chance, so that
    a thousand agents do not return in one moment.
    """
    ceiling = min(_LONGEST, _FIRST * 2.0 ** min(failures - 1, 10))
    return ceiling * rng.uniform(0.5, 1.0)


def credentials(settings: AgentRun) -> Credentials | None:
    """What TLS needs, where it is spoken; OSError names a file that cannot be read."""
    if not settings.speaks_tls:
        return None
    return client_credentials(ca=settings.ca, certificate=settings.certificate, key=settings.key)


class Uplink:
    """One agent's way to its centers. Written by the task in `run`; others call `wake` and `end`."""

    def __init__(
        self,
        settings: AgentRun,
        hello: Hello,
        outbox: Outbox,
        *,
        rng: Random,
        heard: Callable[[Plan | Hint | Mesh], None],
        attached: Callable[[], None],
    ) -> None:
        """`attached` is called when a center took us, before anything is sent; `heard` for each plan, hint and mesh."""
        self._settings, self._hello, self._outbox, self._rng = settings, hello, outbox, rng
        self._heard, self._attached = heard, attached
        self._wake = asyncio.Event()
        self._ending = asyncio.Event()
        self._reason = ""
        self._complaint = ""
        self.is_attached = False
        """Whether a center has us now."""

    def wake(self) -> None:
        """There is something in the outbox."""
        self._wake.set()

    def end(self, reason: str) -> None:
        """Say Bye, then `run` returns."""
        self._reason = reason
        self._ending.set()
        self._wake.set()

    async def run(self) -> None:
        """Stays attached until `end`. ConfigError where a center's refusal is final."""
        failures = 0
        while not self._ending.is_set():
            for address in self._settings.centers:
                began = asyncio.get_running_loop().time()
                reason = await self._session(address)
                if self._ending.is_set():
                    return
                self._complain(address, reason)
                self.is_attached = False
                if asyncio.get_running_loop().time() - began >= _GOOD:
                    failures = 0
            failures += 1
            await within(self._ending, pause(failures, self._rng))

    async def _session(self, address: str) -> str:
        """One stream from first to last frame; why it ended."""
        settings = self._settings
        try:
            trusted = credentials(settings)
            transport = await attach(address, timeout=settings.attach_timeout, credentials=trusted)
        except (*_LOST, OSError) as error:
            return str(error) or "nobody answers there"
        try:
            frames = transport.frames()
            await self._introduce(transport, frames)
            self._outbox.begin()
            self._attached()
            return await self._talk(transport, frames)
        except _LOST as error:
            return str(error) or "it does not answer in time"
        finally:
            await transport.close()

    async def _introduce(self, transport: Attached, frames: AsyncIterator[bytes]) -> None:
        limit = self._settings.attach_timeout
        await transport.send(encode(self._hello), limit)
        async with asyncio.timeout(limit):
            welcome = decode(await _first(frames))
        if not isinstance(welcome, Welcome):
            raise RemoteProtocolError(f"{transport.peer}: the first frame is a {type(welcome).__name__}, not a Welcome")
        if welcome.protocol[0] != PROTOCOL[0]:
            raise _refusal(
                transport.peer, f"the center speaks protocol {welcome.protocol[0]}, this agent {PROTOCOL[0]}"
            )
        if welcome.refused and welcome.final:
            raise _refusal(transport.peer, f"the center refuses this agent: {welcome.refused}")
        if welcome.refused:
            raise ConnectionError(f"{transport.peer}: no agent is let in now: {welcome.refused}")
        self._complaint, self.is_attached = "", True
        log.info(
            "center_attached", extra={"center": transport.peer, "release": welcome.release, "epoch": welcome.epoch}
        )

    async def _talk(self, transport: Attached, frames: AsyncIterator[bytes]) -> str:
        """Both directions until one of them ends; the reason."""
        reason = ""
        try:
            async with asyncio.TaskGroup() as tasks:
                speaking = tasks.create_task(self._speak(transport), name="speak")
                reason = await self._listen(frames)
                speaking.cancel()
        except* _LOST as errors:
            reason = str(errors.exceptions[0]) or "it takes nothing in time"
        return reason

    async def _listen(self, frames: AsyncIterator[bytes]) -> str:
        async for data in frames:
            frame = decode(data)
            if isinstance(frame, Bye):
                return frame.reason or "the center said Bye"
            self._take(frame)
        return "the center ended the stream"

    def _take(self, frame: Frame) -> None:
        match frame:
            case Ack():
                self._outbox.acknowledge(frame.sequence)
            case Plan() | Hint() | Mesh():
                self._heard(frame)
            case _:
                raise RemoteProtocolError(f"a center does not send a {type(frame).__name__}")

    async def _speak(self, transport: Attached) -> None:
        loop, limit = asyncio.get_running_loop(), self._settings.send_timeout
        while not self._ending.is_set():
            self._wake.clear()
            while (frame := self._outbox.take(loop.time())) is not None and not self._ending.is_set():
                await transport.send(frame, limit)
            await self._wake.wait()
        await transport.send(encode(Bye(reason=self._reason)), _FAREWELL)
        await transport.finish(_FAREWELL)

    def _complain(self, address: str, reason: str) -> None:
        """Once for each loss and each new reason, not once for each try."""
        fields = {"center": address, "reason": reason, "waiting": len(self._outbox)}
        if self.is_attached:
            log.warning("center_lost", extra=fields)
        elif reason != self._complaint:
            self._complaint = reason
            log.warning("center_not_reached", extra=fields)


async def _first(frames: AsyncIterator[bytes]) -> bytes:
    async for frame in frames:
        return frame
    raise ConnectionError("the center ended the stream before it said anything")


def _refusal(address: str, rule: str) -> ConfigError:
    return ConfigError(Problem(place=f"--center {address}", path="", value="", rule=rule))
