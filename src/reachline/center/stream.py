"""What changed, said once to everybody who watches: the deltas of `/api/v1/ws` and `/api/v1/stream`.

Figures are gathered to one delta a second; decisions are said at once; a tick each second tells who hears nothing for
five that the center is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from reachline.center.board import Board, Numbered, dumps
from reachline.center.live import Live
from reachline.model import LineId, Seconds
from reachline.net.waiting import within
from reachline.wire import live, view

__all__ = ["BEAT", "SPARK", "Stream"]

BEAT: Final[Seconds] = 1.0
"""People do not read faster than one change a second, and browsers do not draw 500 rows faster for free."""
SPARK: Final = 60
"""Points of a sparkline in the snapshot."""
_NEWS: Final = 50
"""Decisions a snapshot carries: a page shows the newest few and asks for more."""


class Stream:
    """Gathers what changed since the last delta. Written by the owner's task, flushed by its own."""

    def __init__(self, board: Board) -> None:
        self.readers = Live()
        self.revision = 0
        self._board = board
        self._dirty: set[LineId] = set()
        self._gone: set[LineId] = set()
        self._news: list[Numbered] = []
        self._agents = False
        self._urgent = asyncio.Event()
        self._some = False

    def touched(self, lines: Iterable[LineId]) -> None:
        """Figures of these lines changed."""
        self._dirty.update(lines)
        self._some = True

    def decided(self, lines: Iterable[LineId], news: Iterable[Numbered]) -> None:
        """A publication: these lines stand differently, by these decisions."""
        self._dirty.update(lines)
        self._news.extend(news)
        self._some = True
        self._urgent.set()

    def left(self, lines: Iterable[LineId]) -> None:
        """These lines are no longer in the document."""
        self._gone.update(lines)
        self._dirty.difference_update(self._gone)
        self._urgent.set()

    def agents(self) -> None:
        """An agent came, went or reported."""
        self._agents = True
        self._some = True

    def snapshot(self) -> bytes:
        """Everything, at the current revision."""
        board = self._board
        rows = board.all_rows()
        for row in rows:
            row["spark"] = board.spark(LineId(row["line"]), SPARK)
        message: live.LiveSnapshot = {
            "type": "snapshot",
            "revision": self.revision,
            "version": str(board.version),
            "now": self._now(),
            "lines": rows,
            "changes": board.changes(limit=_NEWS),
            "agents": board.roster.rows(board.clock()),
            "panic": self._panic(),
        }
        return dumps(message)

    def flush(self) -> None:
        """One delta to every reader with all that was gathered."""
        self.revision += 1
        if len(self.readers):
            self.readers.publish(dumps(self._delta()))
        self._dirty.clear()
        self._gone.clear()
        self._news.clear()
        self._agents = self._some = False
        self._urgent.clear()

    async def run(self) -> None:
        """Deltas and ticks until cancelled."""
        loop = asyncio.get_running_loop()
        beat = loop.time()
        while True:
            beat = max(beat + BEAT, loop.time())
            while await within(self._urgent, beat - loop.time()):
                self.flush()
            if self._some:
                self.flush()
            if len(self.readers):
                self.readers.publish(dumps(self._tick()))

    def _tick(self) -> live.LiveTick:
        return {"type": "tick", "revision": self.revision, "version": str(self._board.version), "now": self._now()}

    def close(self) -> None:
        """Every reader gets what is queued and then the end."""
        self.readers.close()

    def _delta(self) -> live.LiveDelta:
        board, dirty = self._board, frozenset(self._dirty)
        return {
            "type": "delta",
            "after": self.revision - 1,
            "revision": self.revision,
            "version": str(board.version),
            "now": self._now(),
            "lines": [row for cell in board.cells() for row in board.rows(cell.value, dirty)] if dirty else [],
            "gone": sorted(self._gone),
            "changes": [view.change(row.change, number=row.number, origin=board.origin) for row in self._news],
            "agents": board.roster.rows(board.clock()) if self._agents else None,
            "panic": self._panic(),
        }

    def _panic(self) -> dict[str, str]:
        found = {cell.value.scope.cluster: cell.value.snapshot.panic for cell in self._board.cells()}
        return {name: why for name, why in found.items() if why}

    def _now(self) -> float:
        return round(self._board.origin + self._board.clock() / 1000, 3)
