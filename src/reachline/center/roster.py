"""Which agents there are: who may attach, who counts for the quorum, what each sequence says. No socket, no task, no clock."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from reachline.center.condition import Condition
from reachline.core.trust import FULL, QUARANTINED, Trust
from reachline.model import Kind, Locality, VantageId
from reachline.wire import live
from reachline.wire.frame import PROTOCOL, Heartbeat, Hello, Pacing, kinds_in

__all__ = ["FORGET_MS", "STRAY_MS", "Agent", "Arrival", "Expected", "Refusal", "Roster"]

FORGET_MS: Final = 3_600_000
"""A joined agent counts for the quorum this long after it fell silent. Longer than any restart or upgrade of a host, so that
a cut-off center does not come to believe that the few agents it still hears are all there are."""
STRAY_MS: Final = 60_000
"""One that was hardly there counts this long only: a mistyped id or a single foreign report must not keep a quorum from
those that stay. As long as a line may go unseen before it is blind."""
_PROVEN: Final = 3
"""Heartbeats that make an agent one that stays: as many as a trip takes."""
_MOST_JOINED: Final = 1_000
"""Agents that joined unnamed: far above what a document without `agents:` is for, a bound to what strangers can make us keep."""
_MOST_TEXT: Final = 120
"""Characters of an agent's id: it stands in labels, log lines and paths."""


class Arrival(Enum):
    """What a heartbeat's sequence says."""

    NEW = "new"
    DUPLICATE = "duplicate"
    STRANGER = "stranger"


class Refusal(NamedTuple):
    """Why an agent may not attach."""

    reason: str
    is_final: bool = True
    """No waiting mends it: who runs the agent must. False: it may come again."""


class Expected(NamedTuple):
    """An agent the document names. `token` empty: none is asked for."""

    locality: Locality = Locality()
    token: str = ""


@dataclass(slots=True, kw_only=True)
class Agent:
    """One agent's row; the roster writes it."""

    id: VantageId
    boot: str = ""
    release: str = ""
    locality: Locality = Locality()
    sources: tuple[str, ...] = ()
    session: int = 0
    """The stream that speaks for it now; 0: none."""
    last_ms: int | None = None
    sequence: tuple[int, int] = (0, 0)
    record: int = 0
    """Number of its newest evidence in the journal, over all its streams; nothing is acknowledged before that is on disk."""
    doubt: int = 0
    doubts: tuple[str, ...] = ()
    """Why it doubts itself, in its own words."""
    condition: Condition = field(default_factory=Condition)
    trusts: dict[str, int] = field(default_factory=dict)
    """By cluster, in 1/1 000 000: those where it is not trusted fully."""
    pacing: Pacing | None = None
    """How it keeps its limits, as it last said."""
    kinds: frozenset[Kind] = frozenset()
    """What it can probe…"""
    lacks: frozenset[Kind] = frozenset()
    """…and what its plan would have held if it could."""
    lines: int = 0
    heartbeats: int = 0
    duplicates: int = 0
    gaps: int = 0
    is_proven: bool = False
    """It counted before this start."""

    @property
    def stays(self) -> bool:
        """Whether it has been here long enough to be waited for."""
        return self.is_proven or self.heartbeats >= _PROVEN


