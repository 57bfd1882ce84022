"""What operators ask of lines: who, what, which lines, until when, why. Values, and what they make of the document's lines.

An order speaks of lines by name, not by what they were when it was given: a line that joins a drained cluster is drained.
Of orders that contradict each other the newest counts. Knows no row and no breaker (`core.obey`).
"""

from __future__ import annotations

from collections import defaultdict
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
    "named",
    "names_of",
    "next_ms",
    "obeyed",
    "order_of",
    "placed",
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


def names_of(line: Line) -> tuple[str, ...]:
    """Every target that names this line: itself, all its origins, its cluster, its provider, each of its groups."""
    whole = (line.id.removesuffix(f"@{line.origin}"),) if line.origin else ()
    provider = (f"provider:{line.provider}",) if line.provider else ()
    return (line.id, *whole, line.scope.cluster, *provider, *(f"group:{group}" for group in dict.fromkeys(line.groups)))


def covers(target: str, line: Line) -> bool:
    """Whether `target` names this line."""
    return target in names_of(line)


def covering(book: Book, line: Line) -> tuple[Order, ...]:
    """The orders in force that name the line, oldest first."""
    return tuple(order for order in book.given if covers(order.target, line))


def named(lines: Iterable[Line]) -> dict[str, tuple[Line, ...]]:
    """The lines that each target names, in order of their ids."""
    found: dict[str, list[Line]] = defaultdict(list)
    for line in sorted(lines, key=lambda line: line.id):
        for name in names_of(line):
            found[name].append(line)
    return {name: tuple(each) for name, each in found.items()}


def obeyed(
    book: Book, lines: Mapping[LineId, Line], policy: Sequence[str]
) -> tuple[dict[LineId, Line], dict[LineId, Obeys]]:
    """The document's lines as orders leave them, and what each line that any order names has to follow."""
    if not book.given:
        return dict(lines), {}
    given = _ByTarget(book)
    found = {line: orders for line, each in lines.items() if (orders := given.of(each))}
    wanted = {line: _obeys(orders) for line, orders in found.items()}
    under = {line: _under(lines[line], orders, policy) for line, orders in found.items()}
    return {line: under.get(line, each) for line, each in lines.items()}, wanted


class _ByTarget:
    """A book's orders by what they name: so each line costs the same, however many orders there are."""

    def __init__(self, book: Book) -> None:
        self._given: dict[str, list[Order]] = defaultdict(list)
        for order in book.given:
            self._given[order.target].append(order)

    def of(self, line: Line) -> tuple[Order, ...]:
        """As `covering`, in any order."""
        return tuple([order for name in names_of(line) if name in self._given for order in self._given[name]])


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
