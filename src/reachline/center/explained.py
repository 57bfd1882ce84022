"""Why a line stands as it does: from the ledger for now, from the journal for a moment in the past."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path

from reachline.center.api.refused import RefusedError
from reachline.center.board import Board
from reachline.center.owner import Owner
from reachline.core import telling
from reachline.core.explain import explain
from reachline.errors import JournalError
from reachline.model import LineId, Seconds
from reachline.store.history import told

__all__ = ["Explainer"]


class Explainer:
    """Answers from what the center knows. Reads only."""

    def __init__(self, *, board: Board, owner: Owner, journal: Path) -> None:
        self._board = board
        self._owner = owner
        self._journal = journal

    async def explain(self, line: LineId, at: Seconds | None) -> Mapping[str, object]:
        """The explanation of a known line, now or at a Unix time."""
        if at is None:
            return self._now(line)
        return await asyncio.to_thread(self._then, line, at)

    def _now(self, line: LineId) -> Mapping[str, object]:
        board, now_ms = self._board, self._board.clock()
        known = self._owner.view(line)
        if known is None:
            raise RefusedError(
                404, "unknown_line", f"{line} is not judged any more, or not yet", "ask again after a tick"
            )
        found = explain(known[0], board.history(line), rules=known[1], now_ms=now_ms)
        return telling.document(found, self._clock, lambda at_ms: round(board.origin + at_ms / 1000, 3))

    def _clock(self, at_ms: int) -> str:
        """A moment of the journal as this machine's clock showed it."""
        return time.strftime("%H:%M:%S", time.localtime(self._board.origin + at_ms / 1000))

    def _then(self, line: LineId, at: Seconds) -> Mapping[str, object]:
        try:
            return told(self._journal, line, at=at).document()
        except JournalError as error:
            raise RefusedError(404, "not_in_journal", str(error), "ask for a moment that the journal holds") from error