class Roster:
    """All agents, expected and joined. Written by the owner's task."""

    def __init__(self, expected: Mapping[VantageId, Expected]) -> None:
        self._expected = dict(expected)
        self._agents: dict[VantageId, Agent] = {
            id_: Agent(id=id_, locality=row.locality) for id_, row in expected.items()
        }

    def expect(self, expected: Mapping[VantageId, Expected]) -> frozenset[VantageId]:
        """A new document names other agents; those it no longer allows are returned, to be told."""
        self._expected = dict(expected)
        for id_, row in expected.items():
            self._agents.setdefault(id_, Agent(id=id_)).locality = row.locality
        if not expected:
            return frozenset()
        gone = frozenset(self._agents.keys() - expected.keys())
        for id_ in gone:
            del self._agents[id_]
        return gone

    def refusal(self, hello: Hello) -> Refusal | None:
        """Why this agent may not attach, or None."""
        if hello.protocol[0] != PROTOCOL[0]:
            return Refusal(f"protocol {hello.protocol[0]} is not spoken here; this center speaks {PROTOCOL[0]}")
        if not hello.agent or len(hello.agent) > _MOST_TEXT or not hello.agent.isprintable():
            return Refusal(f"an agent id is 1…{_MOST_TEXT} printable characters")
        if not self._expected:
            full = self._no_room(VantageId(hello.agent))
            # A joined agent that leaves, or falls silent for an hour, makes room.
            return Refusal(full, is_final=False) if full else None
        row = self._expected.get(VantageId(hello.agent))
        if row is None:
            return Refusal(f"agent {hello.agent!r} is not in the document's agents")
        if row.token and not hmac.compare_digest(row.token.encode(), hello.token.encode()):
            return Refusal(f"agent {hello.agent!r} did not give its token")
        return None

    def _no_room(self, id_: VantageId) -> str:
        is_full = id_ not in self._agents and len(self._agents) >= _MOST_JOINED
        return f"{_MOST_JOINED} agents have joined; name them in the document's agents" if is_full else ""

    def foreign(self, id_: VantageId, now_ms: int) -> str:
        """An agent of another make reported over HTTP: it counts like one that attached. Why it may not, or empty text."""
        if self._expected and id_ not in self._expected:
            return f"agent {id_!r} is not in the document's agents"
        if refused := "" if self._expected else self._no_room(id_):
            return refused
        agent = self._agents.setdefault(id_, Agent(id=id_, release="foreign"))
        agent.last_ms = now_ms
        agent.heartbeats += 1
        return ""

    def token(self, id_: VantageId) -> str:
        """What the agent must show, or empty text."""
        row = self._expected.get(id_)
        return row.token if row else ""

    def localities(self) -> dict[VantageId, Locality]:
        """Where each agent stands."""
        return {id_: agent.locality for id_, agent in self._agents.items()}

    def attach(self, hello: Hello, session: int, now_ms: int) -> Agent:
        """The agent that `hello` names, spoken for by `session` from now on; the document's locality wins over its own."""
        id_ = VantageId(hello.agent)
        agent = self._agents.setdefault(id_, Agent(id=id_))
        if agent.boot != hello.boot:
            agent.sequence, agent.pacing = (0, 0), None
        expected = self._expected.get(id_)
        agent.boot, agent.release, agent.session, agent.last_ms = hello.boot, hello.release, session, now_ms
        agent.sources, agent.kinds = hello.sources, kinds_in(hello.features)
        agent.locality = (
            expected.locality
            if expected and str(expected.locality)
            else Locality(region=hello.locality[0], zone=hello.locality[1], sub_zone=hello.locality[2])
        )
        return agent

    def detach(self, agent: Agent, session: int, *, is_clean: bool) -> bool:
        """The stream ended. A clean end forgets a joined agent at once; True where that changed the members."""
        if agent.session != session:
            return False
        agent.session = 0
        if is_clean and not self._expected:
            return self._agents.pop(agent.id, None) is not None
        return False

    def heard(self, agent: Agent, session: int, heartbeat: Heartbeat, now_ms: int) -> Arrival:
        """Counts a heartbeat. Sequences rise by one from 1; a part repeats its round's number or has its own."""
        if agent.session != session or heartbeat.agent != agent.id or heartbeat.boot != agent.boot:
            return Arrival.STRANGER
        agent.last_ms = now_ms
        place = (heartbeat.sequence, heartbeat.part[0])
        if place <= agent.sequence:
            agent.duplicates += 1
            return Arrival.DUPLICATE
        if agent.sequence[0] and heartbeat.sequence > agent.sequence[0] + 1:
            agent.gaps += heartbeat.sequence - agent.sequence[0] - 1
        agent.sequence = place
        agent.heartbeats += 1
        if not heartbeat.replayed:
            agent.doubt, agent.doubts = heartbeat.doubt, heartbeat.doubts
            agent.condition.take(heartbeat, now_ms)
            agent.pacing = heartbeat.pacing or agent.pacing
        return Arrival.NEW

    def members(self, now_ms: int) -> frozenset[VantageId]:
        """Who counts for the quorum now: the document's agents, or else all that joined and are not forgotten."""
        if self._expected:
            return frozenset(self._expected)
        self._forget(now_ms)
        return frozenset(self._agents)

    def trust(self, cluster: str, trusts: Mapping[VantageId, Trust]) -> None:
        """How far a cluster's ledger trusts its vantages; those that are not named, fully."""
        for agent in self._agents.values():
            if found := trusts.get(agent.id):
                agent.trusts[cluster] = found.micro
            else:
                agent.trusts.pop(cluster, None)

    def deadline(self) -> int | None:
        """When the next silent agent will be forgotten, or None."""
        if self._expected:
            return None
        return min((until_ms for _, until_ms in self._silent()), default=None)

    def get(self, id_: VantageId) -> Agent | None:
        """The agent's row, or None."""
        return self._agents.get(id_)

    def adopt(self, members: Iterable[VantageId], now_ms: int) -> None:
        """After a restart: agents that counted before do so until they are forgotten anew."""
        for id_ in members:
            agent = self._agents.setdefault(id_, Agent(id=id_))
            agent.last_ms, agent.is_proven = now_ms, True

    def all(self) -> list[Agent]:
        """All agents by id."""
        return [self._agents[id_] for id_ in sorted(self._agents)]

    def rows(self, now_ms: int) -> list[live.AgentRow]:
        """All agents by id."""
        return [_row(self._agents[id_], now_ms) for id_ in sorted(self._agents)]

    def _silent(self) -> list[tuple[VantageId, int]]:
        """Agents that are away, and until when they count all the same."""
        away = [agent for agent in self._agents.values() if not agent.session and agent.last_ms is not None]
        return [(one.id, (one.last_ms or 0) + (FORGET_MS if one.stays else STRAY_MS)) for one in away]

    def _forget(self, now_ms: int) -> None:
        for id_, until_ms in self._silent():
            if now_ms >= until_ms:
                del self._agents[id_]


