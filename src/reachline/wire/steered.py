"""Clients that follow a center by xDS, as the HTTP contract writes them. Standard library only; durations are seconds."""

from __future__ import annotations

from typing import TypedDict

__all__ = ["AudienceRow", "SteeredDocument", "StreamRow", "TypeRow", "nobody"]


class TypeRow(TypedDict):
    """One type of resources on one stream."""

    type: str
    """`Cluster`, `ClusterLoadAssignment`, `Listener` or `RouteConfiguration`."""
    wildcard: bool
    names: list[str]
    """The first of those subscribed to…"""
    names_total: int
    """…and how many there are."""
    version: str
    """That it was told last; empty: none yet."""
    accepted: str
    """That it took last; empty: none yet."""
    current: bool
    """Whether it took the newest, but for what it refused."""
    waiting: bool
    """Whether an answer was sent that it neither took nor refused."""
    owed: int
    """Resources that are told once that is taken."""
    nacks: int
    error: str
    """Why it refused the last answer; empty: it did not."""
    refused: dict[str, str]
    """Resources as they are now that it does not take, with the reason."""


class StreamRow(TypedDict):
    """One client's stream."""

    node: str
    cluster: str
    """What it says it is part of."""
    kind: str
    """`envoy`, `grpc` or `own`."""
    locality: str
    release: str
    """What it says it is: `envoy 1.40.0`."""
    peer: str
    variant: str
    """`sotw` or `delta`."""
    age: float
    """Since the stream began…"""
    heard: float
    """…and since its last word."""
    told: int
    """Answers."""
    held: bool
    """Told nothing yet, for it was told more by a center before this one."""
    types: list[TypeRow]


class AudienceRow(TypedDict):
    """Clients that are told the same."""

    kind: str
    locality: str
    streams: int
    resources: dict[str, int]
    """How many, by type."""
    bytes: int
    """Of all their bodies."""


class SteeredDocument(TypedDict):
    """`GET /api/v1/xds`."""

    served: bool
    reason: str
    """Why it is not; or why the newest state could not be told."""
    settled: bool
    """Whether everybody is told the newest state."""
    streams: list[StreamRow]
    """Troubled ones first, `limit` of them at most."""
    streams_total: int
    troubled: int
    """Streams that refused something, or take nothing."""
    audiences: list[AudienceRow]
    notes: dict[str, list[str]]
    """By cluster: what data planes do without, and why."""


def nobody(reason: str) -> SteeredDocument:
    """Of a center that does not speak xDS."""
    return {
        "served": False, "reason": reason, "settled": False, "streams": [], "streams_total": 0, "troubled": 0,
        "audiences": [], "notes": {},
    }  # fmt: skip
