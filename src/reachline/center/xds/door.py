"""The center's door for clients that follow it by xDS, or, where what it needs is not installed, the word that says so to whoever
knocks. Imports nothing that needs the extra `xds` before it is opened.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Final

from reachline.center.board import Board
from reachline.doors.settings import Document
from reachline.errors import RemoteProtocolError
from reachline.model import LineId
from reachline.net.rpc import Call, Service
from reachline.wire.steered import SteeredDocument, nobody

if TYPE_CHECKING:
    from reachline.center.xds.plane import ControlPlane

__all__ = ["DELTA", "SOTW", "Closed", "opened"]

log = logging.getLogger("reachline.center.xds")

_SERVICE: Final = "/envoy.service.discovery.v3.AggregatedDiscoveryService"
SOTW: Final = f"{_SERVICE}/StreamAggregatedResources"
DELTA: Final = f"{_SERVICE}/DeltaAggregatedResources"


class Closed:
    """A center that nobody can follow by xDS, and that tells so to who asks."""

    def __init__(self, reason: str) -> None:
        self.reason: Final = reason

    @property
    def services(self) -> Mapping[str, Service]:
        """By full method name: each refuses, with the reason."""
        return {SOTW: self._refuse, DELTA: self._refuse}

    async def _refuse(self, frames: AsyncIterator[bytes], _: Call) -> AsyncIterator[bytes]:
        async for frame in frames:
            if self.reason:
                raise RemoteProtocolError(self.reason)
            yield frame

    async def run(self) -> None:
        """There is nothing to do."""

    def follow(self, document: Document) -> None:
        """Another document."""

    def refresh(self) -> None:
        """Another state of lines."""

    def close(self) -> None:
        """The center stops."""

    def resolved(self) -> Mapping[LineId, Sequence[tuple[str, int]]]:
        """Where lines are: nobody asked."""
        return {}

    def followers(self) -> Mapping[str, int]:
        """Nobody."""
        return {}

    def page(self, node: str = "", trouble: bool = False) -> SteeredDocument:  # noqa: ARG002  (of nobody)
        """For operators: nobody, and why."""
        return nobody(self.reason)


def opened(board: Board, document: Document, *, rng: Random) -> ControlPlane | Closed:
    """The door of a center that begins with `document`."""
    try:
        from reachline.center.xds.plane import ControlPlane  # noqa: PLC0415  (protobuf, and only xDS needs it)
    except ImportError as error:
        log.warning("xds_not_served", extra={"reason": str(error)})
        return Closed(str(error))
    return ControlPlane(board, document, rng=rng)
