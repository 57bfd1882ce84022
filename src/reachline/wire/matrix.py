"""The JSON of the mesh (`/api/v1/mesh`): every way between two agents, as its own end tells it, or else the other one."""

from __future__ import annotations

from typing import TypedDict

__all__ = ["MeshAgent", "MeshDocument", "MeshWay"]


class MeshAgent(TypedDict):
    """One agent of the mesh. `address` is where the others ask it, null where they cannot."""

    agent: str
    address: str | None


class MeshWay(TypedDict):
    """The way from `vantage` to `peer`; what ends in `_back` is the way from `peer` to `vantage`.

    `told_by` is the one of the two that said so, `age` how long ago. `state` is `heard`, `silent` (probes get no answer) or `stale`
    (who told it has said nothing for too long). Losses are probes of the last minutes, rises are seconds over what was usual;
    `losing` and `delayed` are named only once they are certain: `forward`, `reverse`, `both` or empty.
    """

    vantage: str
    peer: str
    told_by: str
    state: str
    age: float
    silent: float | None
    error: str
    rtt: float | None
    sent: int
    lost: int
    loss: float | None
    rise: float | None
    sent_back: int
    lost_back: int
    loss_back: float | None
    rise_back: float | None
    losing: str
    delayed: str
    drift: float | None
    """How fast the clock of the one that is asked runs against the other's, in ppm."""
    stepped: bool


class MeshDocument(TypedDict):
    """`GET /api/v1/mesh`."""

    enabled: bool
    every: float
    agents: list[MeshAgent]
    ways: list[MeshWay]
