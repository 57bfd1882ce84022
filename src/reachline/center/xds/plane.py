"""The center as a control plane, put together: who is told what (steering), and by which streams (serving).

Needs the extra `xds`. On the owner's loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

from reachline.center.board import Board
from reachline.center.xds.admission import admit, token_in
from reachline.center.xds.door import DELTA, SOTW
from reachline.center.xds.operators import page
from reachline.center.xds.resources import Cells
from reachline.center.xds.serving import Serving
from reachline.center.xds.steering import Steering
from reachline.doors.settings import Document
from reachline.model import LineId
from reachline.net import collector
from reachline.net.rpc import Call, Conversation
from reachline.wire.steered import SteeredDocument
from reachline.wire.telling import Teller
from reachline.wire.xds import Node

__all__ = ["ControlPlane"]


class ControlPlane:
    """Everything by which clients follow a center."""

    def __init__(self, board: Board, document: Document, *, rng: Random) -> None:
        self.cells: Final = Cells()
        self.steering: Final = Steering(board, self.cells, document, rng=rng)
        self.serving: Final = Serving(
            self.cells, clock=board.clock, counts=board.counts, admit=self._admit, settled=self.steering.settled
        )
        self._board = board
        token = document.center.token
        self._token = token.get_secret_value() if token else ""

    def _admit(self, call: Call, node: Node) -> None:
        admit(call, Teller(node.id, token=token_in(node.metadata)), self._board.roster, self._token)

    @property
    def services(self) -> Mapping[str, Conversation]:
        """By full method name."""
        return {SOTW: self.serving.sotw, DELTA: self.serving.delta}

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.steering.run(), name="steering")
            tasks.create_task(self.serving.run(), name="serving")

    def follow(self, document: Document) -> None:
        """Another document is in force."""
        with collector.held():
            self.steering.follow(document)

    def refresh(self) -> None:
        """Lines stand otherwise than before, perhaps."""
        with collector.held():  # ten thousand lines are as many pieces, and none a cycle
            self.steering.refresh()

    def close(self) -> None:
        """The center stops: streams end, and clients go on with what they have."""
        self.serving.close()

    def resolved(self) -> Mapping[LineId, Sequence[tuple[str, int]]]:
        """Where lines are that the document gives by name."""
        return self.steering.resolved()

    def followers(self) -> Mapping[str, int]:
        """How many streams there are of each kind of client."""
        return Counter(stream.audience.kind.value for stream in self.serving.streams)

    def page(self, node: str = "", trouble: bool = False) -> SteeredDocument:
        """For operators: all streams, or those of one node, or in trouble."""
        return page(self.serving, self.steering, self._board.clock(), node=node, trouble=trouble)
