"""Drills: rehearsed on a copy first, given as orders, watched by every record of the journal, and ended where they do harm.

What becomes of them is told by `core.watching` from the journal's own records; this only passes them on and ends what must end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from reachline.center.api.refused import RefusedError
from reachline.center.board import Board
from reachline.center.orders import Orders
from reachline.center.owner import LOCAL, Owner, Principal
from reachline.core.drilled import WATCH, Drilled
from reachline.core.orders import Action, Order, order_of
from reachline.core.rehearsal import Rehearsed, rehearsed
from reachline.core.twin import twin
from reachline.core.watching import Watch
from reachline.model import Line, Scope
from reachline.store.drills import tell
from reachline.store.records import Ordered, Record
from reachline.wire import drilling
from reachline.wire.drilling import AskedDrill

__all__ = ["Drills"]

log = logging.getLogger("reachline.center")

_FORCE: Final = "say `force` (`--force` on the command line) if that is meant"
_LEFT: Final = "its cluster left the document"


class Drills:
    """Drills of all clusters. Written on the center's loop only; `watch` knows those of before this start."""

    def __init__(self, *, owner: Owner, board: Board, orders: Orders, watch: Watch) -> None:
        self._owner = owner
        self._board = board
        self._orders = orders
        self._watch = watch
        known = {(one.scope, one.order.number) for one in watch.all()}
        for scope, ledger in owner.ledgers.items():
            for order in ledger.book.given:
                # One that the journal's newest segments no longer tell of is watched from here on.
                if (scope, order.number) not in known:
                    watch.ordered(scope, order, ledger.told.values(), board.clock())
        self.follow()
        owner.heard = self._heard

    async def play(self, asked: AskedDrill, *, principal: Principal = LOCAL) -> drilling.PlayedDocument:
        """What the drill does, and where it is real, the drill; RefusedError where it cannot be."""
        async with self._orders.giving:
            found = self._orders.found(asked.target)
            order = self._order(asked, principal)
            seen = await self._rehearsed(order, found)
            drill, journalled = None, True
            if asked.is_real:
                self._refuse(asked, found, seen)
                # It begins now, not when it was looked at.
                now_ms = self._board.clock()
                lasts_ms = (order.until_ms or 0) - order.since_ms
                order = order._replace(since_ms=now_ms, until_ms=now_ms + lasts_ms)
                journalled = await self._orders.give(order, tuple(found))
                drill = next(row for row in self.rows() if row["id"] == order.number)
            else:
                fields = {"target": order.target, "principal": principal, "reason": order.why}
                log.info("drill_rehearsed", extra=fields)
            rows = [drilling.rehearsal(scope.cluster, one) for scope, one in seen.items()]
            return {"real": asked.is_real, "drill": drill, "rehearsals": rows, "journalled": journalled}

    def rows(self) -> list[drilling.DrillRow]:
        """Drills as they are shown, newest first."""
        return drilling.drill_rows(self._watch.all(), self._board.origin)

    def follow(self) -> None:
        """Another document is in force: a drill is over with its cluster, though that may come back, for no order tells it again."""
        for one in self._running():
            ledger = self._owner.ledgers.get(one.scope)
            if ledger is None or order_of(ledger.book, one.order.number) is None:
                self._watch.undone(one.scope, one.order.number, self._board.clock(), by=WATCH, why=_LEFT)

    def _running(self) -> list[Drilled]:
        return [one for one in self._watch.all() if one.ended_ms is None]

    def _order(self, asked: AskedDrill, principal: Principal) -> Order:
        now_ms = self._board.clock()
        return Order(
            number=self._orders.next_number(),
            action=Action.DRILL,
            target=asked.target,
            by=principal,
            why=asked.why,
            since_ms=now_ms,
            until_ms=now_ms + round(1_000 * asked.lasts),
            force=asked.force,
            slow_ms=0 if asked.slow is None else max(1, round(1_000 * asked.slow)),
            margin_milli=round(1_000 * asked.abort_above),
        )

    async def _rehearsed(self, order: Order, scopes: Mapping[Scope, object]) -> dict[Scope, Rehearsed]:
        """Worked out beside the loop, on copies."""
        now_ms = self._board.clock()
        copies = {scope: twin(self._owner.ledgers[scope]) for scope in scopes}
        return {scope: await asyncio.to_thread(rehearsed, copy, order, now_ms) for scope, copy in copies.items()}

    def _refuse(
        self, asked: AskedDrill, found: Mapping[Scope, tuple[Line, ...]], seen: Mapping[Scope, Rehearsed]
    ) -> None:
        """409 for a second drill at a time, for one that moves nothing, and, unless it is meant, for one that does harm for sure."""
        running = [one for one in self._running() if one.scope in found]
        if running:
            told = (
                f"drill {running[0].order.number} on {running[0].order.target} is running in {running[0].scope.cluster}"
            )
            raise RefusedError(409, "drill_running", told, f"`reachline undo {running[0].order.number}` ends it")
        drilled = {line.id for lines in found.values() for line in lines}
        effects = [one for each in seen.values() for one in each.seen.effects if one.line in drilled]
        if not any(one.after.weight < one.before.weight for one in effects):
            hint = "lines that are out, drained, kept by an order or not enforced carry on as they do; --slow must reach a limit"
            raise RefusedError(409, "nothing_moves", f"this drill moves no traffic off {asked.target}", hint)
        if asked.force:
            return
        for scope, one in seen.items():
            if one.seen.leaves_nothing or one.seen.panic:
                told = f"{scope.cluster} would have too little left: {one.seen.panic or 'no line carries traffic'}"
                raise RefusedError(409, "nothing_left", told, _FORCE)
            over = [load for load in one.loads if load.capacity and load.during > 1_000 * load.capacity >= load.before]
            if over:
                load = over[0]
                told = f"{load.line} would carry {load.during / 1_000:.0f} calls a second of {load.capacity}"
                raise RefusedError(409, "over_capacity", told, _FORCE)

    def _heard(self, record: Record) -> None:
        """A record of the journal. What must end is ended behind it: the ledger has not taken it yet."""
        lines = self._owner.ledgers[record.scope].told.values() if isinstance(record, Ordered) else ()
        for number, why in tell(self._watch, record, lines):
            asyncio.get_running_loop().call_soon(self._abort, number, why)

    def _abort(self, number: int, why: str) -> None:
        if self._orders.ended(number, by=WATCH, why=why):
            log.warning("drill_aborted", extra={"order": number, "reason": why})
