"""What data planes (Envoys, gRPC clients) may send on the agents' port, where the extra `xds` is installed; nothing where it is not.

The rest of the center sees these values only: protobuf is loaded behind them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from reachline.center.board import Board
from reachline.center.owner import Owner
from reachline.center.roster import Agent
from reachline.model import LineId
from reachline.net.rpc import Service
from reachline.wire.frame import Plan

__all__ = ["BY_HDS", "Evidence", "Told", "offered"]

log = logging.getLogger("reachline.center")

BY_HDS: Final = " by HDS"
"""How the release of an Envoy ends that is a vantage."""
Told = tuple[str, int, str]
"""Who told of a line, when (ms of the center's clock), and what, in words."""
Addresses = Mapping[LineId, Sequence[tuple[str, int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The services by full method name, and what came by them."""

    services: Mapping[str, Service] = field(default_factory=dict)
    rows: Callable[[], list[dict[str, object]]] = list
    """Every data plane that sends evidence, by node and protocol."""
    told: Callable[[LineId], list[Told]] = lambda _: []
    """What of a line lately; advice for people."""
    figures: Callable[[], Mapping[tuple[str, str], int]] = dict
    """Totals by name and protocol, for `/metrics`."""
    close: Callable[[], None] = lambda: None
    """Once all streams are over: the last of what was summed is evidence now; nothing after it is."""


def offered(
    *,
    owner: Owner,
    board: Board,
    plan: Callable[[Agent, int], Plan],
    document: Callable[[], object],
    speaks: Callable[[bytes, str], str],
    token: str = "",
    resolved: Callable[[], Addresses] = dict,
) -> Evidence:
    """The center's evidence services. `plan` and `document` are as agents are told them; `resolved` is where lines with names are;
    `speaks` says why who shows a certificate may not vote under a name, or empty text.
    """
    try:
        from reachline.center.xds import evidence, planes  # noqa: PLC0415  (an extra may be missing)
    except ImportError as missing:
        log.info("evidence_not_offered", extra={"reason": str(missing)})
        return Evidence()
    found = planes.Planes(owner=owner, board=board, resolved=resolved)
    return Evidence(
        services=evidence.services(found, plan=plan, document=document, speaks=speaks, token=token),
        rows=found.rows,
        told=lambda line: found.seen.told(line, board.clock()),
        figures=found.figures,
        close=found.close,
    )
