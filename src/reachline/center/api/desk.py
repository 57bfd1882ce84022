"""What the HTTP door may see and ask for: the board to read, the owner to write through, and three questions to others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from reachline.center.api.entry import Entry
from reachline.center.board import Board
from reachline.center.drills import Drills
from reachline.center.evidence import Evidence
from reachline.center.gate import Gate
from reachline.center.mesh import MeshSeen
from reachline.center.orders import Orders
from reachline.center.owner import Owner
from reachline.center.stream import Stream
from reachline.doors.settings import Document
from reachline.model import LineId, Seconds
from reachline.store.audit import Audit
from reachline.wire.steered import SteeredDocument

__all__ = ["Desk"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """Everything an answer may rest on."""

    board: Board
    owner: Owner
    orders: Orders
    drills: Drills
    stream: Stream
    document: Callable[[], Document]
    explain: Callable[[LineId, Seconds | None], Awaitable[Mapping[str, object]]]
    """Of a known line, now or at a Unix time."""
    journal_figures: Callable[[], Mapping[str, float]]
    mesh: Callable[[], MeshSeen]
    """What agents found out of the ways between each other."""
    evidence: Evidence = field(default_factory=Evidence)
    """What data planes send."""
    xds: Callable[[str, bool], SteeredDocument]
    """Who follows by xDS: all, or one node's, or those in trouble."""
    followers: Callable[[], Mapping[str, int]]
    """How many streams follow, by kind of client."""
    gate: Gate = field(default_factory=lambda: Gate(None))
    """Who may join."""
    token: str = ""
    entry: Entry | None = None
    """Who may ask for what; None: whoever shows the token."""
    audit: Audit | None = None
    """Where it is kept what people did."""
    console: Path | None = None
    pages: Mapping[str, Callable[[], object]] = field(default_factory=dict)
    """More documents under `/api/v1/`, by name: what a demo has to tell."""
