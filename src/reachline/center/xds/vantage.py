"""HDS: a real Envoy becomes a vantage. The center tells it what to probe; what it reports votes as an agent's readings do.

It follows the roster's rules: where the document names agents, its node id must be among them and show that agent's token.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

from reachline.center.abilities import fitted
from reachline.center.checks import unfit
from reachline.center.evidence import BY_HDS
from reachline.center.hinting import hint
from reachline.center.roster import Agent, Arrival, Roster
from reachline.center.xds.admission import INTRODUCTION, bearer, first
from reachline.center.xds.planes import By, Plane, Planes
from reachline.center.xds.verdicts import Asking, Verdicts, asking
from reachline.errors import RemoteProtocolError
from reachline.model import VantageId, Version
from reachline.net.rpc import Call
from reachline.wire import frame, hds
from reachline.wire.frame import PROTOCOL, Heartbeat, Hello, Report, features_of

__all__ = ["Vantages"]

log = logging.getLogger("reachline.center.evidence")

_SHED: Final = 4
"""A report that comes in a quarter of the time it was asked for is not read."""


@dataclass(slots=True)
class _Session:
    """One Envoy's stream."""

    agent: Agent
    number: int
    plane: Plane
    verdicts: Verdicts
    asked: Asking | None = None
    made_of: tuple[object, ...] = ()
    sequence: int = 0
    taken_ms: int | None = None


