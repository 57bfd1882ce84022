"""Orders of operators: looked at on a copy first, refused where they leave nothing, then journalled and given to the ledgers.

Keeps what was ordered, those orders that are over too. Renders rows and effects; decides nothing about lines.
"""

from __future__ import annotations

import asyncio
import difflib
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from reachline.center.api.refused import RefusedError
from reachline.center.board import Board
from reachline.center.owner import LOCAL, Owner, Principal
from reachline.core.ledger import Ledger
from reachline.core.orders import Action, Order, named, order_of
from reachline.core.preview import Foreseen, foreseen
from reachline.core.twin import twin
from reachline.model import Line, LineId, Scope, Seconds
from reachline.store.orders import Given
from reachline.store.records import Ordered, Undone
from reachline.wire import ordering
from reachline.wire.ordering import Asked

__all__ = ["Orders"]

log = logging.getLogger("reachline.center")

_KEPT: Final = 1_000
"""Orders remembered besides those in force: more than a year of an operator's days."""
_MOST: Final = 1_000
"""Orders in force at a time: each tick that changes any looks at each of them for each line."""


class _Wanted(NamedTuple):
    """What one scope would be told."""

    order: Order | None
    undo: tuple[int, ...]


class Orders:
    """Orders given, by number. Written on the center's loop only."""

    def __init__(self, *, owner: Owner, board: Board, past: Iterable[Given] = ()) -> None:
        self._owner = owner
        self._board = board
        self._given = {one.order.number: one for one in past}
        for scope, ledger in owner.ledgers.items():
            for order in ledger.book.given:
                known = self._given.get(order.number) or Given(order=order, scopes=())
                scopes = tuple(dict.fromkeys((*known.scopes, scope)))
                self._given[order.number] = replace(known, order=order, scopes=scopes)
        self._named: dict[Scope, tuple[Mapping[LineId, Line], Mapping[str, tuple[Line, ...]]]] = {}
        """By scope: its lines, and which of them each target names."""
        self.giving = asyncio.Lock()
        """Guards nothing but the order of requests, those for drills too: what one foresees holds when it is carried out."""

    async def place(self, asked: Asked, *, dry_run: bool, principal: Principal = LOCAL) -> ordering.PlacedDocument:
        """The order, in force at the next tick, with what it does; RefusedError where it cannot be."""
        async with self.giving:
            found = self.found(asked.target)
            if asked.action is None:
                return await self._undrain(asked, found, dry_run=dry_run, principal=principal)
            if len(self.in_force()) >= _MOST:
                raise RefusedError(409, "too_many_orders", f"{_MOST} orders are in force", "undo some first")
            order = self._order(asked, principal)
            effects = await self._foreseen(dict.fromkeys(found, _Wanted(order, ())))
            _refuse(order, found, effects, force=asked.force)
            journalled = True
            if not dry_run:
                journalled = await self.give(order, tuple(found))
            rows = [] if dry_run else [self._row(self._given[order.number])]
            return self._document(rows, effects, dry_run=dry_run, journalled=journalled)

    async def undo(
        self, number: int, *, reason: str = "", dry_run: bool = False, principal: Principal = LOCAL
    ) -> ordering.PlacedDocument:
        """The order ends at the next tick; RefusedError where there is none of that number in force."""
        async with self.giving:
            known = self._given.get(number)
            if known is None:
                numbers = ", ".join(str(one.order.number) for one in self.in_force()[-10:]) or "none"
                raise RefusedError(404, "unknown_order", f"there is no order {number}", f"in force: {numbers}")
            if (ended_ms := known.ended_ms(self._board.clock())) is not None:
                how = f"undone by {known.undone_by}" if known.undone_ms is not None else "its time was over"
                ago = round((self._board.clock() - ended_ms) / 1_000)
                told = f"order {number} ended {ago} s ago: {how}"
                raise RefusedError(409, "order_over", told, "GET /api/v1/orders tells which are in force")
            return await self._end((known,), reason, dry_run=dry_run, principal=principal)

    def in_force(self) -> tuple[Given, ...]:
        """Orders in force, oldest first."""
        now_ms = self._board.clock()
        return tuple(one for _, one in sorted(self._given.items()) if one.ended_ms(now_ms) is None)

    def counts(self) -> Mapping[Action, int]:
        """How many of each kind are in force."""
        return Counter(one.order.action for one in self.in_force())

    def rows(self, *, over: bool) -> list[ordering.OrderRow]:
        """Orders as they are shown, newest first; with `over` those that ended too."""
        shown = (one for _, one in sorted(self._given.items())) if over else self.in_force()
        return [self._row(one) for one in shown][::-1]

    async def _undrain(
        self, asked: Asked, found: Mapping[Scope, tuple[Line, ...]], *, dry_run: bool, principal: Principal
    ) -> ordering.PlacedDocument:
        """Every drain order ends that drains nothing but the target's lines."""
        within = {line.id for lines in found.values() for line in lines}
        drains = [one for one in self.in_force() if one.order.action is Action.DRAIN]
        ending = tuple(one for one in drains if set(self._lines(one)) <= within)
        if ending:
            return await self._end(ending, asked.why, dry_run=dry_run, principal=principal)
        wider = [one for one in drains if set(self._lines(one)) & within]
        if wider:
            order = wider[-1].order
            told = f"{asked.target} is drained by order {order.number} on {order.target}, with other lines"
            raise RefusedError(409, "drained_with_others", told, f"undo {order.number} ends that one")
        drained = any(line.drained for lines in found.values() for line in lines)
        hint = "the document says `drained: true`" if drained else "GET /api/v1/orders tells which orders are in force"
        raise RefusedError(409, "not_drained", f"no order drains {asked.target}", hint)

    async def _end(
        self, ending: Sequence[Given], why: str, *, dry_run: bool, principal: Principal
    ) -> ordering.PlacedDocument:
        numbers = tuple(one.order.number for one in ending)
        scopes = {scope for one in ending for scope in one.scopes if scope in self._owner.ledgers}
        effects = await self._foreseen(dict.fromkeys(sorted(scopes, key=str), _Wanted(None, numbers)))
        journalled = True
        if not dry_run:
            # It may have been ended by itself since, while effects were worked out: then it is not ended again.
            last = max((self.ended(number, by=principal, why=why) for number in numbers), default=0)
            journalled = await self._owner.disk.stored(last)
        rows = [self._row(self._given[number]) for number in numbers]
        return self._document(rows, effects, dry_run=dry_run, journalled=journalled)

    def ended(self, number: int, *, by: Principal, why: str) -> int:
        """The order ends at the next tick; the journal's sequence number, 0 where it was not in force any more."""
        one, now_ms, last = self._given[number], self._board.clock(), 0
        if one.ended_ms(now_ms) is not None:
            return 0
        for scope in one.scopes:
            if scope in self._owner.ledgers:
                last = self._owner.told(Undone(scope=scope, at_ms=now_ms, number=number, by=by, why=why))
        self._given[number] = replace(one, undone_ms=now_ms, undone_by=by, undone_why=why)
        log.info("order_undone", extra={"order": number, "principal": by, "reason": why})
        return last

    def follow(self) -> None:
        """Another document is in force: clusters that left and came back are told again what they were under."""
        now_ms = self._board.clock()
        for one in self.in_force():
            # A drill is over with its cluster: what it would do now, nobody has looked at.
            for scope in one.scopes if one.order.action is not Action.DRILL else ():
                ledger = self._owner.ledgers.get(scope)
                if ledger is not None and order_of(ledger.book, one.order.number) is None:
                    self._owner.told(Ordered(scope=scope, at_ms=now_ms, order=one.order))
                    log.info("order_given_again", extra={"order": one.order.number, "cluster": scope.cluster})

    def next_number(self) -> int:
        """The next order's; numbers of clusters that have left the document are not used again either."""
        last = max((ledger.book.last for ledger in self._owner.ledgers.values()), default=0)
        return max(last, *self._given, 0) + 1

    def _order(self, asked: Asked, principal: Principal) -> Order:
        now_ms = self._board.clock()
        assert asked.action is not None
        return Order(
            number=self.next_number(),
            action=asked.action,
            target=asked.target,
            by=principal,
            why=asked.why,
            since_ms=now_ms,
            until_ms=None if asked.lasts is None else now_ms + round(1_000 * asked.lasts),
            weight=asked.weight,
            force=asked.force,
        )

    async def give(self, order: Order, scopes: tuple[Scope, ...]) -> bool:
        """Give the order; whether the journal has it; it is in force either way."""
        last, there = 0, tuple(scope for scope in scopes if scope in self._owner.ledgers)
        now_ms = self._board.clock()
        for scope in there:
            last = self._owner.told(Ordered(scope=scope, at_ms=now_ms, order=order))
        self._given[order.number] = Given(order=order, scopes=there)
        self._forget()
        log.info(
            "order_given",
            extra={"order": order.number, "action": order.action.value, "target": order.target, "principal": order.by,
                   "reason": order.why, "force": order.force},
        )  # fmt: skip
        return await self._owner.disk.stored(last)

    def _forget(self) -> None:
        """The oldest of those that are over."""
        now_ms = self._board.clock()
        over = [number for number, one in sorted(self._given.items()) if one.ended_ms(now_ms) is not None]
        for number in over[:-_KEPT]:
            del self._given[number]

    async def _foreseen(self, wanted: Mapping[Scope, _Wanted]) -> dict[Scope, Foreseen]:
        """What each scope would publish; worked out beside the loop, on copies."""
        now_ms = self._board.clock()
        copies = {scope: twin(self._owner.ledgers[scope]) for scope in wanted}
        return {scope: await asyncio.to_thread(_look, copies[scope], one, now_ms) for scope, one in wanted.items()}

    def found(self, target: str) -> dict[Scope, tuple[Line, ...]]:
        """The lines that a target names, by scope; 404 with the nearest names where there are none."""
        found = {scope: lines for scope, ledger in self._ledgers() if (lines := self._reached(target, ledger))}
        if found:
            return found
        names = self._names()
        near = difflib.get_close_matches(target, names, n=5, cutoff=0.5)
        hint = f"did you mean {', '.join(near)}?" if near else f"there are, for example: {', '.join(names[:5])}"
        told = f"no line, cluster, provider or group is named {target!r}"
        raise RefusedError(404, "unknown_target", told, hint)

    def _names(self) -> list[str]:
        lines = [line for _, ledger in self._ledgers() for line in ledger.told.values()]
        clusters = [scope.cluster for scope, _ in self._ledgers()]
        providers = [f"provider:{line.provider}" for line in lines if line.provider]
        groups = [f"group:{group}" for line in lines for group in line.groups]
        return list(dict.fromkeys([*clusters, *(line.id for line in lines), *providers, *groups]))

    def _ledgers(self) -> list[tuple[Scope, Ledger]]:
        return sorted(self._owner.ledgers.items(), key=lambda item: item[0].cluster)

    def _lines(self, one: Given) -> list[LineId]:
        """The lines that an order names now."""
        return [
            line.id
            for scope, ledger in self._ledgers()
            if scope in one.scopes
            for line in self._reached(self._target(one, ledger), ledger)
        ]

    def _reached(self, target: str, ledger: Ledger) -> tuple[Line, ...]:
        """The lines that a target names; looked up, for a thousand orders may be shown of ten thousand lines."""
        lines, known = self._named.get(ledger.scope, (None, {}))
        if lines is not ledger.told:
            known = named(ledger.told.values())
            self._named = {scope: each for scope, each in self._named.items() if scope in self._owner.ledgers}
            self._named[ledger.scope] = ledger.told, known
        return known.get(target, ())

    def _target(self, one: Given, ledger: Ledger) -> str:
        """As the ledger has it: a line may have been renamed since."""
        return next((each.target for each in ledger.book.given if each.number == one.order.number), one.order.target)

    def _waiting(self, one: Given) -> list[str]:
        """Lines that the order should open and that alone carry their cluster's traffic; known once a tick has seen it."""
        if one.order.action is not Action.OPEN:
            return []
        return [
            line
            for scope, ledger in self._ledgers()
            if scope in one.scopes and not ledger.stale
            for line, obeys in sorted(ledger.wanted.items())
            if obeys.gate == one.order.number != ledger.rows[line].obeys.gate
        ]

    def _row(self, one: Given) -> ordering.OrderRow:
        order, ended_ms = one.order, one.ended_ms(self._board.clock())
        state = "in_force" if ended_ms is None else "over" if one.undone_ms is None else "undone"
        return {
            "id": order.number,
            "action": order.action.value,
            "target": order.target,
            "lines": list(self._lines(one)),
            "waiting": self._waiting(one) if ended_ms is None else [],
            "by": order.by,
            "reason": order.why,
            "since": self._unix(order.since_ms),
            "until": None if order.until_ms is None else self._unix(order.until_ms),
            "weight": order.weight if order.action is Action.WEIGHT else None,
            "force": order.force,
            "state": state,
            "ended": None if ended_ms is None else self._unix(ended_ms),
            "ended_by": one.undone_by,
            "ended_reason": one.undone_why,
        }

    def _document(
        self, rows: list[ordering.OrderRow], effects: Mapping[Scope, Foreseen], *, dry_run: bool, journalled: bool
    ) -> ordering.PlacedDocument:
        ticks = [self._owner.ledgers[scope].rules.tick_ms for scope in effects if scope in self._owner.ledgers]
        return {
            "dry_run": dry_run,
            "orders": rows,
            "effects": [ordering.effect(scope.cluster, found) for scope, found in effects.items()],
            "within": max(ticks, default=0) / 1_000,
            "journalled": journalled,
        }

    def _unix(self, at_ms: int) -> Seconds:
        return round(self._board.origin + at_ms / 1_000, 3)


def _look(ledger: Ledger, wanted: _Wanted, now_ms: int) -> Foreseen:
    return foreseen(ledger, order=wanted.order, undo=wanted.undo, now_ms=now_ms)


def _refuse(
    order: Order, found: Mapping[Scope, tuple[Line, ...]], effects: Mapping[Scope, Foreseen], *, force: bool
) -> None:
    """409 for what would leave a cluster without any line that carries traffic, unless it is meant."""
    if force:
        return
    for scope, seen in effects.items():
        if seen.leaves_nothing:
            told = f"no line of {scope.cluster} would carry traffic any more"
            raise RefusedError(
                409, "nothing_left", told, "say `force` (`--force` on the command line) if that is meant"
            )
    asked = {line.id for lines in found.values() for line in lines}
    waiting = {line for seen in effects.values() for line in seen.waiting}
    if order.action is Action.OPEN and asked <= waiting:
        told = f"{order.target} is the last to carry traffic in its cluster"
        raise RefusedError(
            409, "last_line", told, "bring another line back first, or say `force` (`--force` on the command line)"
        )
