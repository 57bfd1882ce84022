"""The JSON of the live stream (`/api/v1/ws`, `/api/v1/stream`): a snapshot, deltas by revision, a tick each second."""

from __future__ import annotations

from typing import Literal, TypedDict

from reachline.wire.view import ChangeRow, LineRow

__all__ = ["AgentRow", "LiveDelta", "LiveSnapshot", "LiveTick", "PacingRow", "VitalRow"]


class LiveSnapshot(TypedDict):
    """The first message of `/api/v1/ws` and of `/api/v1/stream`, and again whenever a slow reader was dropped.

    `revision` counts what the stream said; the next delta has `after` equal to it. `now` is the center's Unix time.
    """

    type: Literal["snapshot"]
    revision: int
    version: str
    now: float
    lines: list[LineRow]
    changes: list[ChangeRow]
    agents: list[AgentRow]
    panic: dict[str, str]


class LiveDelta(TypedDict):
    """What changed since revision `after`: whole rows by line id. One a second at most; decisions come at once."""

    type: Literal["delta"]
    after: int
    revision: int
    version: str
    now: float
    lines: list[LineRow]
    gone: list[str]
    changes: list[ChangeRow]
    agents: list[AgentRow] | None
    """All agents, where one of them came, went or reported anew; None: as before."""
    panic: dict[str, str]


class LiveTick(TypedDict):
    """Sent every second, so that silence means that the center is gone; `revision` is that of the newest delta."""

    type: Literal["tick"]
    revision: int
    version: str
    now: float


class VitalRow(TypedDict):
    """One thing out of the ordinary on an agent's host; `age` is since it was told, `whole` of how many where that is known."""

    name: str
    where: str
    value: int
    whole: int | None
    text: str
    age: float


class PacingRow(TypedDict):
    """How an agent keeps its limits: what is left out is its own doing, not a line's."""

    rate: float
    """Attempts a second that its lines ask for now, as stretched."""
    stretch: float
    """By how much all intervals are stretched; 1: not at all."""
    skipped: dict[str, int]
    """Rounds left out since it began, by cause: `late`, `overlap`, `network`, `source`, `ports`."""
    shed: int
    """Attempts left out since it began, for too many were under way."""
    limit: str
    """The bucket that held most rounds back lately; empty where none did."""


class AgentRow(TypedDict):
    """One agent as `GET /api/v1/agents` lists it. `state` is `attached`, `silent` or `expected`; `age` is since its last frame.

    `doubt` (0…7) divides its vote by 1 + doubt; `doubts` says why, in its own words.
    """

    agent: str
    state: str
    locality: str
    release: str
    sources: list[str]
    age: float | None
    doubt: int
    doubts: list[str]
    trust: float
    """How much its word counts where it counts least, 0.05…1: it falls by differing from the others."""
    quarantined: list[str]
    """Clusters in which that is 0.1 or less."""
    vitals: list[VitalRow]
    """What was out of the ordinary on its host in the last 15 minutes."""
    pacing: PacingRow | None
    """None: it did not say."""
    lacks: list[str]
    """Probe kinds that its lines want and its release does not know."""
    lines: int
    heartbeats: int
    duplicates: int
    gaps: int
