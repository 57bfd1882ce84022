"""Waiting for the journal's disk: without end for an acknowledgement, and with one for who must go on judging and answering."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from reachline.center.board import Board
from reachline.model import Seconds
from reachline.store.journal import Journal

__all__ = ["Disk"]

log = logging.getLogger("reachline.center")

_COMMIT: Final[Seconds] = 0.5
"""A commit takes 20 ms and a busy disk ten times that; whoever waits longer waits for a disk that hangs."""


class Disk:
    """What became of records. Written by the owner's loop; the board is told whether the journal takes any."""

    def __init__(self, journal: Journal, board: Board) -> None:
        self._journal = journal
        self._board = board
        self._hung = 0
        """The record that was not on disk in time; while it is not, nobody waits for those behind it. 0: none."""

    async def durable(self, number: int) -> bool:
        """True once record `number` is on disk, however long that takes; False where it never will be."""
        done = not number or await self._journal.durable(number)
        self._look()
        return done

    async def stored(self, number: int) -> bool:
        """`durable` for who cannot wait for ever: False also where the disk takes longer than a commit may."""
        if self._hung and await self._within(0.0, self._hung) is not None:
            self._hung = 0
        done = await self._within(0.0 if self._hung else _COMMIT, number)
        if done is None:
            self._hung = number
        return bool(done)

    async def _within(self, limit: Seconds, number: int) -> bool | None:
        """`durable`, or None where that is not known in time."""
        try:
            async with asyncio.timeout(limit):
                return await self.durable(number)
        except TimeoutError:
            self._look()
            return None

    def _look(self) -> None:
        alarm = self._journal.alarm
        if alarm and not self._board.journal_fault:
            log.error("journal_refused", extra={"reason": alarm})
        self._board.journal_fault = alarm
