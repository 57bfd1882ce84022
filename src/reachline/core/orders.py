"""What operators ask of lines: who, what, which lines, until when, why. Values, and what they make of the document's lines.

An order speaks of lines by name, not by what they were when it was given: a line that joins a drained cluster is drained.
Of orders that contradict each other the newest counts. Knows no row and no breaker (`core.obey`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Final, NamedTuple

from reachline.model import Line, LineId, Role

__all__ = [
    "NOBODY",
    "NOTHING",
    "Action",
    "Book",
    "Obeys",
    "Order",
    "covering",
    "covers",
    "left",
    "next_ms",
    "obeyed",
    "order_of",
    "placed",
    "reaches",
    "renamed",
    "undone",
]

_STANDBY_MILLI: Final = 50
"""The share of its base that a standby line keeps: the floor, by which it stays measured and ready to take over."""


class Action(StrEnum):
    """What an order does to a line: the first three change what it weighs, the next two what its breaker admits, a drill what
    is held of it.
    """

    DRAIN = "drain"
    WEIGHT = "weight"
    STANDBY = "standby"
    OPEN = "open"
    CLOSE = "close"
    DRILL = "drill"


class Order(NamedTuple):
    """One order. `target` is a line (`cluster/line[@origin]`), a cluster, `provider:NAME` or `group:NAME`."""

    number: int
    """Rises with every order of a center; never used twice."""
    action: Action
    target: str
    by: str
    why: str
    since_ms: int
    until_ms: int | None = None
    """None: until it is undone."""
    weight: int = 0
    """Points; of a `weight` order only."""
    force: bool = False
    """Also where it leaves a cluster without any line that carries traffic."""
    slow_ms: int = 0
    """Of a drill: answers are held to take this long; 0: the line is held to have failed."""
    margin_milli: int = 0
    """Of a drill: it ends once calls fail by more than this more than before, in 1/1000."""


class Book(NamedTuple):
    """The orders in force, oldest first, and the highest number ever given."""

    given: tuple[Order, ...] = ()
    last: int = 0


class Obeys(NamedTuple):
    """The orders a line follows, by number (0: none), and what they ask of its breaker: `open`, `close` or nothing."""

    drain: int = 0
    weight: int = 0
    gate: int = 0
    forced: str = ""
    drill: int = 0


NOBODY: Final = Book()
NOTHING: Final = Obeys()


def placed(book: Book, order: Order) -> Book:
    """The book with one order more."""
    return Book((*book.given, order), max(book.last, order.number))


def undone(book: Book, number: int) -> Book:
    """The book without an order; the same where it holds none of that number."""
    return book._replace(given=tuple(order for order in book.given if order.number != number))


def left(book: Book, now_ms: int) -> Book:
    """The book without the orders whose time is over: those that end at `now_ms` are."""
    return book._replace(
        given=tuple(order for order in book.given if order.until_ms is None or order.until_ms > now_ms)
    )


def next_ms(book: Book) -> int | None:
    """When the next order ends by itself, or None."""
    return min((order.until_ms for order in book.given if order.until_ms is not None), default=None)


def renamed(book: Book, names: Mapping[str, str]) -> Book:
    """The book after lines got other names: `names` says the new one of each old."""
    return book._replace(
        given=tuple(order._replace(target=names.get(order.target, order.target)) for order in book.given)
    )


def order_of(book: Book, number: int) -> Order | None:
    """The order of that number while it is in force."""
    return next((order for order in book.given if order.number == number), None)


def covers(target: str, line: Line) -> bool:
    """Whether `target` names this line: itself, all its origins, its cluster, its provider or one of its groups."""
    kind, colon, name = target.partition(":")
    if colon:
        return name == line.provider if kind == "provider" else kind == "group" and name in line.groups
    return target in (line.id, line.scope.cluster) or (bool(line.origin) and line.id == f"{target}@{line.origin}")


def covering(book: Book, line: Line) -> tuple[Order, ...]:
    """The orders in force that name the line, oldest first."""
    return tuple(order for order in book.given if covers(order.target, line))


def reaches(target: str, lines: Iterable[Line]) -> tuple[Line, ...]:
    """The lines that `target` names, in order of their ids."""
    return tuple(sorted((line for line in lines if covers(target, line)), key=lambda line: line.id))


def obeyed(
    book: Book, lines: Mapping[LineId, Line], policy: Sequence[str]
) -> tuple[dict[LineId, Line], dict[LineId, Obeys]]:
    """The document's lines as orders leave them, and what each line that any order names has to follow."""
    if not book.given:
        return dict(lines), {}
    found = {line: orders for line, each in lines.items() if (orders := covering(book, each))}
    wanted = {line: _obeys(orders) for line, orders in found.items()}
    under = {line: _under(lines[line], orders, policy) for line, orders in found.items()}
    return {line: under.get(line, each) for line, each in lines.items()}, wanted


def _newest(orders: Sequence[Order], *actions: Action) -> Order | None:
    return max((order for order in orders if order.action in actions), default=None, key=lambda order: order.number)


def _obeys(orders: Sequence[Order]) -> Obeys:
    drain, weight = _newest(orders, Action.DRAIN), _newest(orders, Action.WEIGHT, Action.STANDBY)
    gate = _newest(orders, Action.OPEN, Action.CLOSE)
    drill = _newest(orders, Action.DRILL)
    numbers = [order.number if order else 0 for order in (drain, weight, gate, drill)]
    return Obeys(numbers[0], numbers[1], numbers[2], gate.action.value if gate else "", numbers[3])


def _under(line: Line, orders: Sequence[Order], policy: Sequence[str]) -> Line:
    """The line with its weight, role and draining as ordered; a drained document line stays drained."""
    drained = line.drained or _newest(orders, Action.DRAIN) is not None
    weight = _newest(orders, Action.WEIGHT, Action.STANDBY)
    if weight is None:
        return replace(line, drained=drained)
    if weight.action is Action.WEIGHT:
        return replace(line, drained=drained, base=weight.weight)
    if "primary_backup" in policy:
        return replace(line, drained=drained, roles=line.roles - {Role.PRIMARY} | {Role.BACKUP})
    return replace(line, drained=drained, base=max(1, line.base * _STANDBY_MILLI // 1_000))