def _pacing(pacing: Pacing | None) -> live.PacingRow | None:
    if pacing is None:
        return None
    return {
        "rate": pacing.rate_milli / 1_000,
        "stretch": pacing.stretch_milli / 1_000,
        "skipped": dict(sorted(pacing.skipped.items())),
        "shed": pacing.shed,
        "limit": pacing.limit,
    }


def _row(agent: Agent, now_ms: int) -> live.AgentRow:
    state = "attached" if agent.session else "expected" if agent.last_ms is None else "silent"
    return {
        "agent": agent.id,
        "state": state,
        "locality": str(agent.locality),
        "release": agent.release,
        "sources": list(agent.sources),
        "age": None if agent.last_ms is None else round((now_ms - agent.last_ms) / 1000, 3),
        "doubt": agent.doubt,
        "doubts": list(agent.doubts),
        "trust": min(agent.trusts.values(), default=FULL) / FULL,
        "quarantined": sorted(cluster for cluster, micro in agent.trusts.items() if micro <= QUARANTINED),
        "vitals": agent.condition.rows(now_ms),
        "pacing": _pacing(agent.pacing),
        "lacks": sorted(kind.value for kind in agent.lacks),
        "lines": agent.lines,
        "heartbeats": agent.heartbeats,
        "duplicates": agent.duplicates,
        "gaps": agent.gaps,
    }