class Vantages:
    """All Envoys that probe. `plan` is what an agent would be told, from the document in force; `document` that itself; `speaks` why
    who shows a certificate may not vote under a name, or empty text.
    """

    def __init__(
        self,
        planes: Planes,
        *,
        plan: Callable[[Agent, int], frame.Plan],
        document: Callable[[], object],
        speaks: Callable[[bytes, str], str] = lambda _, __: "",
    ) -> None:
        self._planes = planes
        self._speaks = speaks
        self._plan = plan
        self._document = document
        self._sessions: dict[VantageId, _Session] = {}
        self._numbers = 0
        self._hinted: Version | None = None
        self._doubted: frozenset[str] = frozenset()

    @property
    def _roster(self) -> Roster:
        return self._planes.board.roster

    async def stream(self, frames: AsyncIterator[bytes], call: Call) -> AsyncIterator[bytes]:
        """One call of `StreamHealthCheck`."""
        self._planes.welcome()
        introduced = hds.decode(await first(frames, most=INTRODUCTION))
        if not isinstance(introduced, hds.Introduced):
            raise RemoteProtocolError("the first message of a stream must be a health_check_request")
        session = self._begin(introduced, call)
        try:
            if (told := self._specifier(session)) is not None:
                yield told
            async for data in frames:
                await self._heard(session, data)
                if (told := self._specifier(session)) is not None:
                    yield told
        finally:
            self._end(session)

    def _begin(self, introduced: hds.Introduced, call: Call) -> _Session:
        teller = introduced.teller
        self._numbers -= 1  # apart from the streams of agents, which count up
        hello = Hello(
            protocol=PROTOCOL,
            release=teller.release + BY_HDS,
            agent=teller.id,
            boot=f"hds{self._numbers}",
            features=features_of(introduced.kinds),
            locality=(teller.locality.region, teller.locality.zone, teller.locality.sub_zone),
            token=bearer(call),
        )
        if why := self._speaks(call.certificate, teller.id) or self._refusal(hello):
            log.warning("data_plane_refused", extra={"node": teller.id, "by": "hds", "reason": why})
            raise PermissionError(why)
        board = self._planes.board
        self._planes.welcome()  # before it is an agent: others may have come meanwhile
        agent = self._roster.attach(hello, self._numbers, board.clock())
        plane = self._planes.joined(teller, By.HDS, call.peer)
        session = self._sessions[agent.id] = _Session(agent, self._numbers, plane, Verdicts())
        self._planes.owner.members()
        return session

    def _refusal(self, hello: Hello) -> str:
        known = self._roster.get(VantageId(hello.agent))
        if known and known.session and VantageId(hello.agent) not in self._sessions:
            return f"agent {hello.agent!r} is attached and speaks for itself"
        if wrong := unfit(hello):
            return wrong
        refused = self._roster.refusal(hello)
        return refused.reason if refused else ""

    def _end(self, session: _Session) -> None:
        agent = session.agent
        if self._sessions.get(agent.id) is session:
            del self._sessions[agent.id]
        # Like an agent that went without a word: whether it comes back, nobody knows.
        self._roster.detach(agent, session.number, is_clean=False)
        self._planes.left(session.plane)
        self._planes.owner.members()

    # -- what it is told -----------------------------------------------------------------------------------------

    def _specifier(self, session: _Session) -> bytes | None:
        """What it must probe from now on, where that is something else than before."""
        places, suspects = self._planes.places(), self._suspects()
        made_of = (self._document(), places, suspects)
        if session.made_of and all(a is b for a, b in zip(made_of, session.made_of, strict=True)):
            return None
        session.made_of = made_of
        agent = session.agent
        fit = fitted(self._plan(agent, session.number), agent.kinds, release=agent.release)
        found = asking(fit.plan, places.addresses(), suspects)
        agent.lines, agent.lacks = len({watched.line for watched in found.watched.values()}), fit.lacks
        self._planes.owner.show(agent.id, (*fit.excuses, *found.excuses))
        if session.asked is not None and (session.asked.asks, session.asked.every_ms) == (found.asks, found.every_ms):
            return None
        session.asked = found
        session.verdicts.ask(found, self._planes.board.clock())
        return hds.encode(found.asks, found.every_ms)

    def _suspects(self) -> frozenset[str]:
        """Lines to be looked at more often, those that are out among them; the very same while they are the same."""
        board = self._planes.board
        if self._hinted != board.version:
            hinted = hint(board)
            self._hinted, now = board.version, frozenset((*hinted.suspects, *hinted.open))
            self._doubted = self._doubted if now == self._doubted else now
        return self._doubted

    # -- what it says --------------------------------------------------------------------------------------------

    async def _heard(self, session: _Session, data: bytes) -> None:
        plane, asked = session.plane, session.asked
        now_ms = self._planes.heard(plane)
        self._check(session)
        every_ms = asked.every_ms if asked else 0
        if session.taken_ms is not None and now_ms - session.taken_ms < every_ms // _SHED:
            plane.shed += 1
            return
        told = hds.decode(data)
        if not isinstance(told, hds.Told):
            raise RemoteProtocolError("a health_check_request comes once in a stream")
        session.taken_ms = now_ms
        slices, unknown = session.verdicts.sort(told.verdicts, now_ms)
        plane.unknown += unknown
        for at, said in enumerate(slices, 1):
            self._report(session, session.verdicts.take(said, now_ms), ends_round=at == len(slices))
            # No report, however long, holds the loop for more than a slice.
            await asyncio.sleep(0)

    def _check(self, session: _Session) -> None:
        """Returns where the stream still speaks for its vantage."""
        agent = session.agent
        if self._roster.get(agent.id) is not agent:
            raise PermissionError(f"the document no longer names agent {agent.id!r}")
        session.sequence += 1
        beat = Heartbeat(agent=agent.id, boot=f"hds{session.number}", sequence=session.sequence)
        if self._roster.heard(agent, session.number, beat, self._planes.board.clock()) is Arrival.STRANGER:
            raise ConnectionError(f"another {agent.id!r} attached")

    def _report(self, session: _Session, reports: list[Report], *, ends_round: bool) -> None:
        session.plane.counted += sum(one.reading.fresh_ok + one.reading.fresh_failed for one in reports)
        record = self._planes.owner.report(session.agent.id, reports, ends_round=ends_round)
        session.agent.record = max(session.agent.record, record)
