"""Agents in: one stream each, Hello first, then heartbeats up and plans, hints and acknowledgements down.

What a peer gets wrong ends its own stream and is counted; nobody else notices. Decides nothing about lines.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Final

from reachline import __version__
from reachline.abc import Transport
from reachline.center.abilities import fitted
from reachline.center.board import Board
from reachline.center.checks import check, unfit
from reachline.center.gate import Gate
from reachline.center.hinting import hint
from reachline.center.mesh import FEATURE, Meshing
from reachline.center.owner import Owner
from reachline.center.roster import Agent, Arrival, Refusal
from reachline.center.session import SEND, Session
from reachline.errors import RemoteProtocolError
from reachline.model import Seconds, VantageId
from reachline.net.rpc import certificate_of
from reachline.wire import frame
from reachline.wire.frame import PROTOCOL, Bye, Heartbeat, Hello, Plan, Welcome

__all__ = ["Intake"]

log = logging.getLogger("reachline.center.intake")

_HELLO: Final[Seconds] = 5.0
"""A peer that connects introduces itself at once; who does not holds a stream for nothing."""


_SETTLE: Final[Seconds] = 0.3
"""When a hundred agents come at once, their hundred parts of the mesh are made three times a second, not a hundred times."""


class Intake:
    """All agents' streams. `plan` makes an agent's plan from the document in force and the plan's number."""

    def __init__(
        self, *, board: Board, owner: Owner, plan: Callable[[Agent, int], Plan], mesh: Meshing, gate: Gate
    ) -> None:
        self._board = board
        self._owner = owner
        self._plan = plan
        self._mesh = mesh
        self._gate = gate
        self._sessions: dict[VantageId, Session] = {}
        self._meshed: set[VantageId] = set()
        """Those of them that know the mesh."""
        self._settling: asyncio.TimerHandle | None = None
        self._number = 0
        self._closing: Refusal | None = None

    async def attached(self, transport: Transport, peer: str) -> None:
        """One stream, from Hello to its end; whatever ends it, only this stream ends."""
        try:
            frames = transport.frames()
            hello = await self._introduced(frames)
            if wrong := unfit(hello):
                await self._refuse(transport, peer, Refusal(wrong))
                return
            admitted = self._gate.admitted(certificate_of(transport), hello.agent)
            if isinstance(admitted, Refusal):
                await self._refuse(transport, hello.agent, admitted, kind="identity")
                return
            if refused := self._closing or self._board.roster.refusal(hello):
                await self._refuse(transport, hello.agent, refused)
                return
            await self._serve(transport, frames, hello, peer, self._gate.left(admitted))
        except RemoteProtocolError as error:
            self._refused("malformed", peer, str(error))
        except (ConnectionError, TimeoutError) as error:
            log.info("agent_lost", extra={"peer": peer, "reason": str(error) or type(error).__name__})

    async def _introduced(self, frames: AsyncIterator[bytes]) -> Hello:
        async with asyncio.timeout(_HELLO):
            data = await anext(frames, b"")
        first = frame.decode(data)
        if not isinstance(first, Hello):
            raise RemoteProtocolError(f"the first frame must be a hello, not a {type(first).__name__.lower()}")
        return first

    async def _refuse(self, transport: Transport, who: str, refused: Refusal, *, kind: str = "hello") -> None:
        self._refused(kind, who, refused.reason)
        epoch = self._board.version.epoch
        welcome = Welcome(
            protocol=PROTOCOL, release=__version__, epoch=epoch, refused=refused.reason, final=refused.is_final
        )
        await transport.send(frame.encode(welcome), SEND)

    def _refused(self, kind: str, peer: str, reason: str) -> None:
        self._board.counts["frames_refused", kind] += 1
        log.warning("frame_refused", extra={"kind": kind, "peer": peer, "reason": reason})

    async def _serve(
        self, transport: Transport, frames: AsyncIterator[bytes], hello: Hello, peer: str, left: Seconds | None
    ) -> None:
        await transport.send(
            frame.encode(Welcome(protocol=PROTOCOL, release=__version__, epoch=self._board.version.epoch)), SEND
        )
        session = self._begin(transport, hello, peer)
        ending = left and asyncio.get_running_loop().call_later(left, session.end, "its certificate has ended")
        try:
            async with asyncio.TaskGroup() as tasks:
                speaking = tasks.create_task(self._speak(session), name=f"speak {session.agent.id}")
                listening = tasks.create_task(self._listen(session, frames), name=f"listen {session.agent.id}")
                keeping = tasks.create_task(
                    session.acknowledge(self._owner.disk.durable), name=f"keep {session.agent.id}"
                )
                await asyncio.wait((speaking, listening), return_when=asyncio.FIRST_COMPLETED)
                if not speaking.done() and not session.is_clean:
                    await asyncio.wait((speaking,), timeout=SEND)
                for task in (speaking, listening, keeping):
                    task.cancel()
        finally:
            if ending:
                ending.cancel()
            self._end(session)

    def _begin(self, transport: Transport, hello: Hello, peer: str) -> Session:
        self._number += 1
        agent = self._board.roster.attach(hello, self._number, self._board.clock())
        session = Session(agent, self._number, transport)
        if older := self._sessions.get(agent.id):
            older.end(f"another agent attached as {agent.id}")
        self._sessions[agent.id] = session
        self._mesh.attached(hello, peer)
        (self._meshed.add if FEATURE in hello.features else self._meshed.discard)(agent.id)
        self.mesh()
        self._give_plan(session)
        self._owner.members()
        log.info("agent_attached", extra={"agent": agent.id, "release": agent.release, "boot": agent.boot})
        return session

    def _end(self, session: Session) -> None:
        agent = session.agent
        if self._sessions.get(agent.id) is session:
            del self._sessions[agent.id]
            self._meshed.discard(agent.id)
        self._board.roster.detach(agent, session.number, is_clean=session.is_clean)
        self.mesh()
        self._owner.members()
        log.info("agent_detached", extra={"agent": agent.id, "is_clean": session.is_clean})

    async def _speak(self, session: Session) -> None:
        try:
            await session.speak()
        except (ConnectionError, TimeoutError, RemoteProtocolError) as error:
            log.info("agent_unreachable", extra={"agent": session.agent.id, "reason": str(error)})

    async def _listen(self, session: Session, frames: AsyncIterator[bytes]) -> None:
        """Until the agent says Bye, ends or breaks the stream."""
        reason = "the stream is over"
        try:
            async for data in frames:
                message = frame.decode(data)
                match message:
                    case Heartbeat():
                        self._heartbeat(session, message)
                    case Bye():
                        session.is_clean = True
                        break
                    case _:
                        raise RemoteProtocolError(f"a {type(message).__name__.lower()} is not for a center")
        except RemoteProtocolError as error:
            reason = str(error)
            self._refused("malformed", session.agent.id, reason)
        except (ConnectionError, TimeoutError) as error:
            log.info("agent_lost", extra={"agent": session.agent.id, "reason": str(error)})
        session.end(reason)

    def _heartbeat(self, session: Session, heartbeat: Heartbeat) -> None:
        check(heartbeat)
        agent, counts = session.agent, self._board.counts
        if heartbeat.agent != agent.id or heartbeat.boot != agent.boot:
            raise RemoteProtocolError(f"heartbeat of {heartbeat.agent!r} on the stream of {agent.id!r}")
        arrival = self._board.roster.heard(agent, session.number, heartbeat, self._board.clock())
        counts["heartbeats", arrival.value] += 1
        if arrival is Arrival.STRANGER:
            return
        if arrival is Arrival.NEW and heartbeat.replayed:
            counts["heartbeats_replayed", ""] += 1
            self._owner.show(agent.id, heartbeat.reports, replayed=True)
        elif arrival is Arrival.NEW:
            part, parts = heartbeat.part
            ends_round = part == parts and not heartbeat.urgent
            record = self._owner.report(agent.id, heartbeat.reports, doubt=heartbeat.doubt, ends_round=ends_round)
            agent.record = max(agent.record, record)
            self._mesh.heard(agent.id, heartbeat.mesh, self._board.clock())
        session.received(heartbeat.sequence)

    def replan(self) -> None:
        """A new document: every agent gets its new plan."""
        for session in self._sessions.values():
            self._give_plan(session)
        self.mesh()

    def _give_plan(self, session: Session) -> None:
        self._number += 1
        agent = session.agent
        fit = fitted(self._plan(agent, self._number), agent.kinds, release=agent.release)
        if fit.lacks - agent.lacks:
            kinds = sorted(kind.value for kind in fit.lacks)
            log.warning("plan_reduced", extra={"agent": agent.id, "release": agent.release, "kinds": kinds})
        agent.lines, agent.lacks = len(fit.plan.lines), fit.lacks
        session.plan(fit.plan)
        session.hint(hint(self._board))
        self._owner.show(agent.id, fit.excuses)

    def hint(self) -> None:
        """A publication: agents look more often at lines that are not healthy, and know which are out."""
        now = hint(self._board)
        for session in self._sessions.values():
            session.hint(now)

    def mesh(self) -> None:
        """Agents came, went or are reached elsewhere: each is told its part in the mesh, soon, and once for all that moves now."""
        if self._settling is None:
            self._settling = asyncio.get_running_loop().call_later(_SETTLE, self._tell_mesh)

    def _tell_mesh(self) -> None:
        self._settling = None
        knowing = [session for id_, session in self._sessions.items() if id_ in self._meshed]
        parts = self._mesh.parts([session.agent.id for session in knowing])
        for session in knowing:
            session.mesh(parts[session.agent.id])

    def end(self, id_: VantageId, reason: str) -> None:
        """One agent is told to go."""
        if session := self._sessions.get(id_):
            session.end(reason)

    def close(self, reason: str) -> None:
        """Every agent is told, and nobody new is let in."""
        # It comes back, or another in its place: no agent ends for that.
        self._closing = Refusal(reason, is_final=False)
        for session in self._sessions.values():
            session.end(reason)
